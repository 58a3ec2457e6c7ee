//! The storage of a million shards, one of each row, and the time of folds over them.
//!
//!     cargo bench -p diesel_sharded_benches --bench storage
//!
//! The shards are inserted in the order of their keys, as a roll-up would, and in another one, as increments do. A pass of a fold is measured
//! after a tenth of the rows was counted on, after a hundredth was, and after nothing was. Commits do not wait for the disk.

use std::time::Instant;

use diesel::prelude::*;
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

macro_rules! measure {
    ($conn:ty) => {{
        let (database, name) = (<$conn>::database(), <$conn>::NAME);
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
            conn.analyze_table("videos_shards");
            let bytes = conn.size_of("videos_shards");
            println!("| {name} | bytes of a shard, {order} keys | {:.0} |", bytes as f64 / ROWS as f64);
        }
        for (part, label) in [(10, "a tenth"), (100, "a hundredth"), (0, "none")] {
            if part > 0 {
                conn.run(&format!("UPDATE videos_shards SET views = 1 WHERE id % {part} = 0"));
            }
            conn.analyze_table("videos");
            conn.analyze_table("videos_shards");
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
    measure!(PgConnection);
    measure!(MysqlConnection);
    measure!(SqliteConnection);
}
