//! The contenders: this crate, and the alternatives that a team would use instead of it.

use diesel::connection::LoadConnection;
use diesel::dsl::DuplicatedKeys;
use diesel::prelude::*;
use diesel::r2d2::Pool;
use diesel_sharded::backend::BackendOf;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{RowCounter, update};
use rand::RngExt;

use crate::arena::{Arena, Stage};
use crate::attempts;
use crate::contender::{
    APPEND_ONLY, APPEND_ONLY_PREPARED, BUFFERED, COALESCED, Contender, Counting, DEFAULT, ONE_ROW,
    Outcome, PREPARED, RANDOM, SLOTTED, SLOTTED_PREPARED, STRIPED, WRITE_BEHIND,
    WRITE_BEHIND_LOGGED, total_of, total_of_shards,
};
use crate::prepared::{
    InsertEvent, Prepared, UpdateRow, UpdateSlot, UpsertSlot, UpsertSlotOnMysql,
};
use crate::schema::{
    SLOTS, USERS, adaptive, buffered, coalesced, comments, events, one_row, random_1, random_8,
    random_16, random_32, random_128, slots, striped, users, written_behind, written_behind_logged,
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

    fn total(&self) -> Option<String> {
        Some(self.total.clone())
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

    fn total(&self) -> Option<String> {
        Some(self.total.clone())
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

    /// The contenders that count in a transaction, between inserting a comment and updating the commenter's row.
    fn in_transactions() -> Vec<Box<dyn Contender<Self>>>;
}

/// The contenders that count by a statement: `alone`, or inside the transactions `plain` and `ours`.
macro_rules! statements {
    ($connection:ident, $on_conflict:expr, $upsert:ident, $kind:ident) => {{
        let sum = |sum: &str| format!("(SELECT COALESCE({sum}, 0) FROM ");
        vec![
            statement!(
                $connection,
                $kind,
                plain,
                ONE_ROW,
                total_of("one_row"),
                |conn, key| {
                    diesel::update(one_row::table.find(key))
                        .set(one_row::views.eq(one_row::views + 1))
                        .execute(conn)
                }
            ),
            statement!(
                $connection,
                $kind,
                plain,
                PREPARED,
                total_of("prepared_row"),
                |conn, key| { Prepared::<UpdateRow>::new([key]).execute(conn) }
            ),
            statement!(
                $connection,
                $kind,
                plain,
                APPEND_ONLY,
                sum("SUM(n)") + "events)",
                |conn, key| {
                    diesel::insert_into(events::table)
                        .values((events::video_id.eq(key), events::n.eq(1)))
                        .execute(conn)
                }
            ),
            statement!(
                $connection,
                $kind,
                plain,
                APPEND_ONLY_PREPARED,
                sum("SUM(n)") + "prepared_events)",
                |conn, key| { Prepared::<InsertEvent>::new([key]).execute(conn) }
            ),
            statement!(
                $connection,
                $kind,
                plain,
                SLOTTED,
                sum("SUM(count)") + "slots)",
                |conn, key| {
                    diesel::insert_into(slots::table)
                        .values((
                            slots::counter.eq(key),
                            slots::slot.eq(rand::rng().random_range(0..SLOTS) as i32),
                            slots::count.eq(1),
                        ))
                        .on_conflict($on_conflict)
                        .do_update()
                        .set(slots::count.eq(slots::count + 1))
                        .execute(conn)
                }
            ),
            statement!(
                $connection,
                $kind,
                plain,
                SLOTTED_PREPARED,
                sum("SUM(count)") + "prepared_slots)",
                |conn, key| {
                    let slot = [key, rand::rng().random_range(0..SLOTS)];
                    match Prepared::<UpdateSlot, 2>::new(slot).execute(conn)? {
                        0 => Prepared::<$upsert, 2>::new(slot).execute(conn),
                        counted => Ok(counted),
                    }
                }
            ),
            sharded!(
                $connection,
                $kind,
                "sharded, 1 at random",
                random_1,
                ShardChoice::Random
            ),
            sharded!(
                $connection,
                $kind,
                "sharded, 8 at random",
                random_8,
                ShardChoice::Random
            ),
            sharded!(
                $connection,
                $kind,
                "sharded, 16 at random",
                random_16,
                ShardChoice::Random
            ),
            sharded!(
                $connection,
                $kind,
                "sharded, 32 at random",
                random_32,
                ShardChoice::Random
            ),
            sharded!($connection, $kind, RANDOM, random_128, ShardChoice::Random),
            sharded!($connection, $kind, STRIPED, striped, ShardChoice::Striped),
            sharded!($connection, $kind, DEFAULT, adaptive, ShardChoice::Adaptive),
        ]
    }};
}

macro_rules! sharded {
    ($connection:ident, $kind:ident, $name:expr, $table:ident, $choice:expr) => {
        statement!(
            $connection,
            $kind,
            ours,
            $name,
            total_of_shards(stringify!($table)),
            |conn, key| {
                update($table::table.find(key))
                    .set($table::views.eq($table::views + 1))
                    .shard_choice($choice)
                    .execute(conn)
            }
        )
    };
}

macro_rules! statement {
    ($connection:ident, alone, $transaction:ident, $name:expr, $total:expr, $count:expr) => {{
        let count: fn(&mut $connection, i64) -> QueryResult<usize> = $count;
        Box::new(OnConnection {
            name: $name,
            total: $total,
            count,
        }) as Box<dyn Contender<$connection>>
    }};
    ($connection:ident, in_transaction, $transaction:ident, $name:expr, $total:expr, $count:expr) => {{
        let count: fn(&mut $connection, i64) -> QueryResult<usize> =
            |conn, key| $transaction(conn, key, $count);
        Box::new(OnConnection {
            name: $name,
            total: $total,
            count,
        }) as Box<dyn Contender<$connection>>
    }};
}

macro_rules! contenders {
    ($connection:ty, on_conflict: $on_conflict:expr, upsert: $upsert:ident) => {
        impl Contenders for $connection {
            fn alone(stage: &Stage<Self>, redis: &Redis) -> Vec<Box<dyn Contender<Self>>> {
                type Conn = $connection;
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
                let mut all: Vec<Box<dyn Contender<Conn>>> = vec![
                    Box::new(write_behind),
                    Box::new(logged),
                    Box::new(acknowledged),
                    Box::new(later),
                ];
                all.extend(statements!(Conn, $on_conflict, $upsert, alone));
                all
            }

            fn in_transactions() -> Vec<Box<dyn Contender<Self>>> {
                type Conn = $connection;

                fn comment_and(
                    conn: &mut Conn,
                    key: i64,
                    count: fn(&mut Conn, i64) -> QueryResult<usize>,
                ) -> QueryResult<usize> {
                    diesel::insert_into(comments::table)
                        .values((
                            comments::video_id.eq(key),
                            comments::body.eq("What a video"),
                        ))
                        .execute(conn)?;
                    let counted = count(conn, key)?;
                    let user = rand::rng().random_range(1..=USERS);
                    diesel::update(users::table.find(user))
                        .set(users::comments.eq(users::comments + 1))
                        .execute(conn)?;
                    Ok(counted)
                }

                fn plain(
                    conn: &mut Conn,
                    key: i64,
                    count: fn(&mut Conn, i64) -> QueryResult<usize>,
                ) -> QueryResult<usize> {
                    attempts::transaction(conn, |conn| comment_and(conn, key, count))
                }

                fn ours(
                    conn: &mut Conn,
                    key: i64,
                    count: fn(&mut Conn, i64) -> QueryResult<usize>,
                ) -> QueryResult<usize> {
                    retry::transaction(conn, RetryPolicy::default(), |conn| {
                        comment_and(conn, key, count)
                    })
                }

                statements!(Conn, $on_conflict, $upsert, in_transaction)
            }
        }
    };
}

contenders!(PgConnection, on_conflict: (slots::counter, slots::slot), upsert: UpsertSlot);
contenders!(MysqlConnection, on_conflict: DuplicatedKeys, upsert: UpsertSlotOnMysql);
contenders!(SqliteConnection, on_conflict: (slots::counter, slots::slot), upsert: UpsertSlot);
