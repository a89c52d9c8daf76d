# shellcheck shell=bash
# Nodes: servers on loopback with the module loaded, one directory each.
#
# A node's directory holds `port`, `pid`, `node.conf` and `node.log`. The directory is also how a
# process is known again: a pid counts as the node's only while that process works in it, so that
# a pid that the system gave to somebody else is never touched.

: "${root:?lib/common.sh comes first}" "${target:?}"

# build_module: compiles the module and sets `module`. REDLOCK_MODULE names one that is built.
build_module() {
    if [ -n "${REDLOCK_MODULE:-}" ]; then
        [ -f "$REDLOCK_MODULE" ] || die "REDLOCK_MODULE names no file: $REDLOCK_MODULE"
        module=$REDLOCK_MODULE
        return
    fi
    (cd "$root" && cargo build --locked --release --package redlock-module </dev/null)
    module="$target/release/libredlock.so"
}

# server: the server program that nodes run.
server() {
    command -v "${REDLOCK_SERVER:-redis-server}"
}

# start_node directory [configuration line...]: starts a node, on the port it had if it had one.
start_node() {
    local dir=$1 port='' attempt
    shift
    mkdir -p "$dir"
    if [ -f "$dir/port" ]; then
        port=$(<"$dir/port")
    fi
    # Between looking at a port and taking it somebody else may: then the server ends and the next
    # port is tried.
    for attempt in {1..20}; do
        if [ -z "$port" ] || port_is_taken "$port"; then
            port=$((20000 + RANDOM % 12000))
            continue
        fi
        launch "$dir" "$port" "$@"
        if wait_until 20 node_has_decided "$dir" && node_answers "$dir"; then
            return 0
        fi
        stop_node "$dir"
        if ! grep -q 'Address already in use' "$dir/node.log"; then
            break
        fi
        port=''
    done
    die "A node did not start (attempt $attempt). The end of its log:" "$(tail -n 15 "$dir/node.log" 2>/dev/null)"
}

# launch directory port [configuration line...]
launch() {
    local dir=$1 port=$2
    shift 2
    printf '%s\n' "$port" >"$dir/port"
    {
        printf 'port %s\nbind 127.0.0.1\ndir "%s"\nlogfile "%s/node.log"\n' "$port" "$dir" "$dir"
        printf 'loadmodule "%s"\nsave ""\n' "$module"
        printf '%s\n' "$@"
    } >"$dir/node.conf"
    : >"$dir/node.log"
    # A session of its own: Ctrl-C and a closed terminal reach the script, which decides what ends.
    # In its directory from birth, and no signal between birth and pid file: it is never lost sight of.
    (
        trap '' INT TERM HUP
        cd "$dir" || exit
        setsid "$(server)" node.conf </dev/null >>node.log 2>&1 &
        printf '%s\n' "$!" >pid
    )
}

port_is_taken() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# ask directory command...: sends a command to a node; replies look as they do at redis-cli.
ask() {
    local dir=$1
    shift
    timeout 10 redis-cli --no-raw -h 127.0.0.1 -p "$(<"$dir/port")" "$@" 2>/dev/null </dev/null
}

# ask_raw directory command...: the same without quotes and types, for scripts to read.
ask_raw() {
    local dir=$1
    shift
    timeout 10 redis-cli --raw -h 127.0.0.1 -p "$(<"$dir/port")" "$@" 2>/dev/null </dev/null
}

# node_answers directory: whether this node, not some other server on its port, is ready.
node_answers() {
    local info
    node_lives "$1" && info=$(ask_raw "$1" INFO server) &&
        grep -q "^process_id:$(<"$1/pid")"$'\r'"\?\$" <<<"$info"
}

# node_has_decided directory: whether a node that was just launched is ready or has given up.
node_has_decided() {
    node_answers "$1" || node_is_gone "$1"
}

# node_lives directory: whether the node's own process is there.
node_lives() {
    local pid
    pid=$(cat "$1/pid" 2>/dev/null) || return 1
    [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$1" ]
}

node_is_gone() {
    ! node_lives "$1"
}

# stop_node directory: ends a node, at once if it does not end by itself.
stop_node() {
    local pid
    node_lives "$1" || return 0
    pid=$(<"$1/pid")
    kill "$pid" 2>/dev/null || true
    if ! wait_until 5 node_is_gone "$1"; then
        kill -9 "$pid" 2>/dev/null || true
        wait_until 5 node_is_gone "$1" || die "The process $pid of a node does not end."
    fi
}
