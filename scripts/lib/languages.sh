# shellcheck shell=bash
# Libraries in other languages: Redis clients for the tests that run client/LANGUAGES.md, and lock libraries for the
# bench.
#
# They are installed under target/languages/ and nowhere else. An installed library is never fetched again, so a second
# run works offline.

: "${target:?lib/common.sh comes first}"

redis_py=redis==8.1.0
ioredis=ioredis@6.0.0
# The libraries that the bench compares with.
pottery=pottery==3.0.1
node_redlock=redlock@5.0.0-beta.2

# need_python_redis: installs redis-py if it is missing, and exports its directory for the tests.
need_python_redis() {
    python_packages REDLOCK_PYTHON_PACKAGES "$redis_py" ||
        die "The package $redis_py could not be fetched with pip." \
            "The gate runs the Python of client/LANGUAGES.md and needs it once; later runs are offline."
}

# want_node_redis: the same for ioredis, if this machine has a Node.js that is new enough for the page.
want_node_redis() {
    node_packages REDLOCK_NODE_PACKAGES "$ioredis" ||
        remind "No Node.js 20 with npm and $ioredis on this machine: the JavaScript of client/LANGUAGES.md is not run."
}

# want_peers: installs lock libraries in other languages for the bench.
want_peers() {
    python_packages REDLOCK_PYTHON_PEERS "$pottery" "$redis_py" ||
        note "No Python with pip and $pottery on this machine: the bench leaves pottery out."
    node_packages REDLOCK_NODE_PEERS "$node_redlock" "$ioredis" ||
        note "No Node.js 20 with npm and $node_redlock on this machine: the bench leaves node-redlock out."
}

# python_packages variable name==version...: fetches packages, and exports the variable with their directory.
python_packages() {
    local variable=$1 into
    shift
    into="$target/languages/$(joined "${@/==/-}")"
    if [ ! -d "$into" ]; then
        has python3 && install_into "$into" python3 -m pip install --quiet --disable-pip-version-check \
            --root-user-action=ignore --only-binary=:all: "$@" --target || return 1
    fi
    export "$variable=$into"
}

# node_packages variable name@version...: the same with npm.
node_packages() {
    local variable=$1 into
    shift
    if ! has node || ! has npm || ! node --eval 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; then
        return 1
    fi
    into="$target/languages/$(joined "${@/@/-}")"
    if [ ! -d "$into" ]; then
        install_into "$into" npm install --silent --no-audit --no-fund --ignore-scripts "$@" --prefix || return 1
    fi
    export "$variable=$into"
}

# joined word...: prints the words joined with +, for the name of a directory.
joined() {
    local IFS=+
    printf '%s' "$*"
}

# install_into directory command...: runs the command with a directory as its last argument. The directory appears
# only when it is complete.
install_into() {
    local into=$1 work
    shift
    mkdir -p "$target/languages"
    work=$(mktemp -d "$target/languages/.fetch.XXXXXX")
    if "$@" "$work" </dev/null; then
        rm -rf "$into"
        mv "$work" "$into"
    else
        rm -rf "$work"
        return 1
    fi
}
