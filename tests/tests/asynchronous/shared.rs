//! A connection that tasks share, `&AsyncPgConnection`.

use std::cell::Cell;

use diesel::result::Error as DieselError;
use diesel::{ExpressionMethods, QueryDsl, QueryResult};
use diesel_async::{AsyncConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_sharded::Error;
use diesel_sharded::asynchronous::{Counter, RowCounter, Shared, count_many, set_total, update};
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded_tests::schema::videos::dsl::*;
use futures_util::future::{join, join_all};

use super::cached::{Conn, database};

async fn total(conn: &Conn) -> QueryResult<i64> {
    let total = videos.find(1).select(views.total());
    total.first(&mut &*conn).await
}

#[tokio::test]
async fn tasks_count_on_one_connection() {
    let (_database, conn) = &database().await;
    let tasks = (0..64).map(|task| async move {
        let shared = &mut Shared::of(conn);
        let (by_key, by_slug) = (videos.find(1), videos.filter(slug.eq("a")));
        for _ in 0..20 {
            let counted = match task % 3 {
                0 => {
                    update(by_key)
                        .set(views.eq(views + 1))
                        .execute(shared)
                        .await
                }
                1 => {
                    update(by_slug)
                        .set(views.eq(views + 1))
                        .execute(shared)
                        .await
                }
                _ => RowCounter::of(views, 1).increment(shared).await,
            };
            assert_eq!(counted, Ok(1));
        }
    });
    join_all(tasks).await;
    let shared = &mut Shared::of(conn);
    let read = RowCounter::of(views, 1).get(shared).await;
    assert_eq!((read, total(conn).await), (Ok(Some(1_380)), Ok(1_380)));
    assert_eq!(RowCounter::of(views, 99).add(1, shared).await, Ok(0));
}

/// A filter finds no shard of a new row.
#[tokio::test]
async fn a_filter_creates_the_shards_that_are_missing() {
    let (_database, conn) = &database().await;
    let shared = &mut Shared::of(conn);
    for (filter, rows) in [(vec!["a"], 1), (vec!["a", "b"], 2), (vec!["none"], 0)] {
        let count = update(videos.filter(slug.eq_any(filter))).set(views.eq(views + 5));
        assert_eq!(count.execute(shared).await, Ok(rows));
    }
    assert_eq!(total(conn).await, Ok(110));
}

/// Another caller would commit it. Nor does a savepoint begin there.
#[tokio::test]
async fn inside_the_callers_transaction_nobody_else_counts_it() {
    let (database, conn) = &mut database().await;
    let combiner = &Combiner::new();
    let (combined, over) = (Cell::new(0), Cell::new(false));
    let others = (0..4).map(|_| async {
        let mut other = Conn::establish(database.url()).await.unwrap();
        let counter = RowCounter::of(views, 1).combine(combiner);
        while !over.get() {
            assert_eq!(counter.add(1, &mut other).await, Ok(1));
            combined.set(combined.get() + 1);
        }
    });
    let rolled_back = async {
        for _ in 0..50 {
            let done: QueryResult<()> = conn
                .transaction(async |conn| {
                    let shared = &mut Shared::of(conn);
                    let counter = RowCounter::of(views, 1).combine(combiner);
                    assert_eq!(counter.add(1_000_000, shared).await, Ok(1));
                    let many = count_many(views, [(1, 1), (2, 1)]).run(shared).await;
                    refused(many.map(|_| ()));
                    Err(DieselError::RollbackTransaction)
                })
                .await;
            assert_eq!(done, Err(DieselError::RollbackTransaction));
        }
        over.set(true);
    };
    join(join_all(others), rolled_back).await;
    assert_eq!(total(conn).await, Ok(100 + combined.get()));
}

fn refused(refused: QueryResult<()>) {
    let error = Error::from(refused.unwrap_err());
    assert!(matches!(error, Error::SharedConnection), "{error}");
}

/// What needs one changes nothing.
#[tokio::test]
async fn no_transaction_begins_on_it() {
    let (_database, conn) = database().await;
    let shared = &mut Shared::of(&conn);
    let many = count_many(views, [(1, 1), (2, 1)]).run(shared).await;
    let set = set_total(videos.find(1), views, 5).execute(shared).await;
    let named = Counter::named("new").add(1, shared).await;
    for outcome in [many.map(|_| ()), set.map(|_| ()), named] {
        refused(outcome);
    }
    assert_eq!(total(&conn).await, Ok(100));
}

#[tokio::test]
async fn inside_the_callers_transaction_a_count_is_part_of_it() {
    let (_database, mut conn) = database().await;
    for commits in [false, true] {
        let done: QueryResult<()> = conn
            .transaction(async |conn| {
                let counted = RowCounter::of(views, 1).add(5, &mut Shared::of(conn)).await;
                assert_eq!((counted, total(conn).await), (Ok(1), Ok(105)));
                match commits {
                    true => Ok(()),
                    false => Err(DieselError::RollbackTransaction),
                }
            })
            .await;
        assert_eq!(done.is_ok(), commits);
        assert_eq!(total(&conn).await, Ok(if commits { 105 } else { 100 }));
    }
}

/// As by folds that remove shards, one after another.
#[tokio::test]
async fn a_shard_that_is_removed_each_time_is_created_again() {
    let (_database, conn) = &database().await;
    let removes = "CREATE SEQUENCE created; CREATE FUNCTION removes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('created') <= 7 THEN DELETE FROM videos_shards WHERE id = NEW.id; END IF; RETURN NULL; END $$;
         CREATE TRIGGER removes AFTER INSERT ON videos_shards FOR EACH ROW EXECUTE FUNCTION removes()";
    let run = async |sql| (&mut &*conn).batch_execute(sql).await;
    assert_eq!(run(removes).await, Ok(()));
    let shared = &mut Shared::of(conn);
    for way in 0..3 {
        let again = "DELETE FROM videos_shards; ALTER SEQUENCE created RESTART";
        assert_eq!(run(again).await, Ok(()));
        let by_key = update(videos.find(1)).set(views.eq(views + 1));
        let by_slug = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
        let counted = match way {
            0 => RowCounter::of(views, 1).add(1, shared).await,
            1 => by_key.execute(shared).await,
            _ => by_slug.execute(shared).await,
        };
        assert_eq!((counted, total(conn).await), (Ok(1), Ok(101)));
    }
}

/// An increment that met a conflict inside a transaction is not repeated after its end.
#[tokio::test]
async fn a_rollback_of_another_task_takes_no_count_out_of_its_transaction() {
    let (database, conn) = &database().await;
    let locks = &mut Conn::establish(database.url()).await.unwrap();
    let count = || async {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        let count = count.shard_choice(ShardChoice::Striped); // no matter who else counts on such a row here
        count.execute(&mut Shared::of(conn)).await
    };
    for _ in 0..3 {
        assert_eq!(count().await, Ok(1)); // keeps the statement prepared
    }
    let lock = "BEGIN; SELECT 1 FROM videos_shards FOR UPDATE";
    locks.batch_execute(lock).await.unwrap();
    let begin = "SET lock_timeout = '100ms'; BEGIN";
    (&mut &*conn).batch_execute(begin).await.unwrap();
    let rolled_back = async { (&mut &*conn).batch_execute("ROLLBACK").await };
    let (counted, rolled_back) = join(count(), rolled_back).await;
    assert_eq!(rolled_back, Ok(()));
    assert!(counted.is_err(), "{counted:?}");
    locks.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(total(conn).await, Ok(103));
}
