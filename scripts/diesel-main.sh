#!/usr/bin/env bash
# Compiles the library against Diesel's main branch: what will break with Diesel's next version. May fail; see
# docs/decisions/0017-other-counters.md.
#
#   scripts/diesel-main.sh [--mariadb] [--async FOLDER] FOLDER [COMMAND OF cargo]
#
# FOLDER is a clone of https://github.com/diesel-rs/diesel, and that of --async one of https://github.com/weiznich/diesel_async. The command is
# `check --lib` of the library with its features, by default. The cases:
#
#   scripts/diesel-main.sh FOLDER test -p diesel_sharded_tests --all-features --test databases -- postgres
#
# With --mariadb, through Diesel's backend `Mariadb`, which no release has, in place of `Mysql`. The cases:
#
#   scripts/diesel-main.sh --mariadb FOLDER test -p diesel_sharded_tests --all-features --test databases -- mysql:: --skip async_mysql
set -euo pipefail
cd "$(dirname "$0")/.."
mariadb= async=
while [[ ${1-} == --* ]]; do
    case $1 in
    --mariadb) mariadb=yes ;;
    --async) shift && async=$(cd "${1:?the folder of a clone of diesel_async}" && pwd) ;;
    *) echo "unknown: $1" >&2 && exit 2 ;;
    esac
    shift
done
diesel=$(cd "${1:?the folder of a clone of Diesel}" && pwd)
shift

work=$(mktemp -d "${TMPDIR:-/tmp}/diesel-main.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/library" "$work/diesel" "$work/diesel-async"
git archive HEAD | tar -x -C "$work/library"
git -C "$diesel" archive HEAD | tar -x -C "$work/diesel"

# The branch has the number of an older release until the next one is made, and a patch has to meet the requirement `~2.3.14`.
sed -i '0,/^version = .*/s//version = "2.3.999"/' "$work/diesel/diesel/Cargo.toml"
if [ "$mariadb" ]; then
    export RUSTFLAGS="${RUSTFLAGS-} --cfg diesel_mariadb"
    sed -i 's/^diesel = {.* features = \[/&"mariadb", /' "$work/library/Cargo.toml" "$work/library/tests/Cargo.toml"
    grep -rlE '\bMysqlConnection\b|mysql::Mysql\b' "$work/library/tests" |
        xargs sed -i 's/\bMysqlConnection\b/MariadbConnection/g; s/diesel::mysql::Mysql\b/diesel::mariadb::Mariadb/g'
    # The tests' URLs.
    sed -i '/const SCHEME/s/"mariadb"/"mysql"/' "$work/diesel/diesel/src/mariadb/backend.rs"
fi

patch=()
for crate in diesel diesel_derives diesel_migrations; do
    patch+=(--config "patch.crates-io.$crate.path='$work/diesel/$crate'")
done
patched=(diesel diesel_derives diesel_migrations)
if [ "$async" ]; then
    git -C "$async" archive HEAD | tar -x -C "$work/diesel-async"
    sed -i '0,/^version = .*/s//version = "0.9.999"/' "$work/diesel-async/Cargo.toml"
    patch+=(--config "patch.crates-io.diesel-async.path='$work/diesel-async'")
    patched+=(diesel-async@0.9)
fi

[ $# -gt 0 ] || set -- check -p diesel_sharded --lib --features \
    postgres_backend,mysql_backend,sqlite,r2d2,numeric,uuid,cache,async,tracing,metrics
cd "$work/library"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$OLDPWD/target}/diesel-main
# Cargo.lock pins Diesel's last release, and a patch that meets no requirement is left out with a warning alone.
cargo "${patch[@]}" update "${patched[@]}"
for crate in diesel ${async:+diesel-async}; do
    if ! cargo "${patch[@]}" tree -p diesel_sharded --features async --depth 1 --prefix none | grep --quiet "^$crate v.*$work"; then
        echo "the clone of $crate was not used: see the warnings above" >&2
        exit 1
    fi
done
cargo "${patch[@]}" "$@"
