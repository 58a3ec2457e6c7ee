//! The updates of each shape, by each contender.

use diesel::prelude::*;
use diesel_sharded::ShardsTable;
use diesel_sharded::retry::{self, RetryPolicy};

use super::prepared::Prepared;
use super::shape::Shape;
use super::tables::{HOT, Link, OWNER, SLUG, links, plain_links};
use super::way::{Count, Way};
use crate::arena::Arena;
use crate::attempts;
use crate::contender::{DEFAULT, ONE_ROW, PREPARED};
use crate::schema::comments;

/// A connection type that runs every shape.
pub trait Shapes: Arena {
    /// Creates the shards table.
    fn create_shards_table(&mut self);

    /// The contenders of `shape`.
    fn ways(shape: Shape) -> Vec<Way<Self>>;
}

/// A function that sends statements.
type Statements<Conn, T> = fn(&mut Conn) -> QueryResult<T>;

/// A function that runs statements in a caller's transaction.
type Transaction<Conn> =
    fn(&mut Conn, &dyn Fn(&mut Conn) -> QueryResult<usize>) -> QueryResult<usize>;

/// One contender's updates, on any connection.
struct Updates<Conn> {
    key: Statements<Conn, usize>,
    slug: Statements<Conn, usize>,
    key_and_filter: Statements<Conn, usize>,
    loaded: Statements<Conn, Link>,
    returning: Statements<Conn, String>,
    /// Whether `loaded` and `returning` are two statements, which a transaction has to hold together.
    loads_by_two: bool,
    ten_rows: Statements<Conn, usize>,
    comment: Statements<Conn, usize>,
    transaction: Transaction<Conn>,
}

impl<Conn: 'static> Updates<Conn> {
    /// The function that runs `shape`.
    fn of(self, shape: Shape) -> Count<Conn> {
        let loaded = move |conn: &mut Conn| {
            let link = (self.loaded)(conn)?;
            Ok(usize::from(link.slug == SLUG))
        };
        let returning = move |conn: &mut Conn| {
            let target = (self.returning)(conn)?;
            Ok(usize::from(!target.is_empty()))
        };
        let transaction = self.transaction;
        match shape {
            Shape::Key => Box::new(self.key),
            Shape::Slug => Box::new(self.slug),
            Shape::KeyAndFilter => Box::new(self.key_and_filter),
            Shape::SlugLoaded if self.loads_by_two => {
                Box::new(move |conn| transaction(conn, &loaded))
            }
            Shape::SlugLoaded => Box::new(loaded),
            Shape::SlugReturning if self.loads_by_two => {
                Box::new(move |conn| transaction(conn, &returning))
            }
            Shape::SlugReturning => Box::new(returning),
            Shape::TenRows => Box::new(self.ten_rows),
            Shape::SlugInTransaction => Box::new(move |conn| {
                transaction(conn, &|conn| {
                    (self.comment)(conn)?;
                    (self.slug)(conn)
                })
            }),
            Shape::SlugLoadedInTransaction => Box::new(move |conn| {
                transaction(conn, &|conn| {
                    (self.comment)(conn)?;
                    loaded(conn)
                })
            }),
        }
    }
}

/// The update of `$rows` by `$update`, Diesel's function or this crate's.
macro_rules! count {
    ($update:path, $table:ident, $rows:expr) => {
        $update($rows).set($table::clicks.eq($table::clicks + 1))
    };
}

/// The update of the link that has the slug.
macro_rules! by_slug {
    ($update:path, $table:ident) => {
        count!($update, $table, $table::table.filter($table::slug.eq(SLUG)))
    };
}

/// Updates the link and reads it: `returned` by the update, or `selected` after it where Diesel knows no `RETURNING`.
macro_rules! loaded {
    (returned, $update:path, $table:ident) => {
        |conn| by_slug!($update, $table).get_result(conn)
    };
    (selected, $update:path, $table:ident) => {
        |conn| {
            by_slug!($update, $table).execute(conn)?;
            $table::table.filter($table::slug.eq(SLUG)).first(conn)
        }
    };
}

/// Updates the link and reads its target alone.
macro_rules! returning {
    (returned, $update:path, $table:ident) => {
        |conn| {
            let update = by_slug!($update, $table);
            update.returning($table::url_to).get_result(conn)
        }
    };
    (selected, $update:path, $table:ident) => {
        |conn| {
            by_slug!($update, $table).execute(conn)?;
            let link = $table::table.filter($table::slug.eq(SLUG));
            link.select($table::url_to).first(conn)
        }
    };
}

macro_rules! is_two_statements {
    (returned) => {
        false
    };
    (selected) => {
        true
    };
}

/// All updates of one contender: contenders differ by the function, the table, and how rows come back.
macro_rules! updates {
    ($rows:ident, $update:path, $table:ident, $transaction:expr) => {
        Updates {
            key: |conn| count!($update, $table, $table::table.find(HOT)).execute(conn),
            slug: |conn| by_slug!($update, $table).execute(conn),
            key_and_filter: |conn| {
                let link = $table::table.find(HOT).filter($table::deleted.eq(false));
                count!($update, $table, link).execute(conn)
            },
            loaded: loaded!($rows, $update, $table),
            returning: returning!($rows, $update, $table),
            loads_by_two: is_two_statements!($rows),
            ten_rows: |conn| {
                let links = $table::table.filter($table::owner.eq(OWNER));
                count!($update, $table, links).execute(conn)
            },
            comment: |conn| {
                let comment = (comments::video_id.eq(HOT), comments::body.eq("What a link"));
                diesel::insert_into(comments::table)
                    .values(comment)
                    .execute(conn)
            },
            transaction: $transaction,
        }
    };
}

/// The SQL expression of the clicks in a table.
macro_rules! total_of {
    ($table:literal) => {
        concat!("(SELECT SUM(clicks) FROM ", $table, ")")
    };
}

macro_rules! shapes {
    ($connection:ty, diesel: $rows:ident) => {
        impl Shapes for $connection {
            fn create_shards_table(&mut self) {
                ShardsTable::of(links::table)
                    .create(self)
                    .expect("a shards table");
            }

            fn ways(shape: Shape) -> Vec<Way<Self>> {
                let way = |name, total, count| Way {
                    name,
                    total,
                    rows: shape.rows(),
                    count,
                };
                let plain = updates!($rows, diesel::update, plain_links, |conn, f| {
                    attempts::transaction(conn, f)
                });
                let ours = updates!(returned, diesel_sharded::update, links, |conn, f| {
                    retry::transaction(conn, RetryPolicy::default(), f)
                });
                let prepared: Option<Count<Self>> = match shape {
                    Shape::Key => Some(Box::new(|conn| Prepared(HOT).execute(conn))),
                    Shape::Slug => Some(Box::new(|conn| Prepared(SLUG).execute(conn))),
                    _ => None,
                };
                let mut ways = vec![way(ONE_ROW, total_of!("plain_links"), plain.of(shape))];
                ways.extend(
                    prepared.map(|count| way(PREPARED, total_of!("prepared_links"), count)),
                );
                ways.push(way(
                    DEFAULT,
                    concat!(
                        "(",
                        total_of!("links"),
                        " + ",
                        total_of!("links_shards"),
                        ")"
                    ),
                    ours.of(shape),
                ));
                ways
            }
        }
    };
}

shapes!(PgConnection, diesel: returned);
shapes!(MysqlConnection, diesel: selected);
shapes!(SqliteConnection, diesel: returned);
