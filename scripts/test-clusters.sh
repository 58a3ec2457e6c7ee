#!/usr/bin/env bash
# Clusters under faults: PostgreSQL's failover in full; MySQL Group Replication in containers; MariaDB Galera
# with the faults that `cargo test` leaves out, and once more with MariaDB 11.8. Installs what scripts/test.sh installs, and builds the image of MySQL where it is
# missing (scripts/images.sh: root, Docker and debootstrap). Run as root, for the network namespaces of Galera's nodes.
#
#   scripts/test-clusters.sh
set -euo pipefail
cd "$(dirname "$0")/.."

docker image inspect diesel-sharded-mysql:9 >/dev/null 2>&1 || scripts/images.sh mysql

scripts/test.sh --all --test clusters failover
# One cluster at a time: its nodes take each other for lost where they cannot run.
scripts/test.sh --all --test clusters group_replication -- --ignored --nocapture --test-threads 1
scripts/test.sh --all --test clusters galera -- --include-ignored --nocapture --test-threads 1
scripts/test-galera-11.sh
cargo run --release -p diesel_sharded_chaos -- failover
