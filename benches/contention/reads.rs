//! Reads of totals, compared with the plain column and with the best SQL written by hand.

use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::{RowCounter, fold};
use diesel_sharded_benches::all_side_by_side;
use diesel_sharded_benches::names::FOLDED;
use indicatif::ProgressBar;

use crate::arena::{Arena, Disk, Stage};
use crate::by_hand::{ByHand, FIRST, PAGE_SIZE, Page, pages};
use crate::contender::{Contender, Counting, Outcome};
use crate::schema::{ROWS, random_16};

/// The forms of a read that targets compare.
pub use diesel_sharded_benches::names::{PLAIN, TOTAL};

const SHARDS: i64 = 16;

/// The time of one read in one form.
#[derive(Debug)]
pub struct Reading {
    pub database: &'static str,
    pub read: String,
    pub form: &'static str,
    pub time: Duration,
}

/// The number of parents, and of rounds.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub parents: i64,
    pub rounds: usize,
}

type Row = (i64, i64);
/// A form of a read, from a first key on.
type Form = (&'static str, Box<dyn FnMut(i64) -> Vec<Row>>);

/// A connection type with its reads.
pub trait Reads: Arena {
    /// The reads of the page's plain column and of its totals by this crate, each on a connection of its own.
    fn by_diesel(stage: &Stage<Self>, page: usize) -> [Form; 2];

    /// The reads of the page's totals by statements written by hand.
    fn by_hand(stage: &Stage<Self>, page: &Page) -> Vec<Form>;

    /// Reads the plain column of one row.
    fn plain(&mut self, id: i64) -> QueryResult<i64>;

    /// Reads the total of one row.
    fn total(&mut self, id: i64) -> QueryResult<i64>;

    /// Reads the totals of a page.
    fn totals(&mut self, first: i64, rows: i64) -> QueryResult<Vec<Row>>;

    /// Folds the whole table, and returns the number of parents.
    fn fold_all(&mut self) -> u64;
}

macro_rules! reads {
    ($connection:ty, lateral: $lateral:literal) => {
        impl Reads for $connection {
            fn by_diesel(stage: &Stage<Self>, page: usize) -> [Form; 2] {
                macro_rules! form {
                    ($name:expr, $column:expr) => {{
                        let mut conn = stage.connect();
                        let read: Box<dyn FnMut(i64) -> Vec<Row>> = match page {
                            0 => Box::new(move |first| {
                                let row = random_16::table.find(first);
                                row.select((random_16::id, $column))
                                    .load(&mut conn)
                                    .expect("a row")
                            }),
                            1 => Box::new(move |first| {
                                let ids = random_16::id.between(first, first + PAGE_SIZE - 1);
                                let rows = random_16::table.filter(ids);
                                rows.select((random_16::id, $column))
                                    .load(&mut conn)
                                    .expect("rows")
                            }),
                            2 => Box::new(move |first| {
                                let rows = random_16::table.filter(random_16::id.ge(first));
                                let rows = rows.order(random_16::id).limit(PAGE_SIZE);
                                rows.select((random_16::id, $column))
                                    .load(&mut conn)
                                    .expect("rows")
                            }),
                            _ => Box::new(move |_| {
                                let rows = random_16::table.order($column.desc()).limit(10);
                                rows.select((random_16::id, $column))
                                    .load(&mut conn)
                                    .expect("rows")
                            }),
                        };
                        ($name, read)
                    }};
                }
                [
                    form!(PLAIN, random_16::views),
                    form!(TOTAL, random_16::views.total()),
                ]
            }

            fn by_hand(stage: &Stage<Self>, page: &Page) -> Vec<Form> {
                let sum = |sum: &str| match Self::NAME {
                    "PostgreSQL" => format!("CAST({sum} AS bigint)"),
                    _ => sum.to_owned(),
                };
                let forms = page.forms(sum, $lateral).into_iter();
                let prepared = forms.map(|(name, sql, binds)| -> Form {
                    let mut conn = stage.connect();
                    (
                        name,
                        Box::new(move |first| {
                            let binds = binds.iter().map(|bind| bind - FIRST + first);
                            let statement = ByHand {
                                sql: sql.clone(),
                                binds: binds.collect(),
                            };
                            statement
                                .load(&mut conn)
                                .unwrap_or_else(|error| panic!("{sql}: {error}"))
                        }),
                    )
                });
                prepared.collect()
            }

            fn plain(&mut self, id: i64) -> QueryResult<i64> {
                random_16::table
                    .find(id)
                    .select(random_16::views)
                    .get_result(self)
            }

            fn total(&mut self, id: i64) -> QueryResult<i64> {
                let total = RowCounter::of(random_16::views, id).get(self)?;
                total.ok_or(diesel::result::Error::NotFound)
            }

            fn totals(&mut self, first: i64, rows: i64) -> QueryResult<Vec<Row>> {
                let ids = random_16::id.between(first, first + rows - 1);
                let page = random_16::table.filter(ids);
                page.select((random_16::id, random_16::views.total()))
                    .load(self)
            }

            fn fold_all(&mut self) -> u64 {
                fold(random_16::table).run(self).expect("a fold").parents
            }
        }
    };
}

reads!(PgConnection, lateral: true);
reads!(MysqlConnection, lateral: false);
reads!(SqliteConnection, lateral: false);

/// Measures every read in every form.
pub fn measure<Conn: Reads>(extent: Extent, bar: &ProgressBar) -> Vec<Reading> {
    let stage = Stage::<Conn>::new(Disk::Free);
    fill(&mut stage.connect(), extent.parents);
    let mut readings = compare(&stage, extent, bar, "", || FIRST, 4);
    readings.extend(growth(&mut stage.connect(), extent));
    bar.set_message(format!("reads, {}: fold", Conn::NAME));
    let start = Instant::now();
    let parents = stage.connect().fold_all();
    readings.push(Reading {
        database: Conn::NAME,
        read: "fold, one parent of 16 shards".into(),
        form: TOTAL,
        time: start.elapsed() / parents as u32,
    });
    readings.extend(folded::<Conn>(extent, bar));
    readings
}

/// Measures the totals of a table whose folds run: most parents have no shards, and the others are being counted on.
///
/// One total is that of any parent, so that nine of ten are cold.
fn folded<Conn: Reads>(extent: Extent, bar: &ProgressBar) -> Vec<Reading> {
    let stage = Stage::<Conn>::new(Disk::Free);
    let mut conn = stage.connect();
    insert_parents(&mut conn, 1, extent.parents);
    insert_shards(&mut conn, "v.id % 10 = 3", SHARDS);
    conn.analyze();
    let any = || rand::random_range(1..=extent.parents - PAGE_SIZE);
    compare(&stage, extent, bar, FOLDED, any, 3)
}

/// Measures the first `number` of the pages in all forms, from any key on that `first` returns.
fn compare<Conn: Reads>(
    stage: &Stage<Conn>,
    extent: Extent,
    bar: &ProgressBar,
    mix: &str,
    first: impl Fn() -> i64,
    number: usize,
) -> Vec<Reading> {
    let mut readings = vec![];
    for (number, page) in pages(extent.parents).iter().enumerate().take(number) {
        let read = format!("{}{mix}", page.name);
        bar.set_message(format!("reads, {}: {read}", Conn::NAME));
        let mut forms = Vec::from(Conn::by_diesel(stage, number));
        forms.extend(Conn::by_hand(stage, page));
        let keys: Vec<i64> = (0..page.repeats).map(|_| first()).collect();
        let totals: Vec<Vec<Row>> = forms
            .iter_mut()
            .map(|(_, read)| sorted(read(keys[0]), page))
            .collect();
        for ((name, _), rows) in forms.iter().zip(&totals).skip(2) {
            assert_eq!(rows, &totals[1], "{name} reads other totals: {read}");
        }
        let (names, reads): (Vec<_>, Vec<_>) = forms.into_iter().unzip();
        let mut works: Vec<_> = reads
            .into_iter()
            .map(|mut read| {
                let keys = &keys;
                move || keys.iter().for_each(|first| drop(read(*first)))
            })
            .collect();
        let times = all_side_by_side(extent.rounds, &mut works);
        readings.extend(names.iter().zip(times).map(|(form, time)| Reading {
            database: Conn::NAME,
            read: read.clone(),
            form,
            time: time / page.repeats as u32,
        }));
    }
    readings
}

/// Makes the rows comparable: rows with equal totals may come in any order.
fn sorted(mut rows: Vec<Row>, page: &Page) -> Vec<Row> {
    if page.end.is_empty() {
        rows.sort_unstable();
    } else {
        rows.iter_mut().for_each(|(id, _)| *id = 0);
    }
    rows
}

/// Creates the shards of each row of a new stage.
pub fn prepare<Conn: Arena>(stage: &Stage<Conn>) {
    fill(&mut stage.connect(), ROWS);
}

fn fill(conn: &mut impl Arena, parents: i64) {
    fill_with(conn, 1, parents, SHARDS);
    conn.analyze();
}

/// Inserts `parents` rows with `shards` shards each; their keys begin at `first`.
fn fill_with<Conn: Arena>(conn: &mut Conn, first: i64, parents: i64, shards: i64) {
    let range = insert_parents(conn, first, parents);
    insert_shards(conn, &format!("v.id {range}"), shards);
}

/// Inserts `parents` rows in the place of others; their keys begin at `first`. Returns the condition on these keys.
fn insert_parents<Conn: Arena>(conn: &mut Conn, first: i64, parents: i64) -> String {
    let range = format!("BETWEEN {first} AND {}", first + parents - 1);
    conn.run(&format!("DELETE FROM random_16 WHERE id {range}"));
    conn.run(&format!(
        "INSERT INTO random_16 (id, views) SELECT n + {first} - 1, n % 1000 FROM ({}) AS numbers",
        Conn::numbers(parents)
    ));
    range
}

/// Inserts so many shards of each row `v` that fits a condition.
fn insert_shards<Conn: Arena>(conn: &mut Conn, fits: &str, shards: i64) {
    conn.run(&format!(
        "INSERT INTO random_16_shards (id, shard, views) SELECT v.id, s.n - 1, v.id % 7 \
         FROM random_16 AS v CROSS JOIN ({}) AS s WHERE {fits} ORDER BY v.id, s.n",
        Conn::numbers(shards)
    ));
}

type NamedRead<Conn> = (String, Box<dyn Fn(&mut Conn)>);

/// Measures how the time grows with the number of shards and of rows.
fn growth<Conn: Reads>(conn: &mut Conn, extent: Extent) -> Vec<Reading> {
    const SHARDS: [i64; 5] = [1, 4, 16, 64, 256];
    const PAGES: [i64; 4] = [1, 10, 50, 200];
    const REPEATS: usize = 50;
    let (first, last) = (extent.parents + 1, extent.parents + SHARDS.len() as i64);
    for (id, shards) in (first..=last).zip(SHARDS) {
        fill_with(conn, id, 1, shards);
    }
    conn.analyze();
    let mut reads: Vec<NamedRead<Conn>> = vec![];
    for (id, shards) in (first..=last).zip(SHARDS) {
        reads.push((
            format!("growth: one row, {shards} shards"),
            Box::new(move |conn| assert!(conn.total(id).is_ok())),
        ));
    }
    for rows in PAGES {
        reads.push((
            format!("growth: {rows} rows, 16 shards"),
            Box::new(move |conn| assert!(conn.totals(FIRST, rows).is_ok())),
        ));
    }
    let conn = &std::cell::RefCell::new(conn);
    let mut works: Vec<_> = reads
        .iter()
        .map(|(_, read)| move || (0..REPEATS).for_each(|_| read(&mut conn.borrow_mut())))
        .collect();
    let times = all_side_by_side(extent.rounds, &mut works);
    let named = reads.into_iter().zip(times);
    named
        .map(|((read, _), time)| Reading {
            database: Conn::NAME,
            read,
            form: TOTAL,
            time: time / REPEATS as u32,
        })
        .collect()
}

/// A read of one row as a contender, so that many threads can repeat it.
pub struct Reader<Conn> {
    pub name: &'static str,
    pub read: fn(&mut Conn, i64) -> QueryResult<i64>,
}

impl<Conn> Contender<Conn> for Reader<Conn> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn total(&self) -> Option<String> {
        None
    }

    fn counting(&self) -> Outcome<Counting<'_, Conn>> {
        Ok(Box::new(|conn, key| {
            (self.read)(conn, key)?;
            Ok(())
        }))
    }
}
