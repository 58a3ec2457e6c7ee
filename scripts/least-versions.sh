#!/usr/bin/env bash
# Compiles the library with the least versions of its dependencies that Cargo.toml admits: an application may have these.
# Needs a nightly toolchain, for the resolution alone.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/least-versions.XXXXXX")
trap 'rm -rf "$work"' EXIT
git archive HEAD | tar -x -C "$work"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/least-versions
cd "$work"

# Published packages alone: tests and measurements may ask for more.
sed -i 's/^members = .*/members = ["derive"]/' Cargo.toml
cargo +nightly update -Z direct-minimal-versions
cargo check -p diesel_sharded --lib --features \
    sqlite,postgres_backend,mysql_backend,r2d2,numeric,uuid,cache,async,tracing,metrics
