# shellcheck shell=bash
# Shared by all scripts: paths, output, waiting.
#
# Sourced, never run. A script finds this file by its own path, so that it works from any directory.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)

# rustup installs cargo in a directory that is not on the PATH of a non-login shell.
if ! command -v cargo >/dev/null && [ -x "${HOME:-}/.cargo/bin/cargo" ]; then
    PATH="$HOME/.cargo/bin:$PATH"
fi

target="$root/target"
if [ -n "${CARGO_TARGET_DIR:-}" ]; then
    mkdir -p "$CARGO_TARGET_DIR"
    target=$(cd "$CARGO_TARGET_DIR" && pwd -P)
    export CARGO_TARGET_DIR="$target"
fi

# These paths are relative to the caller's directory, and the scripts change theirs. realpath -s keeps symbolic
# links: Debian's redis-server is a link whose name decides what the program does.
for variable in REDLOCK_SERVER REDLOCK_MODULE REDLOCK_OLD_MODULE REDLOCK_COMMAND; do
    if [[ ${!variable:-} == */* ]]; then
        export "$variable=$(realpath -s "${!variable}")"
    fi
done
unset variable

# Colours only on a terminal: a pipe, a file or a CI log gets plain text.
# shellcheck disable=SC2034 # used by the scripts that source this
bold='' green='' red='' dim='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    # shellcheck disable=SC2034
    bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' dim=$'\e[2m' plain=$'\e[0m'
fi

# headline text: prints the title of a new part of the output.
headline() {
    printf '\n%s== %s%s\n' "$bold" "$1" "$plain"
}

# note text: prints a remark that is neither a result nor an error.
note() {
    printf '%s%s%s\n' "$dim" "$1" "$plain"
}

# remind text...: prints a remark that the gate prints again at its end, so that nobody misses it: a check that was
# skipped, or something to correct. Other scripts print it once.
remind() {
    note "$*"
    if [ -n "${REDLOCK_REMINDERS:-}" ]; then
        printf '%s\n' "$*" >>"$REDLOCK_REMINDERS"
    fi
}

# die text...: prints an error, one line for each argument, and ends the script.
die() {
    printf '%s%s%s\n' "$red" "$1" "$plain" >&2
    shift
    if [ $# -gt 0 ]; then
        printf '%s\n' "$@" >&2
    fi
    exit 1
}

# wait_until seconds command...: polls until the command succeeds; fails after the time.
# Nothing else in the scripts sleeps.
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            return 1
        fi
        sleep 0.05
    done
}
