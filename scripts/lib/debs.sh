# shellcheck shell=bash
# Debian packages: redlock-module (the library that a server loads) and redlock-cli (the program `redlock`).
#
# The packages are made from files that are already built. What they depend on is measured on these files. The same
# files and the same commit make the same packages, byte for byte.

: "${root:?lib/common.sh comes first}" "${target:?}"

# project_facts: sets what Cargo.toml and git say: `version`, `homepage`, `maintainer`, the Debian version
# `deb_version`, the name `label` of this release, and SOURCE_DATE_EPOCH. A version without a section in CHANGELOG.md is
# not released yet: its packages are snapshots, and older than the release for dpkg.
project_facts() {
    local facts
    facts=$(cd "$root" && cargo metadata --locked --offline --no-deps --format-version 1 </dev/null | python3 -c '
import json, sys
command = next(each for each in json.load(sys.stdin)["packages"] if each["name"] == "redlock-cli")
print(command["version"], command["repository"], *command["authors"], sep="\n")')
    { read -r version && read -r homepage && read -r maintainer; } <<<"$facts" ||
        die "Cargo.toml must name a version, a repository and an author in [workspace.package]."
    SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/Cargo.lock")
    export SOURCE_DATE_EPOCH
    label=$version
    if ! grep -qF "## [$version]" "$root/CHANGELOG.md"; then
        label="$version~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M)"
    fi
    deb_version="$label-1"
}

# deb_architecture triple: prints the name that Debian has for the processor.
deb_architecture() {
    case $1 in
    x86_64-*) echo amd64 ;;
    aarch64-*) echo arm64 ;;
    *) die "No Debian architecture is known for $1." ;;
    esac
}

# glibc_of file: prints the oldest glibc that has every symbol version of the file; nothing for a static program.
glibc_of() {
    readelf --wide --version-info "$1" | grep -o 'Name: GLIBC_[0-9.]*' | sed 's/.*_//' | sort -uV | tail -n 1
}

# shared_libraries file: prints the shared libraries that the file loads.
shared_libraries() {
    readelf --wide --dynamic "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
}

# deb_depends file: prints what the Depends field must have for the file.
deb_depends() {
    local library
    local -A packages=()
    while read -r library; do
        case $library in
        libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | ld-linux*)
            packages[libc6]=" (>= $(glibc_of "$1"))"
            ;;
        libgcc_s.so.1) packages[libgcc-s1]='' ;;
        *) die "No Debian package is known for $library, which $1 needs." ;;
        esac
    done < <(shared_libraries "$1")
    for library in libc6 libgcc-s1; do
        if [ -n "${packages[$library]+set}" ]; then
            printf '%s%s\n' "$library" "${packages[$library]}"
        fi
    done | paste -sd, | sed 's/,/, /g'
}

# new_tree folder: makes an empty tree for a package in the folder, and prints its path. If a later step fails, the tree
# disappears with the folder.
new_tree() {
    local tree
    mkdir -p "$1"
    tree=$(mktemp -d "$1/.tree.XXXXXX")
    chmod 755 "$tree"
    printf '%s\n' "$tree"
}

# package_module library triple folder: makes redlock-module in the folder.
package_module() {
    local tree
    tree=$(new_tree "$3")
    install -D -m 755 "$1" "$tree/usr/lib/redlock/libredlock.so"
    # A template: the package starts no node. Some machines leave /usr/share/doc out, and operators copy node.conf.
    install -D -m 644 -t "$tree/usr/lib/systemd/system" "$root/docker/systemd/redlock-node@.service"
    install -D -m 644 -t "$tree/usr/share/redlock-module" "$root/docker/systemd/node.conf"
    install -d "$tree/etc/redlock" "$tree/DEBIAN"
    cat >"$tree/etc/redlock/module.conf" <<'CONF'
# Add this line to redis.conf or valkey.conf, and restart the server:
#
#   include /etc/redlock/module.conf
#
# The server reads settings after it, such as `redlock.max-ttl 600000`, too.
loadmodule /usr/lib/redlock/libredlock.so
# An evicted lock would be free for another client while its holder still relies on it.
maxmemory-policy noeviction
CONF
    echo /etc/redlock/module.conf >"$tree/DEBIAN/conffiles"
    documents "$tree" redlock-module "$2" module/COMMANDS.md module/OPERATIONS.md
    control "$tree" redlock-module "$2" "$1" "database" <<'CONTROL'
Recommends: redis-server (>= 5:7.0) | valkey-server
Suggests: redlock-cli
Enhances: redis-server, valkey-server
Description: distributed locks with fences, module for Redis and Valkey
 A server with this module grants locks with native commands. Every grant has
 a fence: a number that only increases, so that a storage can reject a holder
 whose time has run out. Clients take a lock on a majority of independent
 servers.
 .
 The file /etc/redlock/module.conf loads the module. Include it in the
 configuration of the server, or run servers that are only for locks with the
 systemd unit redlock-node@.service.
CONTROL
    finish_deb "$tree" redlock-module "$2" "$3"
}

# package_command program triple folder runnable: makes redlock-cli in the folder. The fourth argument is the same
# program for this machine: it prints the manual pages and the completions.
package_command() {
    local tree
    tree=$(new_tree "$3")
    install -D -m 755 "$1" "$tree/usr/bin/redlock"
    install -d "$tree/DEBIAN" "$tree/usr/share/bash-completion/completions" "$tree/usr/share/zsh/vendor-completions" \
        "$tree/usr/share/fish/vendor_completions.d" "$tree/usr/share/man/man1" "$tree/usr/share/lintian/overrides"
    "$4" man --out "$tree/usr/share/man/man1" >/dev/null
    gzip -9n "$tree"/usr/share/man/man1/*.1
    "$4" completions bash >"$tree/usr/share/bash-completion/completions/redlock"
    "$4" completions zsh >"$tree/usr/share/zsh/vendor-completions/_redlock"
    "$4" completions fish >"$tree/usr/share/fish/vendor_completions.d/redlock.fish"
    cat >"$tree/usr/share/lintian/overrides/redlock-cli" <<'OVERRIDES'
# A static program that is loaded at any address, not a library.
redlock-cli: shared-library-lacks-prerequisites [usr/bin/redlock]
OVERRIDES
    documents "$tree" redlock-cli "$2" client/CLI.md
    control "$tree" redlock-cli "$2" "$1" "utils" <<'CONTROL'
Recommends: ca-certificates
Suggests: redlock-module
Description: distributed locks on a majority of Redis or Valkey servers
 The program redlock runs a command under a lock, takes and releases locks in
 scripts, and shows and operates the nodes: servers that load the Redlock
 module.
CONTROL
    finish_deb "$tree" redlock-cli "$2" "$3"
}

# documents tree package triple page...: adds the copyright, the changelogs, the licences of what is linked, and pages.
documents() {
    local tree=$1 package=$2 triple=$3 page
    local folder="$tree/usr/share/doc/$package"
    shift 3
    install -d "$folder"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
        printf 'Upstream-Name: redlock\nSource: %s\n\n' "$homepage"
        printf 'Files: *\nCopyright: %s\nLicense: BSD-3-Clause\n' "$(sed -n 's/^Copyright (c) //p' "$root/LICENSE")"
        printf 'Comment: The package has a program that is linked with libraries.\n'
        printf ' THIRD-PARTY.gz beside this file has their licences.\n'
        if [ "$package" = redlock-cli ] && [ "${static_libc:-}" ]; then
            # The licence of glibc lets everybody link the program with another version of it.
            printf ' The GNU C Library %s (LGPL-2.1-or-later) is linked statically; the sources at\n' "$static_libc"
            printf ' %s build the program with any other version.\n' "$homepage"
        fi
        printf '\nLicense: BSD-3-Clause\n'
        sed -n '/^Redistribution/,$s/^/ /p' "$root/LICENSE" | sed 's/^ *$/ ./'
    } >"$folder/copyright"
    {
        printf '%s (%s) unstable; urgency=medium\n\n  * The changes are in changelog.gz.\n\n' "$package" "$deb_version"
        printf ' -- %s  %s\n' "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$folder/changelog.Debian.gz"
    gzip -9nc "$root/CHANGELOG.md" >"$folder/changelog.gz"
    inventory licences "$package" "$triple" | gzip -9n >"$folder/THIRD-PARTY.gz"
    for page in "$@"; do
        gzip -9nc "$root/$page" >"$folder/$(basename "$page").gz"
    done
}

# inventory what package triple: prints the bill of materials or the licences of a package.
inventory() {
    local -a extra=()
    if [ "$2" = redlock-cli ] && [ "${static_libc:-}" ]; then
        extra=(--extra "glibc=$static_libc=LGPL-2.1-or-later")
    fi
    (cd "$root" && python3 scripts/lib/inventory.py "${extra[@]}" "$@" </dev/null)
}

# control tree package triple file section: writes the control file; standard input has the other fields.
control() {
    local depends size
    depends=$(deb_depends "$4")
    # The sum of the sizes of the files, not of their blocks on this disk.
    size=$(find "$1" -path "$1/DEBIAN" -prune -o -type f -printf '%s\n' |
        awk '{ sum += $1 } END { print int(sum / 1024) + 1 }')
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\n' "$2" "$deb_version" "$(deb_architecture "$3")"
        printf 'Maintainer: %s\nInstalled-Size: %s\nSection: %s\nPriority: optional\n' "$maintainer" "$size" "$5"
        printf 'Homepage: %s\n' "$homepage"
        if [ -n "$depends" ]; then
            printf 'Depends: %s\n' "$depends"
        fi
        cat
    } >"$1/DEBIAN/control"
}

# finish_deb tree package triple folder: builds the package, and removes the tree.
finish_deb() {
    local tree=$1
    chmod -R u=rwX,go=rX "$tree"
    (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum |
        sed 's| \./| |' >DEBIAN/md5sums)
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$tree" "$4/$(deb_file "$2" "$3")" >/dev/null
    rm -rf "$tree"
}

# deb_file package triple: prints the name of the file of a package.
deb_file() {
    printf '%s_%s_%s.deb\n' "$1" "$deb_version" "$(deb_architecture "$2")"
}

# package_twice folder triple library program runnable: makes both packages twice, and fails if two of them differ.
package_twice() {
    local folder=$1 triple=$2 again into name
    again=$(mktemp -d "$folder/.again.XXXXXX")
    for into in "$folder" "$again"; do
        package_module "$3" "$triple" "$into"
        package_command "$4" "$triple" "$into" "$5"
    done
    for name in redlock-module redlock-cli; do
        name=$(deb_file "$name" "$triple")
        cmp "$folder/$name" "$again/$name" || die "The package $name is not the same when it is made again."
    done
    rm -rf "$again"
}

# package_crates folder: makes the .crate files of the published crates in the folder.
package_crates() {
    local crate
    (cd "$root" && cargo package --quiet --locked --no-verify --allow-dirty \
        --package redlock-contract --package redlock-core --package redlock-proto --package redlock-client \
        --package redlock-cli </dev/null)
    for crate in contract core proto client cli; do
        cp "$target/package/redlock-$crate-$version.crate" "$1/"
    done
}
