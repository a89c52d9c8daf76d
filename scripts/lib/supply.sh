# shellcheck shell=bash
# What the project is built upon: licences, sources, known holes.
#
# Licences and sources are also held against deny.toml by a test, which needs nothing but cargo. cargo-deny looks at more,
# where it is installed (cargo install --locked cargo-deny); what it cannot do here, it says.

: "${root:?lib/common.sh comes first}"

# check_supply: fails where deny.toml says no.
check_supply() {
    if ! has cargo-deny; then
        note "No cargo-deny here: licences and sources were held against deny.toml by the tests; bans and advisories skipped."
        return 0
    fi
    (cd "$root" && cargo deny --locked --offline check licenses bans sources </dev/null)
    check_advisories
}

# check_advisories: known holes in what we build upon. The list comes from the net, or from where it was put before.
check_advisories() {
    local log
    log=$(mktemp)
    if (cd "$root" && cargo deny --locked check advisories </dev/null) >"$log" 2>&1; then
        note "No known holes in what this is built upon."
    elif grep -qi 'failed to fetch\|failed to open advisory database\|failed to load advisory database' "$log"; then
        note "The list of known holes cannot be had here: advisories skipped."
    else
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}
