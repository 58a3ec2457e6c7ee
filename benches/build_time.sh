#!/usr/bin/env bash
# What counting costs to compile: the user time that cargo takes to build a crate of 10 tables with 40 fields, which counts 0, 1, 10 and 40
# of them by key, with `diesel_sharded::update` and with `diesel::update`.
#
#     benches/build_time.sh          rebuilds, in release and in dev
#     benches/build_time.sh --cold   what the crate adds to a cold build of Diesel with `postgres`
#
# Each number is the median of three.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
work=${BUILD_TIME_DIR:-$here/target/build_time}
export CARGO_INCREMENTAL=0

# A crate of 10 tables with 40 fields that counts the first $2 of them with $1.
generate() {
    local library=$1 sites=$2 dir=$work/$1-$2 table field
    mkdir -p "$dir/src"
    {
        printf '[package]\nname = "%s-%s"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n' "$library" "$sites"
        echo 'diesel = { version = "2.3", default-features = false, features = ["postgres", "32-column-tables"] }'
        [ "$library" = diesel ] || echo "diesel_sharded = { path = \"$here\", features = [\"postgres\"] }"
    } >"$dir/Cargo.toml"
    cp "$here/Cargo.lock" "$dir/Cargo.lock"
    {
        echo 'use diesel::prelude::*;'
        for table in {0..9}; do
            echo "diesel::table! { t$table (id) { id -> BigInt, a -> BigInt, b -> BigInt, c -> BigInt, d -> BigInt, } }"
            [ "$library" = diesel ] || cat <<MODEL
#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = t$table)]
pub struct T$table { pub id: i64, #[sharded] pub a: i64, #[sharded] pub b: i64, #[sharded] pub c: i64, #[sharded] pub d: i64 }
MODEL
        done
        echo 'fn main() -> QueryResult<()> {'
        echo '    let conn = &mut PgConnection::establish("").expect("a connection");'
        for ((site = 0; site < sites; site++)); do
            table=t$((site % 10)) field=$(cut -c $((site / 10 + 1)) <<<abcd)
            echo "    $library::update($table::table.find(7)).set($table::$field.eq($table::$field + 1)).execute(conn)?;"
        done
        printf '    conn.begin_test_transaction()\n}\n'
    } >"$dir/src/main.rs"
}

# The median of the user seconds that `$@` takes, three times, each after `$before`.
median() {
    local i TIMEFORMAT=%U
    for i in 1 2 3; do
        $before
        { time "$@" >/dev/null 2>&1; } 2>&1
    done | sort -n | sed -n 2p
}

build() {
    CARGO_TARGET_DIR=$work/target cargo build -q --manifest-path "$work/$1/Cargo.toml" $2
}

touched() { touch "$work/$crate/src/main.rs"; }
cleaned() { rm -rf "$work/target"; }

cell() {
    crate=$1-$2
    [ "$before" = cleaned ] || build "$crate" "$3"
    median build "$crate" "$3"
}

row() {
    local plain sharded
    for library in diesel diesel_sharded; do generate $library "$1"; done
    plain=$(cell diesel "$1" "$2")
    sharded=$(cell diesel_sharded "$1" "$2")
    awk -v s="$1" -v p="${2:-dev}" -v a="$plain" -v b="$sharded" \
        'BEGIN { sub("--", "", p); printf "| %s | %s | %.1f s | %.1f s | %.1f s | %.1f |\n", p, s, a, b, b - a, b / a }'
}

echo '| profile | sites | diesel | diesel_sharded | difference | ratio |'
echo '|---|---|---|---|---|---|'
if [ "${1:-}" = --cold ]; then
    before=cleaned sites=0
else
    before=touched sites='0 1 10 40'
fi
for profile in --release ''; do
    for n in $sites; do row "$n" "$profile"; done
done
