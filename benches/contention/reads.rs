//! Reads of totals, compared with the plain column.

use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded::RowCounter;
use diesel_sharded::prelude::*;
use diesel_sharded_benches::names::{FOLDED, ONE_TOTAL, PAGE, PLAIN, TOTAL};
use diesel_sharded_benches::report::{Reading, tenths};
use diesel_sharded_benches::side_by_side;
use indicatif::ProgressBar;

use crate::arena::{Arena, Disk, Stage};
use crate::schema::random_16;

const SHARDS: i64 = 16;
/// The first key of a page.
const FIRST: i64 = 500;
const PAGE_SIZE: i64 = 50;

/// The time of one read in one form.
pub fn reading(read: impl Into<String>, form: &str, time: Duration) -> Reading {
    Reading {
        read: read.into(),
        form: form.to_owned(),
        us: tenths(time.as_secs_f64() * 1e6),
    }
}

/// The number of parents, and of rounds.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub parents: i64,
    pub rounds: usize,
}

/// A read, from a first key on.
type Read<Conn> = fn(&mut Conn, i64);

/// A connection type with its reads.
pub trait Reads: Arena {
    /// The pages: each with its name, how often a round reads it, and its reads of the plain column and of the total.
    const PAGES: [(&'static str, u32, [Read<Self>; 2]); 2];

    /// Reads the total of one row as a counter does.
    fn total(&mut self, id: i64);
}

macro_rules! reads {
    ($($connection:ty)+) => {$(
        impl Reads for $connection {
            const PAGES: [(&'static str, u32, [Read<Self>; 2]); 2] = {
                macro_rules! rows {
                    ($rows:expr, $column:expr) => {
                        |conn, first| {
                            let rows = $rows(first).select((random_16::id, $column));
                            let rows: Vec<(i64, i64)> = rows.load(conn).expect("rows");
                            assert!(!rows.is_empty());
                        }
                    };
                    ($rows:expr) => {
                        [rows!($rows, random_16::views), rows!($rows, random_16::views.total())]
                    };
                }
                [
                    (ONE_TOTAL, 100, rows!(|first| random_16::table.find(first))),
                    (PAGE, 20, rows!(|first: i64| {
                        let ids = random_16::id.between(first, first + PAGE_SIZE - 1);
                        random_16::table.filter(ids)
                    })),
                ]
            };

            fn total(&mut self, id: i64) {
                assert!(RowCounter::of(random_16::views, id).get(self).is_ok());
            }
        }
    )+};
}

reads!(PgConnection MysqlConnection SqliteConnection);

/// Measures every read in every form: with 16 shards of each parent, and of a table whose folds run. There most parents have no shards,
/// the others are being counted on, and one total is that of any parent, so that nine of ten are cold.
pub fn measure<Conn: Reads>(extent: Extent, bar: &ProgressBar) -> Vec<Reading> {
    let stage = Stage::<Conn>::new(Disk::Free);
    let mut conn = stage.connect();
    insert(&mut conn, 1, extent.parents, "TRUE", SHARDS);
    conn.analyze();
    let mut readings = compare(&stage, extent, bar, "", || FIRST);
    readings.extend(growth(&mut conn, extent));
    let stage = Stage::<Conn>::new(Disk::Free);
    let mut conn = stage.connect();
    insert(&mut conn, 1, extent.parents, "v.id % 10 = 3", SHARDS);
    conn.analyze();
    let any = || rand::random_range(1..=extent.parents - PAGE_SIZE);
    readings.extend(compare(&stage, extent, bar, FOLDED, any));
    readings
}

/// Measures the pages in both forms, from any key on that `first` returns.
fn compare<Conn: Reads>(
    stage: &Stage<Conn>,
    extent: Extent,
    bar: &ProgressBar,
    mix: &str,
    first: impl Fn() -> i64,
) -> Vec<Reading> {
    let mut readings = vec![];
    for (page, repeats, forms) in Conn::PAGES {
        let read = format!("{page}{mix}");
        bar.set_message(format!("reads, {}: {read}", Conn::NAME));
        let keys: Vec<i64> = (0..repeats).map(|_| first()).collect();
        let works = forms.map(|read| {
            let (keys, mut conn) = (&keys, stage.connect());
            move || keys.iter().for_each(|first| read(&mut conn, *first))
        });
        let times = side_by_side(extent.rounds, &mut Vec::from(works));
        let times = [PLAIN, TOTAL].into_iter().zip(times);
        readings.extend(times.map(|(form, time)| reading(&read, form, time / repeats)));
    }
    readings
}

/// Inserts `parents` rows in place of others, and this many shards of each that fits a condition on `v`; the keys begin at `first`.
fn insert<Conn: Arena>(conn: &mut Conn, first: i64, parents: i64, fits: &str, shards: i64) {
    let range = format!("BETWEEN {first} AND {}", first + parents - 1);
    conn.run(&format!("DELETE FROM random_16 WHERE id {range}"));
    conn.run(&format!(
        "INSERT INTO random_16 (id, views) SELECT n + {first} - 1, n % 1000 FROM ({}) AS numbers",
        Conn::numbers(parents)
    ));
    conn.run(&format!(
        "INSERT INTO random_16_shards (id, shard, views) SELECT v.id, s.n - 1, v.id % 7 \
         FROM random_16 AS v CROSS JOIN ({}) AS s WHERE v.id {range} AND {fits} ORDER BY v.id, s.n",
        Conn::numbers(shards)
    ));
}

/// Measures how the time of one total grows with the number of shards.
fn growth<Conn: Reads>(conn: &mut Conn, extent: Extent) -> Vec<Reading> {
    const SHARDS: [i64; 5] = [1, 4, 16, 64, 256];
    const REPEATS: u32 = 50;
    let rows = || (extent.parents + 1..).zip(SHARDS);
    for (id, shards) in rows() {
        insert(conn, id, 1, "TRUE", shards);
    }
    conn.analyze();
    let conn = &std::cell::RefCell::new(conn);
    let works =
        rows().map(|(id, _)| move || (0..REPEATS).for_each(|_| conn.borrow_mut().total(id)));
    let times = side_by_side(extent.rounds, &mut works.collect::<Vec<_>>());
    let times = SHARDS.iter().zip(times);
    let named = times.map(|(shards, time)| {
        reading(
            format!("growth: one row, {shards} shards"),
            TOTAL,
            time / REPEATS,
        )
    });
    named.collect()
}
