# shellcheck shell=bash
# An older version of the module, for tests of upgrades and of mixed versions.
#
# Its source is in this project's git history. An archive or a shallow clone has no history, and so no older module.

: "${root:?lib/common.sh comes first}" "${target:?}"

# The last commit before nodes had wait queues: it has no WAIT, and its replies have fewer fields.
old_module_commit=201858c382aac60c042fa1918b6070e27cc28ee0
# That commit has the version 0.1.0, as later ones do. The build gets this version instead, to tell them apart.
old_module_version=0.0.9

# build_old_module: sets `old_module` to an older module, and builds it if it is missing. Fails with a note if the
# history does not reach back far enough; any other error ends the script.
build_old_module() {
    local home="$target/old-module"
    local source="$home/source" stamp="$old_module_commit $old_module_version"
    old_module="$home/libredlock.so"
    if [ -f "$old_module" ] && [ "$(cat "$home/stamp" 2>/dev/null)" = "$stamp" ]; then
        return 0
    fi
    rm -rf "$source" "$home/stamp" "$old_module"
    if ! git -C "$root" cat-file -e "$old_module_commit^{commit}" 2>/dev/null; then
        remind "No older module: the git history of this checkout does not have ${old_module_commit:0:7}."
        return 1
    fi
    mkdir -p "$source"
    git -C "$root" archive "$old_module_commit" | tar -x -C "$source" || die "The commit ${old_module_commit:0:7} cannot be read."
    sed -i "s/^version = \"0\.1\.0\"$/version = \"$old_module_version\"/" "$source/Cargo.toml"
    # With another name it shares the target folder, and so the compiled dependencies, with the present module.
    sed -i 's/^name = "redlock"$/name = "redlock_old"/' "$source/module/Cargo.toml"
    # Not --locked, because the versions of its own crates have changed. Those of all dependencies stay the same.
    (cd "$source" && CARGO_TARGET_DIR="$target" cargo build --release --package redlock-module </dev/null) ||
        die "The older module cannot be built."
    mv "$target/release/libredlock_old.so" "$old_module" || die "The older module was built, but its file is missing."
    rm -rf "$source"
    echo "$stamp" >"$home/stamp"
}
