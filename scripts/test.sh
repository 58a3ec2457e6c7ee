#!/usr/bin/env bash
# Tests the library on SQLite, PostgreSQL and MariaDB, code that must not compile, the tool, the examples and the repository itself.
# About 10 minutes on a new machine of two cores, of which 2 are downloads.
#
#   scripts/test.sh [ARGUMENTS OF cargo test]
#   scripts/test.sh --all [ARGUMENTS OF cargo test]
#
# --all adds every case by the asynchronous operations, poolers, settings, privileges and processes that fork, statements that are
# interrupted, Galera, failover, observability and Prometheus, the example site in Chromium, diesel_cli, interleavings of threads and a short
# run of chaos. About 25 minutes.
#
# On Debian it installs what is missing; where there is no apt-get it says what to install. That is the databases' servers and clients, and
# SQLite, and PgBouncer; with --all also HAProxy, Pgpool-II, Galera, Redis, Prometheus, Python's clients, Chromium and diesel_cli. Ubuntu has no package
# `chromium`, but a snap: install a Chromium and its chromedriver first. One test cuts a cluster's network in namespaces of its own, for
# which one has to be root.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

all=
if [ "${1-}" = --all ]; then
    all=yes
    shift
fi

# Each program or library, and the package that brings it.
missing=()
need() { # need PACKAGE COMMAND...: the package, unless the command succeeds
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

need build-essential eval 'command -v cc && test -e /usr/include/stdio.h'
need pkg-config command -v pkg-config
need libpq-dev pkg-config --exists libpq
need libmariadb-dev eval 'pkg-config --exists libmariadb || pkg-config --exists mysqlclient'
need postgresql eval 'compgen -G "/usr/lib/postgresql/*/bin/postgres" || command -v postgres'
need mariadb-server eval 'command -v mariadbd || command -v mysqld || test -x /usr/sbin/mariadbd || test -x /usr/sbin/mysqld'
# The texts of migrations run through the programs that people run them by.
need postgresql-client command -v psql
need mariadb-client command -v mariadb
need sqlite3 command -v sqlite3
need pgbouncer eval 'command -v pgbouncer || test -x /usr/sbin/pgbouncer' # the tool knows a pooler
need bsdutils command -v script # terminals for the tool's tests
need locales test -e /usr/share/i18n/locales/de_DE
if [ "$all" ]; then
    need haproxy eval 'command -v haproxy || test -x /usr/sbin/haproxy'
    need pgpool2 eval 'command -v pgpool || test -x /usr/sbin/pgpool'
    need galera-4 eval 'compgen -G "/usr/lib*/galera*/libgalera_smm.so"'
    need redis-server command -v redis-server # the example of a cache in Redis
    need rsync command -v rsync
    need iproute2 eval 'command -v ip || test -x /usr/sbin/ip'
    need percona-toolkit command -v pt-online-schema-change
    need prometheus eval 'command -v prometheus && command -v promtool'
    need util-linux command -v flock
    # Other clients of the tables. A version manager's python3 has none of the system's packages.
    need python3-psycopg2 eval 'python3 -c "import psycopg2" || /usr/bin/python3 -c "import psycopg2"'
    need python3-pymysql eval 'python3 -c "import pymysql" || /usr/bin/python3 -c "import pymysql"'
    need chromium command -v chromium
    need chromium-driver command -v chromedriver
fi

if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "Install these, or what your system calls them (the names are Debian's), and run this again: ${missing[*]}" >&2
        exit 1
    fi
    echo "installing: ${missing[*]}"
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" || exit
fi
if ! command -v cargo >/dev/null; then
    echo "Install Rust first: https://rustup.rs" >&2
    exit 1
fi

# Of the tests' own programs those that need no feature.
plain=(--no-fail-fast -p diesel_sharded -p diesel_sharded_derive -p diesel_sharded_compile_fail -p diesel_sharded_cli -p diesel_sharded_tests)

# Whatever fails, the rest runs too.
failed=()
run() { "$@" || failed+=("$*"); }

# Runs cargo's tests of these targets, each argument beside the others, since they wait for servers and for single-threaded compilers. Each
# group's output comes when it ends.
together() {
    local group outputs groups=()
    outputs=$(mktemp -d)
    for group; do
        # shellcheck disable=SC2086 # words
        cargo test "${plain[@]}" $group >"$outputs/${#groups[@]}" 2>&1 &
        groups+=("$!")
    done
    for group; do
        wait "${groups[0]}" || failed+=("cargo test ${plain[*]} $group")
        cat "$outputs/$(($# - ${#groups[@]}))"
        groups=("${groups[@]:1}")
    done
    rm -r "$outputs"
}

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
# The build here is mostly the first one, which incremental compilation slows down.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
if [ "$all" ]; then
    # The program that runs the tool's migrations as a team would. A debug build in the tests' own target directory shares some crates
    # with them, and stays there.
    diesel_cli=2.3.14 # of the Diesel in Cargo.lock
    installed="$CARGO_TARGET_DIR/diesel_cli"
    if ! { "$installed/bin/diesel" --version || true; } 2>/dev/null | grep -qF " $diesel_cli"; then
        run cargo install diesel_cli --version "$diesel_cli" --locked --debug --root "$installed" \
            --no-default-features --features sqlite-bundled,postgres,mysql
    fi
    run cargo test --workspace --all-features --no-fail-fast "$@"
elif [ $# -gt 0 ]; then
    run cargo test "${plain[@]}" "$@"
else
    run cargo test "${plain[@]}" --no-run
    # The tests of diesel_cli, by their names, need that program.
    together "--test databases postgres" \
        "--test databases -- --skip postgres" \
        "--test tool -- --skip diesel_cli" \
        "--lib --bins --test asynchronous --test repository --test compile_fail" \
        "--doc"
fi

# Without arguments, what the build has made is run too: `cargo run` would make it anew with other features of what it depends on.
if [ $# = 0 ]; then
    for example in video_views named_counters counter_cache holds; do
        run "$CARGO_TARGET_DIR/debug/examples/$example"
    done
fi

echo "$((SECONDS / 60)) minutes"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
