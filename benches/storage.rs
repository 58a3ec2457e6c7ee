//! The storage of a million shards, one of each row, and the time of folds over them.
//!
//!     cargo bench -p diesel_sharded_benches --bench storage
//!
//! The shards are inserted in the order of their keys, as a roll-up would, and in another one, as counts do. A pass of a fold is measured
//! after a tenth of the rows was counted on, after a hundredth was, and after nothing was. Commits do not wait for the disk.

use std::time::Instant;

use diesel::dsl::{select, sql};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_sharded::{ShardsTable, fold};
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_benches::names::POSTGRESQL;
use diesel_sharded_benches::videos;
use diesel_sharded_tests::TestConnection;
use diesel_sharded_tests::fixture::Run;

const ROWS: i64 = 1_000_000;

/// Multiplies the numbers from 1 to [`ROWS`] to another order of them. It has no factor in common with their number, and as many bits
/// as a `BIGINT`.
const STRIDE: i64 = 10_000_618_033;

/// How a database tells the size of a table in bytes, its indexes included, and what brings it up to date.
struct Size {
    update: &'static str,
    query: fn(&str) -> String,
}

const ON_POSTGRESQL: Size = Size {
    update: "VACUUM ANALYZE",
    query: |table| format!("pg_total_relation_size('{table}')"),
};
const ON_MARIADB: Size = Size {
    update: "ANALYZE TABLE videos, videos_shards",
    query: |table| {
        format!(
            "CAST((SELECT data_length + index_length FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = '{table}') AS SIGNED)"
        )
    },
};
const ON_SQLITE: Size = Size {
    update: "ANALYZE",
    query: |table| format!("(SELECT SUM(pgsize) FROM dbstat WHERE name = '{table}')"),
};

macro_rules! measure {
    ($conn:ty, $size:expr) => {{
        let (database, size, name) = (<$conn>::database(), $size, <$conn>::NAME);
        let conn = &mut <$conn>::connect(&database);
        conn.run("CREATE TABLE videos (id BIGINT NOT NULL PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0)");
        let numbers = <$conn>::numbers(ROWS);
        conn.run(&format!("INSERT INTO videos (id) SELECT n FROM ({numbers}) AS numbers"));
        ShardsTable::of(videos::table).create(conn).expect("a table of shards");
        for (order, key) in [("ordered", "n".to_owned()), ("scattered", format!("n * {STRIDE} % {ROWS} + 1"))] {
            conn.run("DELETE FROM videos_shards");
            if name == POSTGRESQL {
                conn.run("VACUUM FULL videos_shards");
            }
            conn.run(&format!("INSERT INTO videos_shards (id, shard, views) SELECT {key}, 0, 0 FROM ({numbers}) AS numbers"));
            conn.run(size.update);
            let bytes = sql::<BigInt>(&(size.query)("videos_shards"));
            let bytes: i64 = select(bytes).get_result(conn).expect("a size");
            println!("| {name} | bytes of a shard, {order} keys | {:.0} |", bytes as f64 / ROWS as f64);
        }
        for (part, label) in [(10, "a tenth"), (100, "a hundredth"), (0, "none")] {
            if part > 0 {
                conn.run(&format!("UPDATE videos_shards SET views = 1 WHERE id % {part} = 0"));
            }
            conn.run(size.update);
            let begin = Instant::now();
            let folded = fold(videos::table).run(conn).expect("a fold");
            let time = begin.elapsed().as_secs_f64();
            let rate = folded.parents as f64 / time;
            println!(
                "| {name} | a pass after counts on {label}: {} rows folded | {time:.2} s, {rate:.0} rows a second |",
                folded.parents
            );
        }
    }};
}

fn main() {
    println!("| database | {ROWS} rows with a shard each | |\n|---|---|---|");
    measure!(PgConnection, ON_POSTGRESQL);
    measure!(MysqlConnection, ON_MARIADB);
    measure!(SqliteConnection, ON_SQLITE);
}
