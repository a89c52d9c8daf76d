# shellcheck shell=bash
# The published crates: that they can be packaged, and what their public interface depends on.

: "${root:?lib/common.sh comes first}" "${target:?}"

# The crates that go to crates.io, in the order of their dependencies.
published_crates=(redlock-contract redlock-core redlock-proto redlock-client redlock-cli)

# check_packages: packages every published crate, and compiles each from its package, against the packages of the
# crates before it.
check_packages() {
    local crate listed file
    local -a chosen=()
    for crate in "${published_crates[@]}"; do
        chosen+=(--package "$crate")
    done
    # To Cargo, two packages with one version are the same one for ever: what it has unpacked and compiled of earlier
    # packages must go.
    local folder="$target/package-check"
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/redlock-* "$folder"/debug/.fingerprint/redlock-*
    # A checkout with uncommitted changes is tested as it is.
    (cd "$root" && CARGO_TARGET_DIR=$folder cargo package --locked --allow-dirty --quiet "${chosen[@]}" </dev/null)
    for crate in "${published_crates[@]}"; do
        listed=$(cd "$root" && cargo package --locked --allow-dirty --list --package "$crate" </dev/null)
        # The tests in src/ are packaged too, so that they run where the crate is unpacked.
        while read -r file; do
            grep -qxF "$file" <<<"$listed" ||
                die "The package of $crate leaves out $file, which its sources may read." \
                    "Add it to \`include\` in its Cargo.toml."
        done < <(cd "$(crate_folder "$crate")" && git ls-files src)
        note "-- $crate: $(wc -l <<<"$listed") files"
    done
}

# crate_folder crate: prints the folder of a crate of this project.
crate_folder() {
    local id
    id=$(cd "$root" && cargo pkgid --locked --offline --package "$1" </dev/null)
    id=${id#path+file://}
    printf '%s\n' "${id%%#*}"
}

# check_features: lints the client with no feature, each one alone, and all but one; in the long form with every
# combination. The tests ask for all of them. RUSTFLAGS would compile every dependency again; clippy does not.
check_features() {
    local -a features=(tls sentinel tracing metrics blocking)
    local -a chosen
    local choice bit count=0
    for ((choice = 0; choice < 1 << ${#features[@]}; choice++)); do
        chosen=()
        for bit in "${!features[@]}"; do
            if ((choice >> bit & 1)); then
                chosen+=("${features[bit]}")
            fi
        done
        if [ -z "${REDLOCK_LONG:-}" ] && [ "${#chosen[@]}" -gt 1 ] && [ "${#chosen[@]}" -ne $((${#features[@]} - 1)) ]; then
            continue
        fi
        count=$((count + 1))
        (cd "$root" && cargo clippy --locked --quiet --package redlock-client --lib --features "${chosen[*]}" \
            -- -D warnings </dev/null) || die "redlock-client does not compile with the features: ${chosen[*]}"
    done
    note "-- redlock-client compiles with each of $count combinations of features"
}

# check_oldest_rust: compiles what users build with the oldest Rust that Cargo.toml names; rustup installs it once.
# Clippy checks the standard library's part of the promise in every run (incompatible_msrv).
check_oldest_rust() {
    local oldest crate
    oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml")
    if ! want_rust "$oldest"; then
        remind "Rust $oldest, the oldest supported one: skipped. $reason"
        return 0
    fi
    for crate in redlock-module "${published_crates[@]}"; do
        (cd "$root" && CARGO_TARGET_DIR="$target/oldest-rust" rustup run "$oldest" cargo check --locked --quiet \
            --package "$crate" --all-features </dev/null) || die "$crate does not compile with Rust $oldest."
    done
    note "-- the module and the published crates compile with Rust $oldest"
}

# want_rust version: installs a Rust toolchain if it is missing. If it cannot be had, fails and sets `reason`.
want_rust() {
    local log="$target/toolchain.log"
    if ! has rustup; then
        reason="Only rustup can install it beside another one, and there is no rustup."
        return 1
    elif rustup run "$1" cargo --version >/dev/null 2>&1; then
        return 0
    fi
    note "installing Rust $1"
    if ! rustup toolchain install "$1" --profile minimal --no-self-update </dev/null >"$log" 2>&1; then
        reason="rustup cannot install it: $(grep -m 1 '^error' "$log" || tail -n 1 "$log")"
        return 1
    fi
}

# check_public_types: fails if a type of another crate has appeared in the public interface of the client, or has
# gone. A new one is a decision: its crate's next major version is then ours too.
check_public_types() {
    local list="$root/client/public-types.txt" found="$target/public-types.txt"
    # The JSON form of rustdoc is not stable. Only rustdoc gets the switch: for the compiler, every dependency would
    # be built anew.
    (cd "$root" && RUSTDOC="$root/scripts/lib/unstable-rustdoc" cargo rustdoc --locked --quiet --package redlock-client \
        --lib --all-features -- -Z unstable-options --output-format json </dev/null)
    python3 "$root/scripts/lib/public_types.py" "$target/doc/redlock_client.json" >"$found"
    diff -u "$list" "$found" ||
        die "The public interface of redlock-client has other foreign types than client/public-types.txt lists." \
            "If that is intended, change the list."
    note "-- $(grep -vc '^#' "$found") types of other crates in the public interface of redlock-client, as listed"
}
