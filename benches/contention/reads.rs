//! Reading totals, beside the plain column and beside the best SQL that is written by hand.

use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::BigInt;
use diesel_sharded::prelude::*;
use diesel_sharded::{RowCounter, fold};
use diesel_sharded_benches::all_side_by_side;
use indicatif::ProgressBar;

use crate::arena::{Arena, Disk, Stage};
use crate::contenders::{Contender, Counting, Outcome};
use crate::schema::{ROWS, random_16};

/// The names that the targets ask for.
pub const PLAIN: &str = "plain column";
pub const TOTAL: &str = "total()";
pub const ONE_ROW: &str = "one row";
pub const PAGE: &str = "page of 50, by key";

/// The first key of a page.
const FIRST: i64 = 500;
const PAGE_SIZE: i64 = 50;
const SHARDS: i64 = 16;

/// How long one read takes in one form.
#[derive(Debug)]
pub struct Reading {
    pub database: &'static str,
    pub read: String,
    pub form: &'static str,
    pub time: Duration,
}

/// How many parents there are, and how often is measured.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub parents: i64,
    pub rounds: usize,
}

type Row = (i64, i64);
type Form<'a> = (&'static str, Box<dyn FnMut() -> Vec<Row> + 'a>);

/// What is read, for the statements written by hand: a query for the parents, what it binds, the same condition on the shards.
pub struct Page {
    name: String,
    parents: &'static str,
    on_shards: Option<&'static str>,
    binds: &'static [i64],
    end: &'static str,
    repeats: usize,
}

fn pages(parents: i64) -> [Page; 4] {
    [
        Page {
            name: ONE_ROW.into(),
            parents: "SELECT id, views FROM random_16 WHERE id = ?",
            on_shards: Some("WHERE id = ?"),
            binds: &[FIRST],
            end: "",
            repeats: 100,
        },
        Page {
            name: PAGE.into(),
            parents: "SELECT id, views FROM random_16 WHERE id BETWEEN ? AND ?",
            on_shards: Some("WHERE id BETWEEN ? AND ?"),
            binds: &[FIRST, FIRST + PAGE_SIZE - 1],
            end: "",
            repeats: 20,
        },
        Page {
            name: "page of 50, by order and limit".into(),
            parents: "SELECT id, views FROM random_16 WHERE id >= ? ORDER BY id LIMIT 50",
            on_shards: None,
            binds: &[FIRST],
            end: "",
            repeats: 20,
        },
        Page {
            name: format!("top 10 of {parents}"),
            parents: "SELECT id, views FROM random_16",
            on_shards: Some(""),
            binds: &[],
            end: " ORDER BY 2 DESC LIMIT 10",
            repeats: 1,
        },
    ]
}

impl Page {
    /// The forms of the statement for its totals; `sum` casts a sum to the column's type.
    fn by_hand(
        &self,
        sum: impl Fn(&str) -> String,
        lateral: bool,
    ) -> Vec<(&'static str, String, Vec<i64>)> {
        let Page { parents, end, .. } = self;
        let twice = [self.binds, self.binds].concat();
        let mut forms = vec![
            (
                "subquery",
                format!(
                    "SELECT v.id, {} FROM ({parents}) AS v{end}",
                    sum(
                        "v.views + COALESCE((SELECT SUM(s.views) FROM random_16_shards AS s WHERE s.id = v.id), 0)"
                    )
                ),
                self.binds.to_vec(),
            ),
            (
                "join, grouped",
                format!(
                    "SELECT v.id, {} FROM ({parents}) AS v LEFT JOIN random_16_shards AS s ON s.id = v.id GROUP BY v.id, v.views{end}",
                    sum("v.views + COALESCE(SUM(s.views), 0)")
                ),
                self.binds.to_vec(),
            ),
        ];
        if lateral {
            forms.push((
                "join, lateral",
                format!(
                    "SELECT v.id, {} FROM ({parents}) AS v LEFT JOIN LATERAL (SELECT SUM(views) AS n FROM random_16_shards WHERE id = v.id) AS s ON TRUE{end}",
                    sum("v.views + COALESCE(s.n, 0)")
                ),
                self.binds.to_vec(),
            ));
        }
        if let Some(on_shards) = self.on_shards {
            forms.push((
                "join of sums",
                format!(
                    "SELECT v.id, {} FROM ({parents}) AS v LEFT JOIN (SELECT id, SUM(views) AS n FROM random_16_shards {on_shards} GROUP BY id) AS s ON s.id = v.id{end}",
                    sum("v.views + COALESCE(s.n, 0)")
                ),
                twice.clone(),
            ));
            forms.push((
                "union, grouped",
                format!(
                    "SELECT id, {} FROM (SELECT id, views FROM random_16_shards {on_shards} UNION ALL {parents}) AS both_tables GROUP BY id{end}",
                    sum("SUM(views)")
                ),
                twice,
            ));
        }
        forms
    }
}

/// SQL that stays prepared, with `?` where each database has its own sign. All have the same query id, so each needs a
/// connection to itself.
struct ByHand {
    sql: String,
    binds: Vec<i64>,
}

impl QueryId for ByHand {
    type QueryId = ByHand;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for ByHand {
    type SqlType = (BigInt, BigInt);
}

impl<Conn> RunQueryDsl<Conn> for ByHand {}

impl<DB> QueryFragment<DB> for ByHand
where
    DB: diesel::backend::Backend + diesel::sql_types::HasSqlType<BigInt>,
    i64: diesel::serialize::ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut binds = self.binds.iter();
        for (i, sql) in self.sql.split('?').enumerate() {
            if i > 0 {
                out.push_bind_param::<BigInt, _>(binds.next().expect("a value for each sign"))?;
            }
            out.push_sql(sql);
        }
        Ok(())
    }
}

/// Reads, on every connection type.
pub trait Reads: Arena {
    /// The page's plain column, and its totals by this crate, on two connections.
    fn by_diesel(stage: &Stage<Self>, page: usize) -> [Form<'static>; 2];

    /// Statements written by hand.
    fn by_hand(stage: &Stage<Self>, page: &Page) -> Vec<Form<'static>>;

    /// The plain column of one row.
    fn plain(&mut self, id: i64) -> QueryResult<i64>;

    /// The total of one row.
    fn total(&mut self, id: i64) -> QueryResult<i64>;

    /// The totals of a page.
    fn totals(&mut self, first: i64, rows: i64) -> QueryResult<Vec<Row>>;

    /// Folds the whole table; gives the parents.
    fn fold_all(&mut self) -> u64;
}

macro_rules! reads {
    ($connection:ty, lateral: $lateral:literal) => {
        impl Reads for $connection {
            fn by_diesel(stage: &Stage<Self>, page: usize) -> [Form<'static>; 2] {
                macro_rules! form {
                    ($name:expr, $column:expr) => {{
                        let mut conn = stage.connect();
                        let read: Box<dyn FnMut() -> Vec<Row>> = match page {
                            0 => Box::new(move || {
                                let row = random_16::table.find(FIRST);
                                row.select((random_16::id, $column))
                                    .load(&mut conn)
                                    .expect("a row")
                            }),
                            1 => Box::new(move || {
                                let ids = random_16::id.between(FIRST, FIRST + PAGE_SIZE - 1);
                                let rows = random_16::table.filter(ids);
                                rows.select((random_16::id, $column))
                                    .load(&mut conn)
                                    .expect("rows")
                            }),
                            2 => Box::new(move || {
                                let rows = random_16::table.filter(random_16::id.ge(FIRST));
                                let rows = rows.order(random_16::id).limit(PAGE_SIZE);
                                rows.select((random_16::id, $column))
                                    .load(&mut conn)
                                    .expect("rows")
                            }),
                            _ => Box::new(move || {
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

            fn by_hand(stage: &Stage<Self>, page: &Page) -> Vec<Form<'static>> {
                let sum = |sum: &str| match Self::NAME {
                    "PostgreSQL" => format!("CAST({sum} AS bigint)"),
                    _ => sum.to_owned(),
                };
                let forms = page.by_hand(sum, $lateral).into_iter();
                let prepared = forms.map(|(name, sql, binds)| -> Form<'static> {
                    let mut conn = stage.connect();
                    (
                        name,
                        Box::new(move || {
                            let statement = ByHand {
                                sql: sql.clone(),
                                binds: binds.clone(),
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

/// Every read in every form.
pub fn measure<Conn: Reads>(extent: Extent, bar: &ProgressBar) -> Vec<Reading> {
    let stage = Stage::<Conn>::new(Disk::Free);
    fill(&mut stage.connect(), extent.parents);
    let mut readings = vec![];
    for (number, page) in pages(extent.parents).iter().enumerate() {
        bar.set_message(format!("reads, {}: {}", Conn::NAME, page.name));
        let mut forms = Vec::from(Conn::by_diesel(&stage, number));
        forms.extend(Conn::by_hand(&stage, page));
        let totals: Vec<Vec<Row>> = forms
            .iter_mut()
            .map(|(_, read)| sorted(read(), page))
            .collect();
        for ((name, _), rows) in forms.iter().zip(&totals).skip(2) {
            assert_eq!(rows, &totals[1], "{name} reads other totals: {}", page.name);
        }
        let repeats = page.repeats;
        let (names, reads): (Vec<_>, Vec<_>) = forms.into_iter().unzip();
        let mut works: Vec<_> = reads
            .into_iter()
            .map(|mut read| move || (0..repeats).for_each(|_| drop(read())))
            .collect();
        let times = all_side_by_side(extent.rounds, &mut works);
        readings.extend(names.iter().zip(times).map(|(form, time)| Reading {
            database: Conn::NAME,
            read: page.name.clone(),
            form,
            time: time / repeats as u32,
        }));
    }
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
    readings
}

/// Equal totals may come in any order.
fn sorted(mut rows: Vec<Row>, page: &Page) -> Vec<Row> {
    if page.end.is_empty() {
        rows.sort_unstable();
    } else {
        rows.iter_mut().for_each(|(id, _)| *id = 0);
    }
    rows
}

/// Gives each row of a new stage its shards.
pub fn prepare<Conn: Arena>(stage: &Stage<Conn>) {
    fill(&mut stage.connect(), ROWS);
}

fn fill(conn: &mut impl Arena, parents: i64) {
    fill_with(conn, 1, parents, SHARDS);
    conn.analyze();
}

/// Puts `parents` rows from the key `first` on, with `shards` shards each.
fn fill_with<Conn: Arena>(conn: &mut Conn, first: i64, parents: i64, shards: i64) {
    let range = format!("BETWEEN {first} AND {}", first + parents - 1);
    conn.run(&format!("DELETE FROM random_16 WHERE id {range}"));
    conn.run(&format!(
        "INSERT INTO random_16 (id, views) SELECT n + {first} - 1, n % 1000 FROM ({}) AS numbers",
        Conn::numbers(parents)
    ));
    conn.run(&format!(
        "INSERT INTO random_16_shards (id, shard, views) SELECT v.id, s.n - 1, v.id % 7 \
         FROM random_16 AS v CROSS JOIN ({}) AS s WHERE v.id {range} ORDER BY v.id, s.n",
        Conn::numbers(shards)
    ));
}

type NamedRead<Conn> = (String, Box<dyn Fn(&mut Conn)>);

/// How the time grows with shards and with rows.
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

/// A reader of one row's total, so that many can be driven as counters are.
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
