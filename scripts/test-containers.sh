#!/usr/bin/env bash
# Runs the server tests of the library and of the tool against PostgreSQL 18, MariaDB 11.8 and MySQL 9 in containers, through
# testcontainers, and the tests of poolers behind a PgBouncer that keeps prepared statements.
# Builds the images first where they are missing (scripts/images.sh: root, Docker and debootstrap). About fifteen minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

for server in postgres:18 mariadb:11.8 mysql:9 pgbouncer:1; do
    docker image inspect "diesel-sharded-$server" >/dev/null 2>&1 || scripts/images.sh "${server%%:*}"
done

export TEST_SERVERS=containers
POSTGRES_IMAGE=postgres:18 cargo test -p diesel_sharded_tests --test postgres "$@"
# `doctor` takes the container's port, at which its server does not listen, for a pooler's.
POSTGRES_IMAGE=postgres:18 cargo test -p diesel_sharded_cli --test postgres -- \
    --skip a_database_where_all_is_well --skip doctor_sees_a_pooler
POSTGRES_IMAGE=postgres:18 cargo test -p diesel_sharded_tests --test poolers behind_a_newer -- --ignored
MYSQL_IMAGE=mariadb:11.8 cargo test -p diesel_sharded_tests -p diesel_sharded_cli --test mysql --test multi "$@"
MYSQL_IMAGE=mysql:9 cargo test -p diesel_sharded_tests -p diesel_sharded_cli --test mysql --test multi "$@"
# Of these programs the tests on MySQL: interruptions, and the edges of counter caches.
MYSQL_IMAGE=mysql:9 cargo test -p diesel_sharded_tests --test interrupted --test databases mysql
MYSQL_IMAGE=mysql:9 cargo test -p diesel_sharded_tests --test async_mysql
