# shellcheck shell=bash
# check_release runs in a subshell with variables of its own; every function that uses them runs in it too.
# shellcheck disable=SC2030,SC2031
# Checks the files of a release as a user would use them, in a clean Debian 12: three nodes, a lock from the shell, and a
# lock from a new Cargo project, which this machine compiles.
#
# The root folder of Debian 12 is made once, kept under target/chroot/, and unpacked for every check.

: "${root:?lib/common.sh comes first}" "${target:?}" "${green=}" "${plain=}"

# check_debs: makes the packages from files that the gate has built, and checks them. The gate tests the packaging
# here; scripts/release does the same with the files that it releases.
check_debs() (
    local obstacle
    : "${module:?build_module comes first}"
    if obstacle=$(cannot_check); then
        remind "Debian packages: skipped. $obstacle"
        exit 0
    fi
    need packages
    project_facts
    work=$(mktemp -d "$target/packages.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # Debug information would be most of the package.
    strip -o "$work/redlock" "$target/debug/redlock"
    package_twice "$work" "$(host_triple)" "$module" "$work/redlock" "$work/redlock"
    package_crates "$work"
    check_release "$work" "$(host_triple)"
)

# cannot_check: prints why this machine cannot check packages; fails if it can.
cannot_check() {
    if ! has apt-get || ! has dpkg-deb; then
        echo "This machine has no apt-get and dpkg-deb."
    elif [ "$(id -u)" -ne 0 ]; then
        echo "Only root can install packages in a folder of their own."
    elif ! unshare --mount chroot / true 2>/dev/null; then
        echo "Root must not call chroot or have its own mounts here, as in an unprivileged container."
    else
        return 1
    fi
}

host_triple() {
    rustc -vV | sed -n 's/^host: //p'
}

# debian_root: prints the archive of a Debian 12 with redis-server, and makes it if it is missing.
debian_root() {
    local archive="$target/chroot/bookworm.tar"
    if [ ! -f "$archive" ]; then
        mkdir -p "$target/chroot"
        # The archive appears only when it is complete.
        mmdebstrap --quiet --variant=minbase --include=redis-server --format=tar bookworm "$archive.part" \
            ${REDLOCK_DEBIAN_MIRROR:+"$REDLOCK_DEBIAN_MIRROR"} >&2 || {
            rm -f "$archive.part"
            return 1
        }
        mv "$archive.part" "$archive"
    fi
    printf '%s\n' "$archive"
}

# check_release folder triple: installs the packages of the folder in a clean Debian 12, starts three nodes, takes a
# lock from the shell and from a new Cargo project, and removes the packages.
check_release() (
    local archive needed package
    archive=$(debian_root) || {
        remind "Debian packages: built, but not installed. mmdebstrap cannot make a Debian 12; see its message there."
        exit 0
    }
    clean=$(mktemp -d "$target/chroot/root.XXXXXX")
    running=()
    trap leave_root EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    tar --extract --numeric-owner --directory "$clean" --file "$archive"
    clean_glibc=$(inside getconf GNU_LIBC_VERSION | cut -d' ' -f2)
    needed=$(for package in redlock-module redlock-cli; do
        dpkg-deb --field "$1/$(deb_file "$package" "$2")" Depends
    done | sed -n 's/.*libc6 (>= \([0-9.]*\)).*/\1/p' | sort -V | tail -n 1)
    if needs_newer_glibc "$needed"; then
        remind "Debian packages: built, but not installed. They are linked with this machine's glibc and need $needed;" \
            "Debian 12 has $clean_glibc. scripts/release links with an older one."
        exit 0
    fi

    headline "install the packages in Debian 12"
    files_of "$clean" >"$clean.before"
    cp "$1/$(deb_file redlock-module "$2")" "$1/$(deb_file redlock-cli "$2")" "$clean/tmp/"
    inside apt-get install --yes --quiet --no-install-recommends "/tmp/$(deb_file redlock-module "$2")" \
        "/tmp/$(deb_file redlock-cli "$2")" >"$clean.log" 2>&1 ||
        die "apt-get cannot install:" "$(tail -n 15 "$clean.log")"
    # shellcheck disable=SC2016 # for dpkg-query
    inside dpkg-query --show --showformat '${Package} ${Version}: ${Depends}\n' redlock-module redlock-cli
    check_documents
    [ -f "$clean/usr/lib/systemd/system/redlock-node@.service" ] || die "There is no systemd unit."

    headline "three nodes, and a lock from the shell"
    start_packaged_nodes
    local status fence
    inside env "REDLOCK_NODES=$nodes" redlock status
    status=$(inside env "REDLOCK_NODES=$nodes" redlock --json status)
    [[ $status == *'"granting":3'* ]] || die "Not all three nodes grant: $status"
    # shellcheck disable=SC2016 # for the shell in the folder
    fence=$(inside env "REDLOCK_NODES=$nodes" redlock run orders:42 -- sh -c 'echo "$REDLOCK_FENCE"')
    [ "$fence" = 1 ] || die "New nodes must grant their first lock with fence 1, not $fence."
    echo "redlock run: fence $fence"
    if [ -z "$(shared_libraries "$clean/usr/bin/redlock")" ]; then
        check_static_names
    fi

    headline "a lock from a new Cargo project"
    check_crates "$1" orders:42 2

    headline "remove the packages"
    stop_packaged_nodes
    inside apt-get purge --yes --quiet redlock-module redlock-cli >"$clean.log" 2>&1 ||
        die "apt-get cannot remove the packages:" "$(tail -n 15 "$clean.log")"
    rm -rf "$clean"/tmp/*.deb "$clean"/var/lib/redis/[123]
    files_of "$clean" >"$clean.after"
    diff "$clean.before" "$clean.after" || die "The packages leave these files behind."
    printf '%sThe packages work.%s\n' "$green" "$plain"
)

# needs_newer_glibc version: whether the glibc of the folder is older than this version; an empty version fits always.
needs_newer_glibc() {
    [ "$(printf '%s\n' "$1" "$clean_glibc" | sort -V | tail -n 1)" != "$clean_glibc" ]
}

# leave_root: stops the nodes, and removes the folder and its notes.
leave_root() {
    stop_packaged_nodes
    rm -rf "${clean:?}" "$clean".before "$clean".after "$clean".log
}

# inside command...: runs a command in the folder with Debian 12, as root and with no variable of this machine. Only the
# command and its children see the /proc that is mounted for them. The command gets the pid of the caller's child.
inside() {
    # shellcheck disable=SC2016 # for the shell in the namespace
    unshare --mount sh -c 'mount -t proc proc "$1/proc" && exec chroot "$@"' sh "$clean" \
        /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}

# files_of folder: prints every file with its mode, without the records of the package manager.
files_of() {
    (cd "$1" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./tmp -o -path ./run \
        -o -path ./var/log -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache \) -prune \
        -o ! -name ld.so.cache -printf '%p %M\n' | LC_ALL=C sort)
}

# check_documents: the manual pages and the completions that the packages install.
check_documents() {
    local command page
    inside redlock --version
    while read -r command; do
        page="$clean/usr/share/man/man1/redlock-$command.1.gz"
        [ -f "$page" ] || die "There is no manual page for redlock $command."
    done < <(inside redlock --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]\+\) .*/\1/p' | grep -vx help)
    zcat "$clean/usr/share/man/man1/redlock.1.gz" | grep '^\.TH redlock 1' >/dev/null ||
        die "redlock.1.gz is not a manual page."
    # shellcheck disable=SC2016 # for the shell in the folder
    inside bash -c '. /usr/share/bash-completion/completions/redlock && complete -p redlock >/dev/null' ||
        die "bash does not accept the completions."
    grep '^#compdef redlock' "$clean/usr/share/zsh/vendor-completions/_redlock" >/dev/null ||
        die "There are no completions for zsh."
    grep '^complete -c redlock ' "$clean/usr/share/fish/vendor_completions.d/redlock.fish" >/dev/null ||
        die "There are no completions for fish."
    find "$clean"/usr/share/man/man1/redlock*.gz | wc -l | sed 's/$/ manual pages, completions for bash, zsh and fish/'
}

# check_static_names: the static program resolves names without the plug-ins of the machine, which crash it if the glibc
# of the machine has another version. The plug-in of this check ends every program that loads it.
check_static_names() {
    local folder file code=0
    # The folder where this Debian keeps the plug-ins of its glibc.
    folder=$(dirname "$(find "$clean/usr/lib" -name libnss_compat.so.2 -print -quit)")
    cc -shared -fPIC -o "$folder/libnss_redlock.so.2" -x c - <<'C'
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { _exit(99); }
C
    for file in nsswitch.conf hosts; do
        [ ! -f "$clean/etc/$file" ] || cp --preserve "$clean/etc/$file" "$clean/tmp/"
    done
    echo 'hosts: files redlock' >"$clean/etc/nsswitch.conf"
    inside getent ahosts a-name.invalid || code=$?
    [ "$code" = 99 ] || die "The plug-in of the check is not loaded by getent (code $code)."
    echo '127.0.0.1 redlock-node' >>"$clean/etc/hosts"
    code=0
    inside redlock --nodes "${nodes//127.0.0.1/redlock-node}" status >/dev/null || code=$?
    [ "$code" = 0 ] || die "The static program does not resolve a name of /etc/hosts (code $code)."
    code=0
    inside redlock --nodes redis://a-name.invalid status >/dev/null 2>&1 || code=$?
    [ "$code" != 99 ] || die "The static program loads a plug-in of the machine to resolve names."
    for file in nsswitch.conf hosts; do
        rm "$clean/etc/$file"
        [ ! -f "$clean/tmp/$file" ] || mv "$clean/tmp/$file" "$clean/etc/"
    done
    rm "$folder/libnss_redlock.so.2"
    echo "static: /etc/hosts is read, no plug-in is loaded"
}

# start_packaged_nodes: starts three nodes in the folder, and sets `nodes` to their addresses.
start_packaged_nodes() {
    local number dir
    nodes=''
    for number in 1 2 3; do
        dir="$clean/var/lib/redis/$number"
        running+=("$dir")
        node_launcher=launch_packaged start_node "$dir"
        nodes+="${nodes:+,}redis://127.0.0.1:$(<"$dir/port")"
    done
}

# launch_packaged directory port: starts a server in the folder, as the user of Debian's package, with a file of the
# package that loads the module: the third node with the configuration for systemd, the others with the short one.
launch_packaged() {
    local dir=$1 inner=${1#"$clean"} settings=/etc/redlock/module.conf
    if [[ $inner == */3 ]]; then
        settings=/usr/share/redlock-module/node.conf
    fi
    printf '%s\n' "$2" >"$dir/port"
    printf '%s\n' "include $settings" "port $2" "bind 127.0.0.1" "dir $inner" "logfile $inner/node.log" \
        'save ""' >"$dir/node.conf"
    : >"$dir/node.log"
    inside chown -R redis:redis "$inner"
    # The shell has the pid that the server will have.
    # shellcheck disable=SC2016 # for the shell in the folder
    inside setsid sh -c 'cd "$1" && echo "$$" >pid &&
        exec setpriv --reuid=redis --regid=redis --clear-groups redis-server node.conf' \
        sh "$inner" >>"$dir/node.log" 2>&1 &
    wait_until 10 node_lives "$dir" || die "A server of the package did not start:" "$(tail -n 15 "$dir/node.log")"
}

stop_packaged_nodes() {
    local dir
    for dir in "${running[@]}"; do
        stop_node "$dir"
    done
    running=()
}

# check_crates folder name fence: a new project that depends on the .crate files of the folder takes the lock, and must
# get the fence. The project has no other link to this checkout; it uses the versions of Cargo.lock, which are fetched.
# This machine compiles it; the program runs in the folder with Debian 12.
check_crates() {
    local project="$target/packages-project" crate got needed
    local -a run=(inside /tmp/new-project)
    : "${version:?project_facts comes first}"
    rm -rf "$project"
    mkdir -p "$project/src"
    for crate in "$1"/*.crate; do
        # --touch: Cargo compares times, and all crates have the same ones.
        tar --extract --touch --gzip --file "$crate" --directory "$project"
    done
    {
        printf '[package]\nname = "new-project"\nversion = "0.1.0"\nedition = "2024"\n\n[workspace]\n\n'
        printf '[dependencies]\nredlock-client = "%s"\n' "$version"
        printf 'tokio = { version = "1", features = ["macros", "rt-multi-thread"] }\n\n'
        printf '# What crates.io will have after the release.\n[patch.crates-io]\n'
        for crate in contract core proto client; do
            printf 'redlock-%s = { path = "redlock-%s-%s" }\n' "$crate" "$crate" "$version"
        done
    } >"$project/Cargo.toml"
    cat >"$project/src/main.rs" <<'RUST'
use redlock_client::{Error, LockManager};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let locks = LockManager::builder().nodes(arguments[2].split(',')).build()?;
    let guard = locks.acquire(&arguments[1], Duration::from_secs(10)).await?;
    println!("{}", guard.fence());
    guard.release().await;
    Ok(())
}
RUST
    cp "$root/Cargo.lock" "$project/"
    # Without debug information it is built in half the time. The compiled dependencies are for the next check.
    (cd "$project" && CARGO_TARGET_DIR="$target/packages-build" CARGO_PROFILE_DEV_DEBUG=0 \
        cargo build --quiet --offline </dev/null) || die "The project does not compile."
    cp "$target/packages-build/debug/new-project" "$clean/tmp/"
    needed=$(glibc_of "$clean/tmp/new-project")
    if needs_newer_glibc "$needed"; then
        remind "The new Cargo project ran on this machine, not in Debian 12, which has glibc $clean_glibc:" \
            "it needs $needed."
        run=("$target/packages-build/debug/new-project")
    fi
    got=$("${run[@]}" "$2" "$nodes" </dev/null)
    [ "$got" = "$3" ] || die "The project must get fence $3, not ${got:-none}."
    echo "${run[*]}: fence $got"
    rm -rf "$project" "$clean/tmp/new-project"
}
