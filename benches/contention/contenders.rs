//! The contenders: this crate, and the alternatives that a team would use instead of it.

use std::error::Error;

use diesel::dsl::DuplicatedKeys;
use diesel::prelude::*;
use diesel_sharded::combine::Combiner;
use diesel_sharded::update;
use diesel_sharded_benches::names::*;
use rand::RngExt;

use crate::arena::{Arena, Stage};
use crate::prepared::{
    InsertEvent, Prepared, UpdateRow, UpdateSlot, UpsertSlot, UpsertSlotOnMysql,
};
use crate::schema::{
    SLOTS, adaptive, combined, events, one_row, slots, written_behind, written_behind_logged,
};
use crate::write_behind::{Redis, write_behind};

pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The function that a thread calls to count once on one row.
pub type Counting<Conn> = Box<dyn FnMut(&mut Conn, i64) -> Outcome>;

/// One way to count.
pub struct Contender<Conn> {
    pub name: &'static str,
    /// The SQL expression of the total so far.
    pub total: String,
    /// The rows that each increment adds one to.
    pub rows: i64,
    /// Whether an increment is in the database only after the end of the background work, which then belongs to the time of the increments.
    pub is_buffered: bool,
    /// Returns one thread's function, and connects to servers other than the database if it needs any.
    pub counting: Box<dyn Fn() -> Outcome<Counting<Conn>> + Send + Sync>,
    /// Starts the background work. Returns the function that waits until all increments are in the database, and ends it.
    pub begin: Box<dyn Fn() -> Box<dyn FnOnce()> + Send + Sync>,
}

impl<Conn> Contender<Conn> {
    /// Counts by `count`, which returns the number of rows, and has no background work.
    pub fn new(
        name: &'static str,
        total: String,
        count: impl Fn(&mut Conn, i64) -> Outcome<usize> + Clone + Send + Sync + 'static,
    ) -> Self {
        let counting = move || {
            let count = count.clone();
            Box::new(move |conn: &mut Conn, key| match count(conn, key)? {
                0 => Err("it counted no row".into()),
                _ => Ok(()), // MySQL reports 2 rows when an upsert updates one
            }) as Counting<Conn>
        };
        Contender {
            name,
            total,
            rows: 1,
            is_buffered: false,
            counting: Box::new(move || Ok(counting())),
            begin: Box::new(|| Box::new(|| ())),
        }
    }
}

/// The SQL expression of the sum of all increments in a column of a table.
pub fn total_of(table: &str, column: &str) -> String {
    format!("(SELECT COALESCE(SUM({column}), 0) FROM {table})")
}

/// The SQL expression of the sum of all increments in a table and its shards.
pub fn total_of_shards(table: &str) -> String {
    let shards = format!("{table}_shards");
    format!(
        "({} + {})",
        total_of(table, "views"),
        total_of(&shards, "views")
    )
}

/// A connection type with its contenders.
pub trait Contenders: Arena {
    /// The contenders whose increments commit by themselves.
    fn alone(stage: &Stage<Self>, redis: &Redis) -> Vec<Contender<Self>>;
}

macro_rules! contenders {
    ($connection:ty, on_conflict: $on_conflict:expr, upsert: $upsert:ident) => {
        impl Contenders for $connection {
            fn alone(stage: &Stage<Self>, redis: &Redis) -> Vec<Contender<Self>> {
                type Conn = $connection;
                macro_rules! behind {
                    ($name:expr, $redis:expr, $table:ident) => {
                        write_behind(
                            $name,
                            total_of(stringify!($table), "views"),
                            $redis,
                            stage.clone(),
                            |conn: &mut Conn, key, n| {
                                diesel::update($table::table.find(key))
                                    .set($table::views.eq($table::views + n))
                                    .execute(conn)
                            },
                        )
                    };
                }
                macro_rules! statement {
                    ($name:expr, $total:expr, $count:expr) => {{
                        let count: fn(&mut Conn, i64) -> QueryResult<usize> = $count;
                        Contender::new($name, $total, move |conn, key| Ok(count(conn, key)?))
                    }};
                }
                vec![
                    behind!(WRITE_BEHIND, &redis.in_memory, written_behind),
                    behind!(WRITE_BEHIND_LOGGED, &redis.logged, written_behind_logged),
                    statement!(ONE_ROW, total_of("one_row", "views"), |conn, key| {
                        diesel::update(one_row::table.find(key))
                            .set(one_row::views.eq(one_row::views + 1))
                            .execute(conn)
                    }),
                    statement!(PREPARED, total_of("prepared_row", "views"), |conn, key| {
                        Prepared::<UpdateRow>::new([key]).execute(conn)
                    }),
                    statement!(APPEND_ONLY, total_of("events", "n"), |conn, key| {
                        diesel::insert_into(events::table)
                            .values((events::video_id.eq(key), events::n.eq(1)))
                            .execute(conn)
                    }),
                    statement!(
                        APPEND_ONLY_PREPARED,
                        total_of("prepared_events", "n"),
                        |conn, key| { Prepared::<InsertEvent>::new([key]).execute(conn) }
                    ),
                    statement!(SLOTTED, total_of("slots", "count"), |conn, key| {
                        let slot = rand::rng().random_range(0..SLOTS) as i32;
                        diesel::insert_into(slots::table)
                            .values((
                                slots::counter.eq(key),
                                slots::slot.eq(slot),
                                slots::count.eq(1),
                            ))
                            .on_conflict($on_conflict)
                            .do_update()
                            .set(slots::count.eq(slots::count + 1))
                            .execute(conn)
                    }),
                    statement!(
                        SLOTTED_PREPARED,
                        total_of("prepared_slots", "count"),
                        |conn, key| {
                            let slot = [key, rand::rng().random_range(0..SLOTS)];
                            match Prepared::<UpdateSlot, 2>::new(slot).execute(conn)? {
                                0 => Prepared::<$upsert, 2>::new(slot).execute(conn),
                                counted => Ok(counted),
                            }
                        }
                    ),
                    statement!(DEFAULT, total_of_shards("adaptive"), |conn, key| {
                        update(adaptive::table.find(key))
                            .set(adaptive::views.eq(adaptive::views + 1))
                            .execute(conn)
                    }),
                    {
                        let (combiner, total) = (Combiner::new(), total_of_shards("combined"));
                        Contender::new(COMBINED, total, move |conn: &mut Conn, key| {
                            Ok(update(combined::table.find(key))
                                .set(combined::views.eq(combined::views + 1))
                                .combine(&combiner)
                                .execute(conn)?)
                        })
                    },
                ]
            }
        }
    };
}

contenders!(PgConnection, on_conflict: (slots::counter, slots::slot), upsert: UpsertSlot);
contenders!(MysqlConnection, on_conflict: DuplicatedKeys, upsert: UpsertSlotOnMysql);
contenders!(SqliteConnection, on_conflict: (slots::counter, slots::slot), upsert: UpsertSlot);
