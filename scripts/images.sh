#!/usr/bin/env bash
# Builds the images that the tests run where a server is not installed: PostgreSQL 18, MariaDB 11.8, MySQL 9 and a PgBouncer that
# keeps prepared statements.
# No registry is asked: each image is a Debian sid made by debootstrap, with the server's own package installed.
#
#   scripts/images.sh [postgres|mariadb|mysql|pgbouncer ...]      (default: all; needs root, docker and debootstrap)
set -euo pipefail

suite=sid
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d "${TMPDIR:-/tmp}/diesel-sharded-images.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

command -v debootstrap >/dev/null || { echo "install debootstrap first: apt-get install debootstrap" >&2; exit 1; }
docker info >/dev/null || { echo "Docker's engine is not running" >&2; exit 1; }

in_root() { # in_root FOLDER COMMAND...: with a /proc of its own, which the packages' scripts ask for
    local root=$1
    shift
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
        unshare --fork --pid --mount-proc="$root/proc" chroot "$root" "$@"
}

base() {
    [ -d "$work/base" ] && return
    debootstrap --variant=minbase "$suite" "$work/base" "$mirror"
    printf '#!/bin/sh\nexit 101\n' >"$work/base/usr/sbin/policy-rc.d"
    chmod +x "$work/base/usr/sbin/policy-rc.d"
}

# image TAG PORT PACKAGES, with the start script on standard input
image() {
    local tag=$1 port=$2 packages=$3 root=$work/root
    base
    cp -a "$work/base" "$root"
    # shellcheck disable=SC2086 # several packages
    in_root "$root" apt-get install -y --no-install-recommends $packages
    in_root "$root" apt-get clean
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/lib/mysql "$root"/var/lib/postgresql/*/main
    cat >"$root/start"
    chmod +x "$root/start"
    tar --numeric-owner -C "$root" -c . |
        docker import --change 'ENTRYPOINT ["/start"]' --change "EXPOSE $port" - "$tag"
    rm -rf "$root"
}

postgres() {
    image diesel-sharded-postgres:18 5432 "postgresql-18 locales" <<'START'
#!/bin/sh
set -e
bin=/usr/lib/postgresql/18/bin
mkdir -p /data /run/postgresql /locales
chown postgres /data /run/postgresql
localedef -i de_DE -f UTF-8 /locales/de_DE.UTF-8 # a test has the server speak German
export LOCPATH=/locales
# The server's own messages go to standard error, where the test waits for its "ready to accept connections".
exec setpriv --reuid=postgres --regid=postgres --clear-groups sh -c "
    $bin/initdb -D /data -U postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 >/dev/null
    echo 'host all all all trust' >>/data/pg_hba.conf
    exec $bin/postgres -D /data -c listen_addresses='*' -c max_connections=300 -c shared_preload_libraries=pg_stat_statements"
START
}

mariadb() {
    image diesel-sharded-mariadb:11.8 3306 mariadb-server <<'START'
#!/bin/sh
set -e
mkdir -p /data /run/mysqld
chown mysql /data /run/mysqld
mariadb-install-db --user=mysql --datadir=/data --auth-root-authentication-method=normal --skip-test-db >/dev/null
cat >/init.sql <<'SQL'
CREATE DATABASE test;
CREATE USER test@'%';
GRANT ALL ON *.* TO test@'%' WITH GRANT OPTION;
SQL
exec mariadbd --no-defaults --user=mysql --datadir=/data --bind-address=0.0.0.0 --max-connections=300 \
    --skip-name-resolve --socket=/run/mysqld/mysqld.sock --init-file=/init.sql
START
}

mysql() {
    image diesel-sharded-mysql:9 3306 mysql-server <<'START'
#!/bin/sh
set -e
mkdir -p /data /run/mysqld
chown mysql /data /run/mysqld
mysqld --no-defaults --user=mysql --datadir=/data --initialize-insecure
cat >/init.sql <<'SQL'
CREATE DATABASE test;
CREATE USER test@'%';
GRANT ALL ON *.* TO test@'%' WITH GRANT OPTION;
SQL
chown mysql /init.sql
exec mysqld --no-defaults --user=mysql --datadir=/data --bind-address=0.0.0.0 --max-connections=300 \
    --skip-name-resolve --mysqlx=OFF --socket=/run/mysqld/mysqld.sock --init-file=/init.sql
START
}

# Listens on a port of the host's network, in front of a server on another one.
pgbouncer() {
    image diesel-sharded-pgbouncer:1 6432 pgbouncer <<'START'
#!/bin/sh
set -e
cat >/pgbouncer.ini <<INI
[databases]
* = host=127.0.0.1 port=$SERVER_PORT user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $LISTEN_PORT
unix_socket_dir =
auth_type = any
pool_mode = $POOL_MODE
default_pool_size = $SERVER_CONNECTIONS
max_client_conn = 300
server_fast_close = 1
max_prepared_statements = 200
ignore_startup_parameters = extra_float_digits
INI
exec setpriv --reuid=nobody --regid=nogroup --clear-groups /usr/sbin/pgbouncer /pgbouncer.ini
START
}

for server in "${@:-postgres mariadb mysql pgbouncer}"; do
    for name in $server; do
        case $name in
        postgres | mariadb | mysql | pgbouncer) "$name" ;;
        *) echo "no such image: $name (postgres, mariadb, mysql or pgbouncer)" >&2; exit 2 ;;
        esac
    done
done
docker images --filter 'reference=diesel-sharded-*'
