# shellcheck shell=bash
# Redis libraries of other languages, for the tests that run client/LANGUAGES.md.
#
# Installed under target/languages/ and nowhere else. What is there already is never fetched again, so a second
# run is offline.

: "${target:?lib/common.sh comes first}"

redis_py=redis==8.1.0
ioredis=ioredis@6.0.0

# need_python_redis: makes sure that redis-py is there, and tells the tests where.
need_python_redis() {
    local into="$target/languages/${redis_py/==/-}"
    if [ ! -d "$into" ]; then
        install_into "$into" python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
            --only-binary=:all: "$redis_py" --target ||
            die "The package $redis_py could not be fetched with pip." \
                "The gate runs the Python of client/LANGUAGES.md and needs it once; later runs are offline."
    fi
    export REDLOCK_PYTHON_PACKAGES="$into"
}

# want_node_redis: the same for ioredis, where there is a Node.js that knows what the page uses.
want_node_redis() {
    local into="$target/languages/${ioredis/@/-}"
    if ! has node || ! has npm || ! node --eval 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; then
        note "No Node.js 20 with npm here: the JavaScript of client/LANGUAGES.md is not run."
        return 0
    fi
    if [ ! -d "$into" ]; then
        install_into "$into" npm install --silent --no-audit --no-fund --ignore-scripts "$ioredis" --prefix || {
            note "The package $ioredis could not be fetched with npm: the JavaScript of client/LANGUAGES.md is not run."
            return 0
        }
    fi
    export REDLOCK_NODE_PACKAGES="$into"
}

# install_into directory command...: the command, with a directory as its last word. It appears only when it is complete.
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
