//! The shapes of an update: each as Diesel runs it on one row, and as this crate runs it on shards. Commits wait for the disk.
//!
//! Each scene has new tables with 1000 links. The threads count on one of them, or on the ten links of one owner.

use std::sync::Arc;

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{ShardedField, ShardsTable};
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_benches::names::{DEFAULT, ONE_ROW};
use diesel_sharded_tests::fixture::Run;

use crate::arena::Arena;
use crate::contenders::Contender;
use crate::schema::{ROWS, comments};

/// The shapes: each with its name, and the rows that one update counts.
const SHAPES: [(&str, i64); 8] = [
    ("find(k), execute", 1),
    ("filter(slug), execute", 1),
    ("find(k).filter(deleted), execute", 1),
    ("filter(slug), get_result of the model", 1),
    ("filter(slug), returning(url_to)", 1),
    ("filter(owner), ten rows, execute", 10),
    ("transaction: comment, filter(slug), execute", 1),
    (
        "transaction: comment, filter(slug), get_result of the model",
        1,
    ),
];

/// The link that is counted by its key or its slug.
const HOT: i64 = 10;
const SLUG: &str = "link-10";
/// The owner of the ten links that are counted together. The hot link is one of them.
const OWNER: i64 = 10;
/// The shards of each row that is counted: as many as the crate uses by default.
const SHARDS: i64 = 128;

macro_rules! links {
    ($($table:ident)*) => {
        $(diesel::table! {
            $table (id) {
                id -> BigInt,
                slug -> Text,
                url_to -> Text,
                owner -> BigInt,
                deleted -> Bool,
                clicks -> BigInt,
            }
        })*

        /// A table for each contender, so that none inherits another's rows.
        const TABLES: &[&str] = &[$(stringify!($table)),*];
    };
}

links!(plain_links links);

/// A row of either table.
#[derive(Queryable, Identifiable, ShardedField)]
#[sharded(table_name = links_shards, no_totals)]
#[expect(dead_code, reason = "an application reads them")]
struct Link {
    id: i64,
    slug: String,
    url_to: String,
    owner: i64,
    deleted: bool,
    #[sharded]
    clicks: i64,
}

/// The function that runs one update and returns the number of rows.
type Count<Conn> = Arc<dyn Fn(&mut Conn) -> QueryResult<usize> + Send + Sync>;

/// A connection type that runs every shape.
pub trait Shapes: Arena {
    /// Creates the tables anew, with all shards of the rows that are counted.
    fn create_links(&mut self);

    /// Each shape, and Diesel's way and this crate's to run it.
    fn shapes() -> Vec<(&'static str, [Contender<Self>; 2])>;
}

/// The update of `$rows` by `$update`, Diesel's function or this crate's.
macro_rules! count {
    ($update:path, $table:ident, $rows:expr) => {
        $update($rows).set($table::clicks.eq($table::clicks + 1))
    };
}

/// Updates the link that has the slug and reads it, or its target alone: `returned` by the update, or `selected` after it where Diesel
/// knows no `RETURNING`.
macro_rules! read {
    (returned, $update:path, $table:ident $(, $column:ident)?) => {
        count!($update, $table, $table::table.filter($table::slug.eq(SLUG)))
            $(.returning($table::$column))?
    };
    (selected, $update:path, $table:ident $(, $column:ident)?) => {
        $table::table.filter($table::slug.eq(SLUG))$(.select($table::$column))?
    };
}

/// Sends the statements of [`read!`] on `$conn`.
macro_rules! load {
    (returned, $read:expr, $slug:expr, $conn:ident) => {
        $read.get_result($conn)
    };
    (selected, $read:expr, $slug:expr, $conn:ident) => {
        $slug($conn).and_then(|_| $read.first($conn))
    };
}

/// Two statements are held together by a transaction.
macro_rules! together {
    (returned, $transaction:ident, $statements:expr) => {
        Arc::new($statements)
    };
    (selected, $transaction:ident, $statements:expr) => {
        Arc::new(|conn| $transaction(conn, &$statements))
    };
}

/// All updates of one contender, in the order of [`SHAPES`]: contenders differ by the function, the table, and how rows come back.
macro_rules! updates {
    ($conn:ty, $rows:ident, $update:path, $table:ident, $transaction:ident) => {{
        fn slug(conn: &mut $conn) -> QueryResult<usize> {
            count!($update, $table, $table::table.filter($table::slug.eq(SLUG))).execute(conn)
        }
        fn loaded(conn: &mut $conn) -> QueryResult<usize> {
            let link: Link = load!($rows, read!($rows, $update, $table), slug, conn)?;
            Ok(usize::from(link.slug == SLUG))
        }
        fn returning(conn: &mut $conn) -> QueryResult<usize> {
            let read = load!($rows, read!($rows, $update, $table, url_to), slug, conn);
            read.map(|target: String| usize::from(!target.is_empty()))
        }
        fn comment(conn: &mut $conn) -> QueryResult<usize> {
            let comment = (comments::video_id.eq(HOT), comments::body.eq("What a link"));
            diesel::insert_into(comments::table)
                .values(comment)
                .execute(conn)
        }
        let counts: [Count<$conn>; 8] = [
            Arc::new(|conn| count!($update, $table, $table::table.find(HOT)).execute(conn)),
            Arc::new(slug),
            Arc::new(|conn| {
                let link = $table::table.find(HOT).filter($table::deleted.eq(false));
                count!($update, $table, link).execute(conn)
            }),
            together!($rows, $transaction, loaded),
            together!($rows, $transaction, returning),
            Arc::new(|conn| {
                let links = $table::table.filter($table::owner.eq(OWNER));
                count!($update, $table, links).execute(conn)
            }),
            Arc::new(|conn| $transaction(conn, &|conn| comment(conn).and_then(|_| slug(conn)))),
            Arc::new(|conn| $transaction(conn, &|conn| comment(conn).and_then(|_| loaded(conn)))),
        ];
        counts
    }};
}

/// Statements in a transaction.
type Statements<'a, Conn> = &'a dyn Fn(&mut Conn) -> QueryResult<usize>;

/// Diesel's transaction, in the retry loop that an application writes around it; with as many attempts as this crate makes by default.
fn plain_transaction<Conn: Connection>(
    conn: &mut Conn,
    f: Statements<'_, Conn>,
) -> QueryResult<usize> {
    let mut attempts = 32;
    loop {
        attempts -= 1;
        match conn.transaction(f) {
            Err(error) if attempts > 0 && is_conflict(&error) => {}
            done => return done,
        }
    }
}

fn is_conflict(error: &DieselError) -> bool {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => true,
        DieselError::DatabaseError(_, reason) => ["deadlock", "Deadlock", "locked"]
            .iter()
            .any(|conflict| reason.message().contains(conflict)),
        _ => false,
    }
}

macro_rules! shapes {
    ($conn:ty, diesel: $rows:ident) => {
        impl Shapes for $conn {
            fn create_links(&mut self) {
                self.run("DROP TABLE IF EXISTS links_shards");
                for table in TABLES {
                    self.run(&format!("DROP TABLE IF EXISTS {table}"));
                    self.run(&format!(
                        "CREATE TABLE {table} (id BIGINT PRIMARY KEY, slug VARCHAR(100) NOT NULL UNIQUE, url_to VARCHAR(200) NOT NULL, \
                         owner BIGINT NOT NULL, deleted BOOLEAN NOT NULL, clicks BIGINT NOT NULL)"
                    ));
                    self.run(&format!("CREATE INDEX {table}_owner ON {table} (owner)"));
                    self.run(&format!(
                        "INSERT INTO {table} SELECT n, CONCAT('link-', n), CONCAT('https://example.org/pages/', n), n - n % 10, FALSE, 0 \
                         FROM ({}) AS numbers",
                        Self::numbers(ROWS)
                    ));
                }
                ShardsTable::of(links::table).create(self).expect("a shards table");
                self.run(&format!(
                    "INSERT INTO links_shards (id, shard) SELECT l.id, s.n - 1 FROM links AS l CROSS JOIN ({}) AS s WHERE l.owner = {OWNER}",
                    Self::numbers(SHARDS)
                ));
                self.analyze();
            }

            fn shapes() -> Vec<(&'static str, [Contender<Self>; 2])> {
                fn ours(conn: &mut $conn, f: Statements<'_, $conn>) -> QueryResult<usize> {
                    retry::transaction(conn, RetryPolicy::default(), f)
                }
                let plain = updates!($conn, $rows, diesel::update, plain_links, plain_transaction);
                let ours = updates!($conn, returned, diesel_sharded::update, links, ours);
                let shapes = SHAPES.into_iter().zip(plain).zip(ours);
                let ways = shapes.map(|(((shape, rows), plain), ours)| {
                    // Each increment is on the same rows.
                    let way = |name, total: &str, count: Count<$conn>| Contender {
                        rows,
                        ..Contender::new(name, total.to_owned(), move |conn, _| match count(conn)? {
                            counted if counted as i64 == rows => Ok(counted),
                            counted => Err(format!("it counted {counted} rows").into()),
                        })
                    };
                    let plain = way(ONE_ROW, "(SELECT SUM(clicks) FROM plain_links)", plain);
                    let total = "((SELECT SUM(clicks) FROM links) + (SELECT SUM(clicks) FROM links_shards))";
                    (shape, [plain, way(DEFAULT, total, ours)])
                });
                ways.collect()
            }
        }
    };
}

shapes!(PgConnection, diesel: returned);
shapes!(MysqlConnection, diesel: selected);
shapes!(SqliteConnection, diesel: returned);
