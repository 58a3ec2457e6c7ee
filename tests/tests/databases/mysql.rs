//! The cases of `cases/`, and those of MySQL and MariaDB alone.

#[path = "blocking/mod.rs"]
mod blocking;
#[path = "cases/mod.rs"]
mod cases;
#[path = "hostile/mod.rs"]
mod hostile;
#[path = "servers/mod.rs"]
mod servers;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};
use diesel_sharded::{Counter, RowCounter, ShardsTable, Unfit, fold, set_total, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, assert_matches, edit, insert, number, sent};

/// The crate that the cases test.
use diesel_sharded as api;

use self::cases::{count, total_of};

type Conn = MysqlConnection;

servers::server_tests!(mysql);

/// Without its strict mode MySQL cuts values that do not fit, and reports nothing.
#[test]
fn what_a_base_would_cut_is_not_folded() {
    let (_database, conn) = &mut servers::database();
    edit!(videos.find(1), likes.eq(i32::MAX), conn);
    count!(videos, likes.eq(likes + 1), conn);
    conn.batch_execute("SET SESSION sql_mode = 'PIPES_AS_CONCAT'")
        .unwrap();
    let folded = fold(videos).run(conn).unwrap();
    let unfit = vec![(
        1,
        Unfit::NotWritten {
            field: "likes".into(),
        },
    )];
    assert_eq!((folded.parents, folded.unfit), (2, unfit));
    let shards = "CAST(SUM(likes) AS SIGNED) FROM videos_shards WHERE id = 1";
    assert_eq!(number!(shards, conn), 1);
}

/// A counter that the caller's snapshot does not show is set all the same.
#[test]
fn a_named_counter_is_set_beyond_the_callers_snapshot() {
    let (database, mut conn) = servers::database();
    let mut other = Conn::connect(&database);
    conn.run_pending_migrations(diesel_sharded::MIGRATIONS)
        .unwrap();
    let counter = Counter::named("new");
    let set: QueryResult<()> =
        Transaction::new()
            .isolation(Isolation::RepeatableRead)
            .run(&mut conn, |conn| {
                counter.get(conn)?; // fixes the snapshot
                if counter.get(&mut other)? == 0 {
                    counter.increment(&mut other)?;
                }
                counter.set(7, conn)
            });
    assert_eq!((set, counter.get(&mut other)), (Ok(()), Ok(7)));
}

/// A READ COMMITTED transaction reads exact totals, beside its own counts, while others fold.
#[test]
fn a_read_committed_transaction_reads_right_beside_a_fold() {
    let (database, mut conn) = servers::database();
    let mut other = Conn::connect(&database);
    count(1, 12, &mut other).unwrap();
    let read: QueryResult<(i64, i64)> =
        Transaction::new()
            .isolation(Isolation::ReadCommitted)
            .run(&mut conn, |conn| {
                let before = servers::total(conn);
                let _ = fold(videos).run(&mut other)?;
                count(1, 1, conn)?;
                Ok((before, servers::total(conn)))
            });
    assert_eq!(read, Ok((112, 113)));
}

/// MySQL commits at `LOCK TABLES` and `DROP TABLE`: a failure in between must not fold twice.
#[test]
fn a_drop_that_fails_loses_and_doubles_nothing() {
    use diesel_sharded_tests::schema::videos as table;
    let (_database, conn) = &mut servers::database();
    count(1, 5, conn).unwrap();
    let inside = conn.transaction(|conn| ShardsTable::of(table::table).drop(conn));
    assert_eq!(inside, Err(diesel::result::Error::AlreadyInTransaction));
    // Another table's foreign key keeps the shards table from being dropped.
    conn.batch_execute(
        "CREATE TABLE spies (id BIGINT, shard INTEGER, FOREIGN KEY (id, shard) REFERENCES videos_shards (id, shard))",
    )
    .unwrap();
    for _ in 0..2 {
        ShardsTable::of(table::table).drop(conn).unwrap_err();
        assert_eq!(servers::total(conn), 105);
        // Neither a lock nor a transaction is left behind.
        assert_eq!(count(1, 0, conn), Ok(1));
        assert_eq!(number!("@@autocommit", conn), 1);
    }
    conn.batch_execute("DROP TABLE spies").unwrap();
    ShardsTable::of(table::table).drop(conn).unwrap();
    assert_eq!(videos.find(1).select(views).first(conn), Ok(105_i64));
}

/// An operation that holds rows turns autocommit off, and restores it however the operation ends.
#[test]
fn a_guarded_transaction_leaves_autocommit_on() {
    let (database, conn) = &mut servers::database();
    let guarded = |end: &str, conn: &mut Conn, work: &dyn Fn(&mut Conn)| {
        let ((), sent) = sent(conn, work);
        let place = |sql: &str| sent.iter().position(|sent| sent.starts_with(sql));
        let places = [
            "SET @diesel_sharded_autocommit = @@autocommit, autocommit = 0",
            "BEGIN",
            "SAVEPOINT diesel_sharded",
            end,
            "SET autocommit = COALESCE(@diesel_sharded_autocommit, @@autocommit), @diesel_sharded_autocommit = NULL",
        ]
        .map(|sql| place(sql).unwrap_or_else(|| panic!("no {sql} in {sent:?}")));
        assert!(places.is_sorted(), "{sent:?}");
        let locked = sent.iter().position(|sent| {
            let locks = sent.contains("FROM `videos` WHERE") && sent.contains(" FOR UPDATE");
            sent.starts_with("SELECT `videos`.`id`") && locks
        });
        assert!(
            Some(places[2]) < locked && locked < Some(places[3]),
            "{sent:?}"
        );
        let checked = place("RELEASE SAVEPOINT diesel_sharded");
        assert_eq!(checked.is_some(), end == "COMMIT", "{sent:?}");
        assert_eq!(number!("@@autocommit", conn), 1);
        assert!(checked < place("COMMIT") || end != "COMMIT", "{sent:?}");
    };
    assert_eq!(count(1, 1, conn), Ok(1));
    guarded("COMMIT", conn, &|conn| {
        drop(fold(videos).run(conn).unwrap())
    });
    let set = |conn: &mut Conn| set_total(videos.find(1), likes, 7).execute(conn);
    guarded("COMMIT", conn, &|conn| assert_eq!(set(conn), Ok(1)));
    // No room was handed out yet.
    let bounded = RowCounter::of(likes, 1).never_above(7);
    guarded("COMMIT", conn, &|conn| {
        assert_eq!(bounded.add(-7, conn), Ok(true))
    });
    // A conflict.
    let mut other = Conn::connect(database);
    other
        .batch_execute("BEGIN; SELECT 1 FROM videos FOR UPDATE")
        .unwrap();
    conn.batch_execute("SET SESSION innodb_lock_wait_timeout = 1")
        .unwrap();
    guarded("ROLLBACK", conn, &|conn| {
        let set = set_total(videos.find(1), likes, 9).retry(RetryPolicy::never());
        let error = diesel_sharded::Error::from(set.execute(conn).unwrap_err());
        assert_matches!(error, diesel_sharded::Error::ConflictPersisted { .. });
    });
    other.batch_execute("COMMIT").unwrap();
    // An error.
    conn.batch_execute("ALTER TABLE videos_shards RENAME TO away")
        .unwrap();
    guarded("ROLLBACK", conn, &|conn| drop(set(conn).unwrap_err()));
    conn.batch_execute("ALTER TABLE away RENAME TO videos_shards")
        .unwrap();
    assert_eq!(count(1, 1, conn), Ok(1));
    assert_eq!(servers::total(&mut other), 102);
}

/// MariaDB counts and claims the key by a transaction inside one statement. A `KILL QUERY` in the middle of it leaves nothing open.
#[test]
fn a_killed_count_leaves_no_key_and_no_transaction() {
    if !servers::is("mariadb") {
        return; // MySQL has no such statement
    }
    let (database, mut conn) = servers::database();
    conn.run_pending_migrations(diesel_sharded::MIGRATIONS)
        .unwrap();
    let connect = || Conn::connect(&database);
    let (mut holder, mut victim) = (connect(), connect());
    let id_ = number!("CONNECTION_ID()", &mut victim);
    let count = |key: &str, conn: &mut Conn| {
        update(videos.find(1))
            .set(views.eq(views + 1))
            .retry(RetryPolicy::never())
            .idempotency_key(key)
            .execute(conn)
    };
    assert_eq!(count("known", &mut victim), Ok(1));
    holder
        .batch_execute("BEGIN; UPDATE videos_shards SET likes = likes + 1 WHERE id = 1")
        .unwrap();
    let killed = std::thread::scope(|scope| {
        let counting = scope.spawn(|| count("killed", &mut victim));
        let waits = format!(
            "COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = {id_} \
             AND trx_state = 'LOCK WAIT'"
        );
        while number!(&waits, &mut conn) == 0 {
            assert!(!counting.is_finished());
            // The server renews this table only if nobody has read it for 100 ms.
            std::thread::sleep(std::time::Duration::from_millis(150));
        }
        conn.batch_execute(&format!("KILL QUERY {id_}")).unwrap();
        counting.join().unwrap()
    });
    assert!(killed.is_err(), "{killed:?}");
    assert_eq!(number!("@@in_transaction", &mut victim), 0);
    let keys = "COUNT(*) FROM diesel_sharded_idempotency_keys WHERE `key` = 'killed'";
    assert_eq!(number!(keys, &mut conn), 0);
    holder.batch_execute("ROLLBACK").unwrap();
    assert_eq!(count("killed", &mut victim), Ok(1));
    assert_eq!(total_of(1, &mut conn), 102);
}

mod unsigned_parent {
    use super::*;

    diesel_sharded_tests::counted_table! {
        #[sharded(shards = 2)]
        Page of pages (id) {
            id -> Unsigned<BigInt> = u64,
            #[sharded] hits -> Unsigned<BigInt> = u64,
            #[sharded] likes -> Unsigned<Integer> = u32,
        }
    }

    /// A single shard goes below zero, where `signed - unsigned` would fail.
    #[test]
    fn counts_up_and_down() {
        use self::pages::dsl::*;
        let database = Conn::database();
        let conn = &mut Conn::connect(&database);
        conn.batch_execute(
            "CREATE TABLE pages (id BIGINT UNSIGNED PRIMARY KEY, hits BIGINT UNSIGNED NOT NULL, likes INTEGER UNSIGNED NOT NULL)",
        )
        .unwrap();
        ShardsTable::of(pages).create(conn).unwrap();
        let row = (id.eq(1), hits.eq(u64::MAX - 10), likes.eq(5));
        insert!(pages, row, conn);
        for _ in 0..10 {
            let changes = (hits.eq(hits + 3), likes.eq(likes + 1));
            count!(pages.find(1), changes, conn);
            let changes = (hits.eq(hits - 2), likes.eq(likes - 1));
            count!(pages.find(1), changes, conn);
        }
        let totals = pages.select((hits.total(), likes.total()));
        assert_eq!(totals.first(conn), Ok((u64::MAX, 5_u32)));
        count!(pages.find(1), likes.eq(likes - 6), conn);
        let below_zero = pages.select(likes.total()).first::<u32>(conn);
        assert!(below_zero.is_err(), "{below_zero:?}");
        count!(pages.find(1), likes.eq(likes + 7), conn);
        let _ = fold(pages).run(conn).unwrap(); // after plain counts, before bounded ones
        let bounded = RowCounter::of(likes, 1).never_below(0).never_above(10);
        for (n, fits) in [
            (5, false),
            (4, true),
            (-11, false),
            (-10, true),
            (1, true),
            (5, true),
        ] {
            assert_eq!(bounded.add(n, conn), Ok(fits), "{n}");
        }
        assert_eq!(RowCounter::of(likes, 1).add(-1, conn), Ok(1)); // a plain count, before a fold
        let folded = fold(pages).run(conn).unwrap();
        assert_eq!(
            (folded.unfit, pages.select((hits, likes)).first(conn)),
            (vec![], Ok((u64::MAX, 5_u32)))
        );
        count!(pages.find(1), likes.eq(likes - 6), conn);
        let unfit = fold(pages).run(conn).unwrap().unfit;
        assert_eq!(unfit, [(1, Unfit::OutOfRange)]); // below zero
        count!(pages.find(1), likes.eq(likes + 7), conn);
        ShardsTable::of(pages).drop(conn).unwrap();
        assert_eq!(
            pages.select((hits, likes)).first(conn),
            Ok((u64::MAX, 6_u32))
        );
    }
}

/// An `ALTER TABLE` of the parent holds its metadata lock while it waits for transactions that wrote shards. A transaction that
/// named the parent only after its shards would wait for the other, and both would until a timeout.
#[test]
fn an_alter_of_the_parent_waits_for_counts_that_read_it_later() {
    type Counts = fn(&mut Conn) -> QueryResult<i64>;
    let counts: [Counts; 4] = [
        |conn| {
            let count = update(videos.find(1)).set(views.eq(views + 1));
            count.returning(views).get_result(conn)
        },
        |conn| {
            let count = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
            count.returning(views).get_result(conn)
        },
        |conn| {
            let counted = RowCounter::of(views, 1).add_and_get(1, conn)?;
            counted.ok_or(diesel::NotFound)
        },
        |conn| {
            conn.transaction(|conn| {
                count(1, 1, conn)?;
                videos.find(1).select(views.total()).first(conn)
            })
        },
    ];
    let (database, mut conn) = servers::database();
    count(1, 1, &mut conn).unwrap();
    for (number, count) in (0..).zip(counts) {
        let (mut alter, mut look) = (Conn::connect(&database), Conn::connect(&database));
        let (begin, begun) = mpsc::channel();
        let mut is_first = true;
        let altering = thread::spawn(move || {
            begun.recv().unwrap();
            alter.batch_execute(&format!(
                "SET SESSION innodb_lock_wait_timeout = 5; ALTER TABLE videos ADD COLUMN note_{number} INTEGER"
            ))
        });
        // Before the counted row is read, the other one is under way.
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            let InstrumentationEvent::StartQuery { query, .. } = event else {
                return;
            };
            let reads = query.to_string().contains("COALESCE");
            if !reads || !std::mem::take(&mut is_first) {
                return;
            }
            begin.send(()).unwrap();
            let waits = "SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'ALTER TABLE videos%' AND TIME_MS > 300";
            for _ in 0..100 {
                if diesel::sql_query(waits).execute(&mut look) == Ok(1) {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(count(&mut conn), Ok(102 + number));
        conn.set_instrumentation(|_: InstrumentationEvent<'_>| {});
        let altered = altering.join().unwrap();
        assert_eq!(altered, Ok(()), "{number}");
    }
}
