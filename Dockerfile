# The image: one static binary and what it needs, nothing else. `docker build .`
# With Python, for tools that are programs:                     `docker build --target python .`
# With Node.js, for MCP servers from npm:                       `docker build --target node .`
#
# Docker with BuildKit builds it, podman and buildah too (with `--format docker`: an OCI image has no health check).

# Bases, to be replaced where these cannot be pulled. The builder needs cargo, a C compiler, libc's static library
# and ca-certificates; it decides the architecture. A tag may move: to pin a base, give its digest, which
# `docker buildx imagetools inspect NAME` shows: --build-arg RUST=docker.io/library/rust@sha256:…
ARG RUST=docker.io/library/rust:1.95-slim-bookworm
ARG PYTHON=docker.io/library/python:3.13-slim-bookworm
ARG NODE=docker.io/library/node:24-bookworm-slim

# `--build-context build=FOLDER` puts a folder with an image/ that was made elsewhere in this stage's place.
FROM ${RUST} AS build
WORKDIR /build
# The dependencies and all crates below crates/ are a layer of their own: compiled with an empty program, again only when one of them changes.
# Without build.rs, which reads files of the program.
COPY dist/binary dist/binary
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY benches/bare benches/bare
RUN mkdir src && touch src/lib.rs && echo 'fn main() {}' >src/main.rs \
    && dist/binary --locked
COPY console/dist console/dist
COPY migrations migrations
COPY openapi openapi
COPY build.rs build.rs
COPY src src
# Cargo goes by file times, and these may be older than the empty program's.
RUN touch src/lib.rs src/main.rs \
    && mkdir -p /image/data \
    && cp "$(dist/binary --locked)" /image/toolcrib \
    && cp -L /etc/ssl/certs/ca-certificates.crt /image/ca-certificates.crt

# ---- with Python -------------------------------------------------------------------------------------------------------
FROM ${PYTHON} AS python
RUN echo 'toolcrib:x:65532:' >>/etc/group \
    && echo 'toolcrib:x:65532:65532:Toolcrib:/data:/usr/sbin/nologin' >>/etc/passwd
COPY --from=build /image/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /image/data /data
COPY --from=build /image/toolcrib /toolcrib
ENV TOOLCRIB_LEDGER=sqlite:///data/toolcrib.db SQLITE_TMPDIR=/data PYTHONDONTWRITEBYTECODE=1
VOLUME /data
WORKDIR /etc/toolcrib
USER 65532:65532
EXPOSE 7411
HEALTHCHECK --interval=5s --timeout=6s --start-period=10s CMD ["/toolcrib", "healthcheck"]
ENTRYPOINT ["/toolcrib"]
CMD ["serve"]
LABEL org.opencontainers.image.title="Toolcrib with Python" \
      org.opencontainers.image.description="Executes an agent's tool calls, also as programs written in Python" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"

# ---- with Node.js ------------------------------------------------------------------------------------------------------
FROM ${NODE} AS node
RUN echo 'toolcrib:x:65532:' >>/etc/group \
    && echo 'toolcrib:x:65532:65532:Toolcrib:/data:/usr/sbin/nologin' >>/etc/passwd
COPY --from=build /image/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /image/data /data
COPY --from=build /image/toolcrib /toolcrib
ENV TOOLCRIB_LEDGER=sqlite:///data/toolcrib.db SQLITE_TMPDIR=/data
VOLUME /data
WORKDIR /etc/toolcrib
USER 65532:65532
EXPOSE 7411
HEALTHCHECK --interval=5s --timeout=6s --start-period=10s CMD ["/toolcrib", "healthcheck"]
ENTRYPOINT ["/toolcrib"]
CMD ["serve"]
LABEL org.opencontainers.image.title="Toolcrib with Node.js" \
      org.opencontainers.image.description="Executes an agent's tool calls, also with MCP servers from npm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"

# ---- the default: small ------------------------------------------------------------------------------------------------
FROM scratch AS toolcrib
COPY docker/etc /etc
COPY --from=build /image/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# The one place that is written to. It belongs to the user, and so does a new volume that is mounted there.
COPY --from=build --chown=65532:65532 /image/data /data
COPY --from=build /image/toolcrib /toolcrib
# SQLite's temporary files would go to /tmp, which a read-only root does not have.
ENV TOOLCRIB_LEDGER=sqlite:///data/toolcrib.db SQLITE_TMPDIR=/data
VOLUME /data
# A toolcrib.yaml mounted here is found by itself; without one the demo tools are served.
WORKDIR /etc/toolcrib
USER 65532:65532
EXPOSE 7411
HEALTHCHECK --interval=5s --timeout=6s --start-period=10s CMD ["/toolcrib", "healthcheck"]
ENTRYPOINT ["/toolcrib"]
CMD ["serve"]
LABEL org.opencontainers.image.title="Toolcrib" \
      org.opencontainers.image.description="Executes an agent's tool calls: validated, limited, cached, retried and recorded" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
