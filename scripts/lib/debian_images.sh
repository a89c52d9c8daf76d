# shellcheck shell=bash
# Images to build upon, made of Debian's packages: for machines that have an engine and reach no registry.
#
# They stand in for the stock images, and say nothing about those themselves: the server is the Redis of Debian 12,
# and the compiler is the one of this machine.

# debian_images engine: makes the images and has RUST_IMAGE, SERVER_IMAGE and COMMAND_IMAGE name them. What is there
# already from an earlier run is taken as it is.
debian_images() {
    local engine=$1 base=localhost/redlock-debian12 folder sysroot
    need_cargo
    sysroot=$(rustc --print sysroot)
    folder=$(mktemp -d)
    temporary+=("$folder")
    if ! "$engine" image inspect "$base" >/dev/null 2>&1; then
        has mmdebstrap || install_packages mmdebstrap
        headline "Debian, out of its packages"
        # Whom this machine trusts, as a proxy that it stands behind, the build must trust too.
        mmdebstrap --quiet --variant=minbase --include=ca-certificates \
            --customize-hook='copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs' bookworm "$folder/debian.tar"
        "$engine" import "$folder/debian.tar" "$base" >/dev/null
    fi
    write_stand_ins "$base" "$folder"
    headline "a server and a compiler on it"
    "$engine" build --quiet --tag localhost/redlock-redis7 --file "$folder/server.Dockerfile" "$folder"
    "$engine" build --quiet --tag localhost/redlock-rust --file "$folder/rust.Dockerfile" "$sysroot"
    export RUST_IMAGE=localhost/redlock-rust SERVER_IMAGE=localhost/redlock-redis7 COMMAND_IMAGE="$base"
}

# write_stand_ins base folder: what the two images on top are built from.
write_stand_ins() {
    cat >"$2/docker-entrypoint.sh" <<'ENTRYPOINT'
#!/bin/sh
# What the entrypoints of the stock images do, in short. Theirs are servers without protected mode, too.
set -eu
case ${1:-} in
-* | *.conf) set -- redis-server "$@" --protected-mode no ;;
esac
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
    chown -R redis:redis .
    exec setpriv --reuid=redis --regid=redis --clear-groups "$@"
fi
exec "$@"
ENTRYPOINT
    chmod 755 "$2/docker-entrypoint.sh"
    cat >"$2/server.Dockerfile" <<SERVER
FROM $1
RUN apt-get update && apt-get install --yes --no-install-recommends redis-server \\
    && rm -rf /var/lib/apt/lists/* && mkdir /data
COPY docker-entrypoint.sh /usr/local/bin/
VOLUME /data
WORKDIR /data
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["redis-server"]
SERVER
    cat >"$2/rust.Dockerfile" <<RUST
FROM $1
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
ENV CARGO_HOME=/usr/local/cargo
COPY bin /usr/local/bin
COPY lib /usr/local/lib
RUST
}
