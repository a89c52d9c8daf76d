# shellcheck shell=bash
# Base images made from Debian packages, for machines that have an engine and cannot reach an image registry.
#
# They replace the stock images, and a test with them does not cover the stock images: the server is the Redis of
# Debian 12, and the compiler is that of this machine.

# debian_images engine: builds the images and sets RUST_IMAGE, SERVER_IMAGE and COMMAND_IMAGE. Reuses the Debian image
# of an earlier run.
debian_images() {
    local engine=$1 base=localhost/redlock-debian12 folder sysroot
    need_cargo
    sysroot=$(rustc --print sysroot)
    folder=$(mktemp -d)
    temporary+=("$folder")
    if ! "$engine" image inspect "$base" >/dev/null 2>&1; then
        has mmdebstrap || install_packages mmdebstrap
        headline "a Debian image from packages"
        # The build must trust the same certificate authorities as this machine, for example that of its proxy.
        mmdebstrap --quiet --variant=minbase --include=ca-certificates \
            --customize-hook='copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs' bookworm "$folder/debian.tar" \
            ${REDLOCK_DEBIAN_MIRROR:+"$REDLOCK_DEBIAN_MIRROR"}
        "$engine" import "$folder/debian.tar" "$base" >/dev/null
    fi
    write_stand_ins "$base" "$folder"
    headline "images with a server and a compiler"
    "$engine" build --quiet --tag localhost/redlock-redis7 --file "$folder/server.Dockerfile" "$folder"
    "$engine" build --quiet --tag localhost/redlock-rust --file "$folder/rust.Dockerfile" "$sysroot"
    export RUST_IMAGE=localhost/redlock-rust SERVER_IMAGE=localhost/redlock-redis7 COMMAND_IMAGE="$base"
}

# write_stand_ins base folder: writes the Dockerfiles and the entrypoint of the two images on top of the base.
write_stand_ins() {
    cat >"$2/docker-entrypoint.sh" <<'ENTRYPOINT'
#!/bin/sh
# A short form of the stock images' entrypoint. They disable protected mode too.
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
