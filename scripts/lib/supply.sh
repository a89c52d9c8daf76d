# shellcheck shell=bash
# Checks the dependencies: licences, sources, known vulnerabilities.
#
# A test checks licences and sources against deny.toml too, with cargo alone. cargo-deny checks more, if it is installed
# (cargo install --locked cargo-deny); the script prints a note about each check that it skips.

: "${root:?lib/common.sh comes first}" "${target:?}"

# check_supply: fails if a dependency violates deny.toml.
check_supply() {
    if ! has cargo-deny; then
        remind "No cargo-deny on this machine: the tests have checked licences and sources; bans and advisories skipped."
        return 0
    fi
    (cd "$root" && cargo deny --locked --offline check licenses bans sources </dev/null)
    check_advisories
}

# check_advisories: fails if a dependency has a known vulnerability. The list is fetched, or taken from an earlier run.
check_advisories() {
    local log="$target/advisories.log"
    if (cd "$root" && cargo deny --locked check advisories </dev/null) >"$log" 2>&1; then
        note "No known vulnerabilities in the dependencies."
    elif grep -qi 'failed to fetch\|failed to open advisory database\|failed to load advisory database' "$log"; then
        remind "The list of known vulnerabilities cannot be fetched: advisories skipped."
    else
        cat "$log" >&2
        return 1
    fi
}
