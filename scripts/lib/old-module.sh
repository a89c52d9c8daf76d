# shellcheck shell=bash
# A module as it once was, for tests of upgrades and of nodes that are behind.
#
# Its source is this project's own history. A copy without one, an archive or a shallow clone, has no older module to
# test with.

: "${root:?lib/common.sh comes first}" "${target:?}"

# The last state of the module before nodes could hand a lock on: it knows no WAIT, and its replies tell less.
old_module_commit=201858c382aac60c042fa1918b6070e27cc28ee0
# That state calls itself 0.1.0, as a later one still does. It is built under a version of its own, to be told apart.
old_module_version=0.0.9

# build_old_module: sets `old_module` to an older module, built unless it is there already. Fails, and says why, where
# there is no history to build it from; whatever else goes wrong ends the script.
build_old_module() {
    local home="$target/old-module"
    local source="$home/source" stamp="$old_module_commit $old_module_version"
    old_module="$home/libredlock.so"
    if [ -f "$old_module" ] && [ "$(cat "$home/stamp" 2>/dev/null)" = "$stamp" ]; then
        return 0
    fi
    rm -rf "$source" "$home/stamp" "$old_module"
    if ! git -C "$root" cat-file -e "$old_module_commit^{commit}" 2>/dev/null; then
        note "No older module: this copy of the project has no history that goes back to ${old_module_commit:0:7}."
        return 1
    fi
    mkdir -p "$source"
    git -C "$root" archive "$old_module_commit" | tar -x -C "$source" || die "An older state cannot be read."
    sed -i "s/^version = \"0\.1\.0\"$/version = \"$old_module_version\"/" "$source/Cargo.toml"
    # Under a name of its own it can be built beside the present one, with what both are built upon compiled once.
    sed -i 's/^name = "redlock"$/name = "redlock_old"/' "$source/module/Cargo.toml"
    # Not --locked: the versions of its own crates are others now. All that it is built upon stays as it was.
    (cd "$source" && CARGO_TARGET_DIR="$target" cargo build --release --package redlock-module </dev/null) ||
        die "The older module cannot be built."
    mv "$target/release/libredlock_old.so" "$old_module" || die "The older module was built, and is not there."
    rm -rf "$source"
    echo "$stamp" >"$home/stamp"
}
