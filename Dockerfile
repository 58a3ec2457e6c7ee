# Two images: the tool (`--target tool`) and the example site (`--target site`). See docs/operations.md.
# Others than Docker Hub's bases: --build-arg RUST=… --build-arg DEBIAN=…
ARG RUST=rust:1.95-bookworm
ARG DEBIAN=debian:bookworm-slim

FROM ${RUST} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential pkg-config libpq-dev libmariadb-dev libsqlite3-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# `dev` compiles faster, and makes programs that are slower.
ARG PROFILE=release
ENV CARGO_TARGET_DIR=/target
RUN cargo install --locked --profile "$PROFILE" --path cli --root /built
RUN cargo install --locked --profile "$PROFILE" --path examples/web --features postgres,mysql --root /built

FROM ${DEBIAN} AS base
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libpq5 libmariadb3 libsqlite3-0 \
    && rm -rf /var/lib/apt/lists/*

FROM base AS tool
COPY --from=build /built/bin/diesel-sharded /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["diesel-sharded"]

# The page /admin has no login: publish the port on an address that only you reach, `--publish 127.0.0.1:3000:3000`.
FROM base AS site
COPY --from=build /built/bin/diesel_sharded_web /usr/local/bin/
RUN install -d -o 65532 -g 65532 /data
USER 65532:65532
ENV ADDR=0.0.0.0 PORT=3000 DATABASE_URL=/data/site.db
VOLUME /data
EXPOSE 3000
# The stop signal commits what is still in memory.
STOPSIGNAL SIGTERM
ENTRYPOINT ["diesel_sharded_web"]
