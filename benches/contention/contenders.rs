//! The contenders: this crate, and the alternatives that a team would use instead of it.

use diesel::connection::LoadConnection;
use diesel::dsl::DuplicatedKeys;
use diesel::prelude::*;
use diesel::r2d2::Pool;
use diesel_sharded::backend::BackendOf;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{RowCounter, update};
use diesel_sharded_benches::names::*;
use rand::RngExt;

use crate::arena::{Arena, Stage};
use crate::contender::{Contender, Counting, Outcome, total_of, total_of_shards};
use crate::prepared::{
    InsertEvent, Prepared, UpdateRow, UpdateSlot, UpsertSlot, UpsertSlotOnMysql,
};
use crate::schema::{
    SLOTS, adaptive, buffered, coalesced, events, one_row, random_128, slots, striped,
    written_behind, written_behind_logged,
};
use crate::write_behind::{Redis, WriteBehind};

/// A contender that runs one or more statements on the thread's connection.
struct OnConnection<Conn> {
    name: &'static str,
    total: String,
    count: fn(&mut Conn, i64) -> QueryResult<usize>,
}

impl<Conn> Contender<Conn> for OnConnection<Conn> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn total(&self) -> String {
        self.total.clone()
    }

    fn counting(&self) -> Outcome<Counting<'_, Conn>> {
        Ok(Box::new(|conn, key| match (self.count)(conn, key)? {
            0 => Err("it counted no row".into()),
            _ => Ok(()), // MySQL reports 2 rows when an upsert updates one
        }))
    }
}

/// A contender that counts through a coalescer, which has its own connections.
struct Coalescing<Conn: LoadConnection + 'static> {
    name: &'static str,
    total: String,
    coalescer: Coalescer<Conn>,
    is_buffered: bool,
    count: fn(&Coalescer<Conn>, i64) -> Result<usize, diesel_sharded::Error>,
}

impl<Conn: LoadConnection<Backend: BackendOf<Conn>>> Contender<Conn> for Coalescing<Conn> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn total(&self) -> String {
        self.total.clone()
    }

    fn counting(&self) -> Outcome<Counting<'_, Conn>> {
        Ok(Box::new(|_, key| {
            match (self.count)(&self.coalescer, key)? {
                0 => Err("it counted no row".into()),
                _ => Ok(()),
            }
        }))
    }

    fn is_buffered(&self) -> bool {
        self.is_buffered
    }

    fn settle(&self) {
        self.coalescer
            .flush()
            .expect("all that was counted can be committed");
    }
}

/// A connection type with its contenders.
pub trait Contenders: Arena {
    /// The contenders whose counts commit by themselves.
    fn alone(stage: &Stage<Self>, redis: &Redis) -> Vec<Box<dyn Contender<Self>>>;
}

macro_rules! contenders {
    ($connection:ty, on_conflict: $on_conflict:expr, upsert: $upsert:ident) => {
        impl Contenders for $connection {
            fn alone(stage: &Stage<Self>, redis: &Redis) -> Vec<Box<dyn Contender<Self>>> {
                type Conn = $connection;
                type Count = fn(&mut Conn, i64) -> QueryResult<usize>;
                macro_rules! write_behind {
                    ($name:expr, $redis:expr, $table:ident) => {
                        WriteBehind::new(
                            $name,
                            stringify!($table),
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
                let write_behind = write_behind!(WRITE_BEHIND, &redis.in_memory(), written_behind);
                let logged =
                    write_behind!(WRITE_BEHIND_LOGGED, &redis.logged(), written_behind_logged);
                let pool = Pool::builder()
                    .max_size(2)
                    .build(stage.clone())
                    .expect("a connection");
                let coalescer = || {
                    // The check of the total ends the run after a loss; this prints the reason.
                    let builder =
                        Coalescer::builder(pool.clone()).on_loss(|loss| eprintln!("{loss:?}"));
                    builder.build().expect("a coalescer")
                };
                let acknowledged: Coalescing<Conn> = Coalescing {
                    name: COALESCED,
                    total: total_of_shards("coalesced"),
                    coalescer: coalescer(),
                    is_buffered: false,
                    count: |coalescer, key| {
                        coalescer.add(&RowCounter::of(coalesced::views, key), 1)
                    },
                };
                let later: Coalescing<Conn> = Coalescing {
                    name: BUFFERED,
                    total: total_of_shards("buffered"),
                    coalescer: coalescer(),
                    is_buffered: true,
                    count: |coalescer, key| {
                        coalescer.add_later(&RowCounter::of(buffered::views, key), 1)?;
                        Ok(1)
                    },
                };
                let statement = |name, total, count: Count| -> Box<dyn Contender<Conn>> {
                    Box::new(OnConnection { name, total, count })
                };
                let sum =
                    |column, table| format!("(SELECT COALESCE(SUM({column}), 0) FROM {table})");
                macro_rules! sharded {
                    ($name:expr, $table:ident, $choice:expr) => {
                        statement($name, total_of_shards(stringify!($table)), |conn, key| {
                            update($table::table.find(key))
                                .set($table::views.eq($table::views + 1))
                                .shard_choice($choice)
                                .execute(conn)
                        })
                    };
                }
                vec![
                    Box::new(write_behind),
                    Box::new(logged),
                    Box::new(acknowledged),
                    Box::new(later),
                    statement(ONE_ROW, total_of("one_row"), |conn, key| {
                        diesel::update(one_row::table.find(key))
                            .set(one_row::views.eq(one_row::views + 1))
                            .execute(conn)
                    }),
                    statement(PREPARED, total_of("prepared_row"), |conn, key| {
                        Prepared::<UpdateRow>::new([key]).execute(conn)
                    }),
                    statement(APPEND_ONLY, sum("n", "events"), |conn, key| {
                        diesel::insert_into(events::table)
                            .values((events::video_id.eq(key), events::n.eq(1)))
                            .execute(conn)
                    }),
                    statement(
                        APPEND_ONLY_PREPARED,
                        sum("n", "prepared_events"),
                        |conn, key| Prepared::<InsertEvent>::new([key]).execute(conn),
                    ),
                    statement(SLOTTED, sum("count", "slots"), |conn, key| {
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
                    statement(
                        SLOTTED_PREPARED,
                        sum("count", "prepared_slots"),
                        |conn, key| {
                            let slot = [key, rand::rng().random_range(0..SLOTS)];
                            match Prepared::<UpdateSlot, 2>::new(slot).execute(conn)? {
                                0 => Prepared::<$upsert, 2>::new(slot).execute(conn),
                                counted => Ok(counted),
                            }
                        },
                    ),
                    sharded!(RANDOM, random_128, ShardChoice::Random),
                    sharded!(STRIPED, striped, ShardChoice::Striped),
                    sharded!(DEFAULT, adaptive, ShardChoice::Adaptive),
                ]
            }
        }
    };
}

contenders!(PgConnection, on_conflict: (slots::counter, slots::slot), upsert: UpsertSlot);
contenders!(MysqlConnection, on_conflict: DuplicatedKeys, upsert: UpsertSlotOnMysql);
contenders!(SqliteConnection, on_conflict: (slots::counter, slots::slot), upsert: UpsertSlot);
