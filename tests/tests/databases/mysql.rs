//! The cases of `cases/`, and those of MySQL and MariaDB alone.

#[path = "blocking/mod.rs"]
mod blocking;
#[path = "cases/mod.rs"]
mod cases;
#[path = "hostile/mod.rs"]
mod hostile;
#[path = "servers/mod.rs"]
mod servers;

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};
use diesel_sharded::{
    Counter, Error, RowCounter, ShardsTable, Unfit, count_many, fold, set_total, update,
};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::proxy::Proxy;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, assert_matches, edit, insert, number, sent};

/// The crate that the cases test.
use diesel_sharded as api;

use self::cases::{count, on_threads, total_of};

type Conn = MysqlConnection;

/// Without its strict mode MySQL cuts values that do not fit, and reports nothing.
#[test]
fn what_a_base_would_cut_is_not_folded() {
    let [conn] = &mut *servers::database();
    edit!(videos.find(1), likes.eq(i32::MAX), conn);
    count!(videos, likes.eq(likes + 1), conn);
    conn.run("SET SESSION sql_mode = 'PIPES_AS_CONCAT'");
    let folded = fold(videos).run(conn).unwrap();
    let field = "likes".into();
    let unfit = vec![(1, Unfit::NotWritten { field })];
    assert_eq!((folded.parents, folded.unfit), (2, unfit));
    let shards = "CAST(SUM(likes) AS SIGNED) FROM videos_shards WHERE id = 1";
    assert_eq!(number!(shards, conn), 1);
}

/// A proxy that splits reads from writes sends them to the primary there, and elsewhere to a replica.
#[test]
fn what_decides_a_write_is_read_in_a_transaction() {
    let [conn] = &mut *servers::database();
    count!(videos, views.eq(views + 1), conn);
    edit!(videos.find(2), views.eq(0), conn);
    let outside = Arc::new(Mutex::new(vec![]));
    let (notes, mut is_outside) = (Arc::clone(&outside), true);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        let InstrumentationEvent::StartQuery { query, .. } = event else {
            return;
        };
        let query = query.to_string();
        let is = |word| query.starts_with(word);
        if is("BEGIN") || is("START TRANSACTION") {
            is_outside = false;
        } else if is("COMMIT") || (is("ROLLBACK") && !query.contains("SAVEPOINT")) {
            is_outside = true;
        } else if is_outside {
            notes.lock().unwrap().push(query);
        }
    });
    assert_eq!(fold(videos).run(conn).unwrap().parents, 3);
    let stock = RowCounter::of(views, 2).never_below(0);
    assert_eq!(stock.add(-1, conn), Ok(true));
    assert_eq!(stock.add(-1, conn), Ok(false));
    assert_eq!(stock.add_up_to(-3, conn), Ok(0));
    let reads = |query: &&String| query.starts_with("SELECT") && query.contains("`videos`");
    let outside = outside.lock().unwrap();
    let outside: Vec<_> = outside.iter().filter(reads).collect();
    assert!(outside.is_empty(), "{outside:#?}");
}

/// A counter that the caller's snapshot does not show is set all the same.
#[test]
fn a_named_counter_is_set_beyond_the_callers_snapshot() {
    let [conn, other] = &mut *Fixture::<Conn, _>::with_counters();
    let counter = Counter::named("new");
    let transaction = Transaction::new().isolation(Isolation::RepeatableRead);
    let set: QueryResult<()> = transaction.run(conn, |conn| {
        counter.get(conn)?; // fixes the snapshot
        if counter.get(other)? == 0 {
            counter.increment(other)?;
        }
        counter.set(7, conn)
    });
    assert_eq!((set, counter.get(other)), (Ok(()), Ok(7)));
}

mod pages {
    diesel_sharded_tests::counted_table! {
        Page of pages (path) {
            path -> Text = String,
            #[sharded] views -> BigInt = i64,
        }
    }

    pub mod declared {
        diesel_sharded_tests::counted_table! {
            Page of pages (path) {
                #[sharded(sql_type = "VARCHAR(700)")] path -> Text = String,
                #[sharded] views -> BigInt = i64,
            }
        }
    }
}

/// Without its strict mode MySQL would cut it to another row's key.
#[test]
fn a_key_that_is_longer_than_that_of_its_shards_is_refused() {
    use self::pages::declared::pages as declared;
    use self::pages::pages;
    let [conn] = &mut *Fixture::<Conn, _>::empty();
    conn.run("SET SESSION sql_mode = ''");
    conn.run("CREATE TABLE pages (path VARCHAR(700) PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0)");
    let tables = ShardsTable::of(pages::table);
    for table in [tables, tables.without_foreign_key()] {
        let refused = Error::from(table.create(conn).unwrap_err());
        let told = refused.to_string();
        let attribute = "write `#[sharded(sql_type = \"varchar(700) CHARACTER SET ";
        assert!(
            told.contains(attribute) && told.contains("`path`") && told.contains("255"),
            "{told}"
        );
        let left = "COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'pages_%'";
        assert_eq!(number!(left, conn), 0);
    }
    ShardsTable::of(declared::table).create(conn).unwrap();
    let long = "a".repeat(700);
    for key in [&long[..255], &long] {
        insert!(declared::table, declared::path.eq(key), conn);
    }
    let count = update(declared::table.find(&long)).set(declared::views.eq(declared::views + 1));
    assert_eq!(count.execute(conn), Ok(1));
    let totals = declared::table
        .select(declared::views.total())
        .order(declared::path);
    assert_eq!(totals.load::<i64>(conn), Ok(vec![0, 1]));
}

/// MySQL commits at `LOCK TABLES` and `DROP TABLE`: a failure in between must not fold twice.
#[test]
fn a_drop_that_fails_loses_and_doubles_nothing() {
    use diesel_sharded_tests::schema::videos as table;
    let [conn] = &mut *servers::database();
    count(1, 5, conn).unwrap();
    let inside = conn.transaction(|conn| ShardsTable::of(table::table).drop(conn));
    assert_eq!(inside, Err(diesel::result::Error::AlreadyInTransaction));
    // Another table's foreign key keeps the shards table from being dropped.
    conn.run(
        "CREATE TABLE spies (id BIGINT, shard INTEGER, FOREIGN KEY (id, shard) REFERENCES videos_shards (id, shard))",
    );
    for _ in 0..2 {
        ShardsTable::of(table::table).drop(conn).unwrap_err();
        assert_eq!(servers::total(conn), 105);
        // Neither a lock nor a transaction is left behind.
        assert_eq!(count(1, 0, conn), Ok(1));
        assert_eq!(number!("@@autocommit", conn), 1);
    }
    conn.run("DROP TABLE spies");
    ShardsTable::of(table::table).drop(conn).unwrap();
    assert_eq!(videos.find(1).select(views).first(conn), Ok(105_i64));
}

/// An operation that holds rows turns autocommit off, and restores it however the operation ends.
#[test]
fn a_guarded_transaction_leaves_autocommit_on() {
    let [conn, other] = &mut *servers::database();
    let guarded = |end: &str, conn: &mut Conn, work: &dyn Fn(&mut Conn)| {
        let ((), sent) = sent(conn, work);
        // What it reads before is a transaction of its own.
        let begins = sent
            .iter()
            .position(|sql| sql.starts_with("SET @diesel_sharded_autocommit"));
        let sent = &sent[begins.unwrap_or(0)..];
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
    other.run("BEGIN; SELECT 1 FROM videos FOR UPDATE");
    conn.run("SET SESSION innodb_lock_wait_timeout = 1");
    guarded("ROLLBACK", conn, &|conn| {
        let set = set_total(videos.find(1), likes, 9).retry(RetryPolicy::never());
        let error = diesel_sharded::Error::from(set.execute(conn).unwrap_err());
        assert_matches!(error, diesel_sharded::Error::ConflictPersisted { .. });
    });
    other.run("COMMIT");
    // An error.
    conn.run("ALTER TABLE videos_shards RENAME TO away");
    guarded("ROLLBACK", conn, &|conn| drop(set(conn).unwrap_err()));
    conn.run("ALTER TABLE away RENAME TO videos_shards");
    assert_eq!(count(1, 1, conn), Ok(1));
    assert_eq!(servers::total(other), 102);
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
        let own = &mut Fixture::<Conn, _>::empty();
        let (database, [conn]) = own.parts();
        conn.run(
            "CREATE TABLE pages (id BIGINT UNSIGNED PRIMARY KEY, hits BIGINT UNSIGNED NOT NULL, likes INTEGER UNSIGNED NOT NULL)",
        );
        ShardsTable::of(pages).create(conn).unwrap();
        let key = u64::MAX;
        let row = (id.eq(key), hits.eq(u64::MAX - 330), likes.eq(5));
        insert!(pages, row, conn);
        let bases = || pages.select((hits, likes));
        for _ in 0..10 {
            let changes = (hits.eq(hits + 3), likes.eq(likes + 1));
            count!(pages.find(key), changes, conn);
            let changes = (hits.eq(hits - 2), likes.eq(likes - 1));
            count!(pages.find(key), changes, conn);
        }
        let combiner = Combiner::new();
        on_threads(16, database, |_, conn| {
            for _ in 0..20 {
                let up = update(pages.find(key)).set((hits.eq(hits + 3), likes.eq(likes + 1)));
                assert_eq!(up.combine(&combiner).execute(conn), Ok(1));
                let down = update(pages.find(key)).set((hits.eq(hits - 2), likes.eq(likes - 1)));
                assert_eq!(down.combine(&combiner).execute(conn), Ok(1));
            }
        });
        let totals = pages.select((hits.total(), likes.total()));
        assert_eq!(totals.first(conn), Ok((u64::MAX, 5_u32)));
        count!(pages.find(key), likes.eq(likes - 6), conn);
        let below_zero = pages.select(likes.total()).first::<u32>(conn);
        assert!(below_zero.is_err(), "{below_zero:?}");
        count!(pages.find(key), likes.eq(likes + 7), conn);
        let _ = fold(pages).run(conn).unwrap(); // after plain increments, before bounded ones
        let bounded = RowCounter::of(likes, key).never_below(0).never_above(10);
        let added = [5, 4, -11, -10, 1, 5].map(|n| bounded.add(n, conn));
        let fits = [false, true, false, true, true, true];
        assert_eq!(added, fits.map(Ok));
        assert_eq!(RowCounter::of(likes, key).add(-1, conn), Ok(1)); // a plain increment, before a fold
        let folded = fold(pages).run(conn).unwrap();
        assert_eq!(folded.unfit, []);
        assert_eq!(bases().first(conn), Ok((u64::MAX, 5_u32)));
        count!(pages.find(key), likes.eq(likes - 6), conn);
        let unfit = fold(pages).run(conn).unwrap().unfit;
        assert_eq!(unfit, [(key, Unfit::OutOfRange)]); // below zero
        count!(pages.find(key), likes.eq(likes + 7), conn);
        ShardsTable::of(pages).drop(conn).unwrap();
        assert_eq!(bases().first(conn), Ok((u64::MAX, 6_u32)));
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
    let own = &mut servers::database();
    let (database, [conn]) = own.parts();
    count(1, 1, conn).unwrap();
    for (number, count) in (0..).zip(counts) {
        let (mut alter, mut look) = (Conn::connect(database), Conn::connect(database));
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
        assert_eq!(count(conn), Ok(102 + number));
        conn.set_instrumentation(|_: InstrumentationEvent<'_>| {});
        assert_eq!(altering.join().unwrap(), Ok(()), "{number}");
    }
}

mod slots {
    diesel_sharded_tests::counted_table! {
        Slot of slots (begin) {
            begin -> Timestamp = chrono::NaiveDateTime,
            #[sharded] seats -> BigInt = i64,
        }
    }

    pub mod declared {
        diesel_sharded_tests::counted_table! {
            Slot of slots (begin) {
                #[sharded(sql_type = "TIMESTAMP")] begin -> Timestamp = chrono::NaiveDateTime,
                #[sharded] seats -> BigInt = i64,
            }
        }
    }
}

/// In this session the server would set a `TIMESTAMP` without a default to the time of each update.
#[test]
fn a_key_that_the_server_would_change_stays() {
    use self::slots::declared::slots::dsl::*;
    let [conn] = &mut *Fixture::<Conn, _>::empty();
    conn.run("SET SESSION explicit_defaults_for_timestamp = OFF");
    conn.run("CREATE TABLE slots (begin TIMESTAMP NOT NULL DEFAULT '2000-01-01' PRIMARY KEY, seats BIGINT NOT NULL DEFAULT 0)");
    let told = ShardsTable::of(self::slots::slots::table).create(conn);
    let told = told.unwrap_err().to_string();
    assert!(
        told.contains("`#[sharded(sql_type = \"timestamp\")]` on the field `begin`"),
        "{told}"
    );
    ShardsTable::of(slots).create(conn).unwrap();
    let day = chrono::NaiveDate::from_ymd_opt(2026, 10, 25).unwrap();
    let at = day.and_hms_opt(12, 0, 0).unwrap();
    insert!(slots, begin.eq(at), conn);
    for _ in 0..2 {
        assert_eq!(count!(slots.find(at), seats.eq(seats + 1), conn), 1);
    }
    assert_eq!(
        slots.select((begin, seats.total())).first(conn),
        Ok((at, 2_i64))
    );
}

mod showings {
    diesel_sharded_tests::counted_table! {
        Showing of showings (begin) {
            begin -> Datetime = chrono::NaiveDateTime,
            #[sharded] seats -> BigInt = i64,
        }
    }
}

/// A microsecond apart.
#[test]
fn keys_of_a_datetime() {
    use self::showings::showings::dsl::*;
    let [conn] = &mut *Fixture::<Conn, _>::empty();
    conn.run(
        "CREATE TABLE showings (begin DATETIME(6) PRIMARY KEY, seats BIGINT NOT NULL DEFAULT 0)",
    );
    ShardsTable::of(showings).create(conn).unwrap();
    let day = chrono::NaiveDate::from_ymd_opt(2026, 10, 25).unwrap();
    let keys = [0, 1].map(|micro| day.and_hms_micro_opt(12, 0, 0, micro).unwrap());
    for key in keys {
        insert!(showings, begin.eq(key), conn);
    }
    for (key, n) in keys.into_iter().zip([1, 10]) {
        assert_eq!(count!(showings.find(key), seats.eq(seats + n), conn), 1);
    }
    let counted = count_many(seats, keys.map(|key| (key, 100)));
    assert_eq!(counted.run(conn).unwrap().rows, 2);
    fold(showings).keep_shards(0).run(conn).unwrap();
    let bases = showings.select(seats).order(begin).load::<i64>(conn);
    assert_eq!(bases, Ok(vec![101, 110]));
}

/// InnoDB takes no foreign key to a partitioned table.
#[test]
fn a_partitioned_parent() {
    use diesel_sharded_tests::schema::{Day, downloads::dsl::*};
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    conn.run(
        "DROP TABLE downloads_shards; DROP TABLE downloads;
         CREATE TABLE downloads (version INTEGER, day INTEGER, number INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (version, day)) \
         PARTITION BY HASH (version) PARTITIONS 4",
    );
    let table = ShardsTable::of(downloads);
    let refused = table.create(conn).unwrap_err().to_string();
    assert!(refused.contains("oreign key"), "{refused}");
    table.without_foreign_key().create(conn).unwrap();
    insert!(downloads, (version.eq(1), day.eq(Day(1))), conn);
    let counted = count!(downloads.find((1, Day(1))), number.eq(number + 5), conn);
    assert_eq!(counted, 1);
    let folded = fold(downloads).run(conn).unwrap();
    assert!(folded.finished && folded.unfit.is_empty());
    assert_eq!(downloads.select(number).load::<i32>(conn), Ok(vec![5]));
}

/// A proxy has lost its server after that has committed, and says so in words of its own.
#[test]
fn an_error_that_may_be_a_proxys_leaves_the_outcome_unknown() {
    let mut own = Fixture::<Conn, 1>::with_tables();
    let (database, [conn]) = own.parts();
    let (proxy, url) = Proxy::before(database.url());
    let behind = &mut Conn::establish(&url).unwrap();
    let mut counted = 0;
    let error = loop {
        // The client asks more than the one thing.
        let answer = b"\x1b\0\0\x01\xff\x70\x17#HY000the server is away";
        if counted >= 3 {
            proxy.answer_after(counted - 3, *answer, false);
        }
        match count(1, 1, behind) {
            Ok(rows) => counted += rows as u32,
            Err(error) => break Error::from(error),
        }
    };
    assert_matches!(error, Error::OutcomeUnknown { .. });
    assert_eq!(total_of(1, conn), 101 + i64::from(counted));
}
