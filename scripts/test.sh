#!/usr/bin/env bash
# Installs what the tests need and is missing (on Debian; where there is no apt-get it says what to install), then runs them all.
# Ubuntu has no package `chromium`, but a snap: install a Chromium and its chromedriver first. One test cuts a cluster's network in network namespaces of its own, for which one has to be root.
#
#   scripts/test.sh [ARGUMENTS OF cargo test]
set -euo pipefail
cd "$(dirname "$0")/.."

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
need pgbouncer eval 'command -v pgbouncer || test -x /usr/sbin/pgbouncer'
need pgpool2 eval 'command -v pgpool || test -x /usr/sbin/pgpool'
need haproxy eval 'command -v haproxy || test -x /usr/sbin/haproxy'
need mariadb-server eval 'command -v mariadbd || command -v mysqld || test -x /usr/sbin/mariadbd || test -x /usr/sbin/mysqld'
# The texts of migrations run through the programs that people run them by.
need postgresql-client command -v psql
need mariadb-client command -v mariadb
need sqlite3 command -v sqlite3
need bsdutils command -v script # terminals for the tool's tests
need galera-4 eval 'compgen -G "/usr/lib*/galera*/libgalera_smm.so"'
need rsync command -v rsync
need iproute2 eval 'command -v ip || test -x /usr/sbin/ip'
need redis-server command -v redis-server
need prometheus eval 'command -v prometheus && command -v promtool'
need systemd command -v systemd-analyze
need util-linux command -v flock
need chromium command -v chromium
need chromium-driver command -v chromedriver
need locales test -e /usr/share/i18n/locales/de_DE

if [ ${#missing[@]} -gt 0 ]; then
    if command -v apt-get >/dev/null; then
        echo "installing: ${missing[*]}"
        sudo=$([ "$(id -u)" = 0 ] || echo sudo)
        $sudo apt-get update -qq
        DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
    else
        echo "Install these, or what your system calls them (the names are Debian's), and run this again: ${missing[*]}" >&2
        exit 1
    fi
fi
if ! command -v cargo >/dev/null; then
    echo "Install Rust first: https://rustup.rs" >&2
    exit 1
fi

# The program that runs the tool's migrations as a team would. A debug build in the tests' own target directory shares some crates with
# them, and stays there.
diesel_cli=2.3.14 # of the Diesel in Cargo.lock
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
installed="$CARGO_TARGET_DIR/diesel_cli"
if ! { "$installed/bin/diesel" --version || true; } 2>/dev/null | grep -qF " $diesel_cli"; then
    cargo install diesel_cli --version "$diesel_cli" --locked --debug --root "$installed" \
        --no-default-features --features sqlite-bundled,postgres,mysql
fi

exec cargo test --workspace --all-features --no-fail-fast "$@"
