# shellcheck shell=bash
# Nodes: servers on loopback with the module loaded, one directory each.
#
# A node's directory holds `port`, `pid`, `node.conf` and `node.log`. It also identifies the process: a pid counts
# as the node's only if the working directory of that process is this directory. So the scripts never signal
# another process that got the same pid.

: "${root:?lib/common.sh comes first}" "${target:?}"

# build_module: compiles the module and sets `module`, or uses the module that REDLOCK_MODULE names.
build_module() {
    if [ -n "${REDLOCK_MODULE:-}" ]; then
        [ -f "$REDLOCK_MODULE" ] || die "REDLOCK_MODULE is not a file: $REDLOCK_MODULE"
        module=$REDLOCK_MODULE
        return
    fi
    (cd "$root" && cargo build --locked --release --package redlock-module </dev/null)
    module="$target/release/libredlock.so"
}

# server: prints the path of the server program.
server() {
    command -v "${REDLOCK_SERVER:-redis-server}"
}

# start_node directory [configuration line...]: starts a node, on its last port if it had one. `node_launcher` names
# another function than `launch` that starts the server.
start_node() {
    local dir=$1 port='' attempt
    shift
    mkdir -p "$dir"
    if [ -f "$dir/port" ]; then
        port=$(<"$dir/port")
    fi
    # Another program may take the port after the check. Then the server ends, and the loop tries another port.
    for attempt in {1..20}; do
        if [ -z "$port" ] || port_is_taken "$port"; then
            port=$((20000 + RANDOM % 12000))
            continue
        fi
        "${node_launcher:-launch}" "$dir" "$port" "$@"
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

# launch directory port [configuration line...]: writes the configuration and starts the server.
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
    # setsid: Ctrl-C and a closed terminal reach the script, and it decides which nodes end. The server starts in its
    # directory, and signals are ignored until its pid is stored, so that the scripts always find it.
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

# ask directory command...: sends a command to a node; prints the reply as redis-cli does on a terminal.
ask() {
    local dir=$1
    shift
    timeout 10 redis-cli --no-raw -h 127.0.0.1 -p "$(<"$dir/port")" "$@" 2>/dev/null </dev/null
}

# ask_raw directory command...: the same without quotes and types, for scripts.
ask_raw() {
    local dir=$1
    shift
    timeout 10 redis-cli --raw -h 127.0.0.1 -p "$(<"$dir/port")" "$@" 2>/dev/null </dev/null
}

# node_answers directory: whether this node is ready; another server on its port does not count.
node_answers() {
    local info
    node_lives "$1" && info=$(ask_raw "$1" INFO server) &&
        grep -q "^process_id:$(<"$1/pid")"$'\r'"\?\$" <<<"$info"
}

# node_has_decided directory: whether a launched node is ready or has ended.
node_has_decided() {
    node_answers "$1" || node_is_gone "$1"
}

# node_lives directory: whether the node's process runs.
node_lives() {
    local pid
    pid=$(cat "$1/pid" 2>/dev/null) || return 1
    [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$1" ]
}

node_is_gone() {
    ! node_lives "$1"
}

# stop_node directory: ends a node with SIGTERM, and after 5 s with SIGKILL.
stop_node() {
    local pid
    node_lives "$1" || return 0
    pid=$(<"$1/pid")
    kill "$pid" 2>/dev/null || true
    if ! wait_until 5 node_is_gone "$1"; then
        kill -9 "$pid" 2>/dev/null || true
        wait_until 5 node_is_gone "$1" || die "The process $pid of a node did not end within 10 s."
    fi
}
