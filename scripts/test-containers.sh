#!/usr/bin/env bash
# Runs the server tests of the library and of the tool against PostgreSQL 18, MariaDB 11.8 and MySQL 9 in containers, and
# the tests of poolers behind a PgBouncer that keeps prepared statements.
# Builds the images first where they are missing (scripts/images.sh: root, Docker and debootstrap). About fifteen minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

for server in postgres:18 mariadb:11.8 mysql:9 pgbouncer:1; do
    docker image inspect "diesel-sharded-$server" >/dev/null 2>&1 || scripts/images.sh "${server%%:*}"
done

export TEST_SERVERS=containers
tests=(cargo test -p diesel_sharded_tests --all-features)
POSTGRES_IMAGE=postgres:18 "${tests[@]}" --test databases postgres "$@"
# `doctor` takes the container's port, at which its server does not listen, for a pooler's.
POSTGRES_IMAGE=postgres:18 cargo test -p diesel_sharded_cli postgres -- \
    --skip a_database_where_all_is_well --skip doctor_sees_a_pooler
POSTGRES_IMAGE=postgres:18 "${tests[@]}" --test clusters behind_a_newer -- --ignored
for image in mariadb:11.8 mysql:9; do
    MYSQL_IMAGE=$image "${tests[@]}" --test databases mysql "$@"
    MYSQL_IMAGE=$image cargo test -p diesel_sharded_cli mysql "$@"
done
MYSQL_IMAGE=mysql:9 "${tests[@]}" --test interrupted mysql
