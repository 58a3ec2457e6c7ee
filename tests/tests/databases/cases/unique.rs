//! Counts of visitors, each once in a window.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::api::idempotency;
use super::api::retry::{Isolation, Transaction};
use super::api::unique::Unique::{self, Counted, NoSuchRow, Repeat};
use super::api::unique::remove_expired;
use super::support::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded_tests::HUNDRED_YEARS;
use diesel_sharded_tests::schema::videos::dsl::*;

const DAY: Duration = Duration::from_secs(86_400);

fn view(video: i64, visitor: &str, conn: &mut Conn) -> QueryResult<Unique> {
    let view = viewed!(videos.find(video)).once_per(visitor, HUNDRED_YEARS);
    view.count(conn).done()
}

#[test]
fn a_visitor_counts_once() {
    let Connected { conn, database } = &mut set_up_with_counters();
    assert_eq!(view(1, "ann", conn), Ok(Counted));
    assert_eq!(view(1, "ann", conn), Ok(Repeat));
    assert_eq!(view(1, "bob", conn), Ok(Counted));
    assert_eq!(view(2, "ann", conn), Ok(Counted));
    // A restart, or another process: only the database remembers.
    *conn = Conn::connect(database);
    assert_eq!(view(1, "ann", conn), Ok(Repeat));
    // By any filter, and several fields.
    for answer in [Counted, Repeat] {
        let both = (views.eq(views + 5), likes.eq(likes - 1));
        let all = update(videos.filter(id.le(2))).set(both);
        gives!(all.once_per("ann", HUNDRED_YEARS).count(conn), answer);
    }
    assert_eq!(totals(conn), [107, 206, 300]);
    assert_eq!(number_of_keys(conn), 4);
}

#[test]
fn a_missing_row_is_no_visit() {
    let conn = &mut set_up_with_counters().conn;
    assert_eq!(view(9, "ann", conn), Ok(NoSuchRow));
    let row = RowCounter::of(views, 9).once_per("ann", HUNDRED_YEARS);
    gives!(row.add(1, conn), NoSuchRow);
    assert_eq!(number_of_keys(conn), 0);
    insert!(videos, (id.eq(9), slug.eq("i"), title.eq("I")), conn);
    assert_eq!(view(9, "ann", conn), Ok(Counted));
    assert_eq!(view(9, "ann", conn), Ok(Repeat));
}

/// The amount does not distinguish visits, the field does.
#[test]
fn counters_and_updates_of_a_row_count_a_visitor_together() {
    let conn = &mut set_up_with_counters().conn;
    let of = |column| RowCounter::of(column, 1).once_per("ann", HUNDRED_YEARS);
    gives!(of(views).add(3, conn), Counted);
    assert_eq!(view(1, "ann", conn), Ok(Repeat));
    let named = |name: &str| Counter::named(name).once_per("ann", HUNDRED_YEARS);
    gives!(named("a").add(2, conn), Counted);
    gives!(named("a").add(2, conn), Repeat);
    gives!(named("b").add(-1, conn), Counted);
    let other_field = RowCounter::of(likes, 1).once_per("ann", HUNDRED_YEARS);
    gives!(other_field.add(1, conn), Counted);
    assert_eq!(total_of(1, conn), 103);
    gives!(Counter::named("a").get(conn), 2);
    gives!(Counter::named("b").get(conn), -1);
}

diesel_sharded_tests::counted_table! {
    Page of pages (site, page) {
        site -> Integer = i32,
        page -> Binary = Vec<u8>,
        #[sharded] hits -> BigInt = i64,
    }
}

/// The second part of the key is the bytes of a UUID, for databases without the type.
#[test]
fn rows_of_a_composite_key_count_apart() {
    use self::pages::dsl::*;
    let conn = &mut set_up_with_counters().conn;
    let bytes = match dialect(conn) {
        Dialect::Postgres => "BYTEA",
        Dialect::Mysql => "VARBINARY(255)",
        _ => "BLOB",
    };
    let sql = format!(
        "CREATE TABLE pages (site INTEGER NOT NULL, page {bytes} NOT NULL, hits BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (site, page))"
    );
    conn.batch_execute(&sql).unwrap();
    ShardsTable::of(pages).create(conn).unwrap();
    let uuids = [1, 2].map(|n| uuid::Uuid::from_u128(n).as_bytes().to_vec());
    let keys = [1, 2].map(|n| uuids.each_ref().map(|uuid| (n, uuid.clone())));
    for key in keys.as_flattened() {
        insert!(pages, (site.eq(key.0), page.eq(&key.1)), conn);
    }
    for answer in [Counted, Repeat] {
        for key in keys.as_flattened() {
            let hit = update(pages.find(key.clone())).set(hits.eq(hits + 1));
            let visit = hit.once_per("ann", HUNDRED_YEARS);
            gives!(visit.count(conn), answer, "{key:?}");
            let row = RowCounter::of(hits, key.clone());
            let visit = row.once_per("ann", HUNDRED_YEARS);
            gives!(visit.add(1, conn), Repeat, "{key:?}");
        }
    }
    let totals = pages.select(hits.total()).load::<i64>(conn);
    assert_eq!(totals, Ok(vec![1; 4]));
}

#[test]
fn visitors_are_any_bytes_and_are_not_stored() {
    let conn = &mut set_up_with_counters().conn;
    let long = [b'v'; 10_000];
    let visitors: [&[u8]; 7] = [b"", b"\0", b"a", b"A", b"a ", b"\xFF", &long];
    for visitor in visitors {
        for answer in [Counted, Repeat] {
            let visit = viewed!(videos.find(1)).once_per(visitor, HUNDRED_YEARS);
            assert!(!format!("{visit:?}").contains("118, 118"), "{visit:?}");
            gives!(visit.count(conn), answer, "{visitor:?}");
        }
    }
    let stored = keys::table.select(keys::key).load::<Vec<u8>>(conn).unwrap();
    assert!(stored.iter().all(|key| key.len() == 17), "{stored:?}");
    assert_eq!(total_of(1, conn), 107);
}

#[test]
fn a_visitor_who_races_counts_once() {
    let Connected { conn, database } = &mut set_up_with_counters();
    let counted = AtomicI64::new(0);
    on_threads(32, database, |_, conn| {
        let named = Counter::named("page").once_per("ann", HUNDRED_YEARS);
        for answer in [view(1, "ann", conn), named.add(1, conn).done()] {
            match answer {
                Ok(Counted) => _ = counted.fetch_add(1, Ordering::Relaxed),
                answer => assert_eq!(answer, Ok(Repeat)),
            }
        }
    });
    assert_eq!(counted.into_inner(), 2);
    assert_eq!(total_of(1, conn), 101);
    gives!(Counter::named("page").get(conn), 1);
}

#[test]
fn a_thousand_visitors_who_race_count_a_thousand_times() {
    const VISITORS: i64 = 1_000;
    let Connected { conn, database } = &mut set_up_with_counters();
    let counted = AtomicI64::new(0);
    on_threads(4, database, |thread, conn| {
        for visitor in 0..VISITORS {
            // Two begin where the other two end.
            let visitor = (visitor + thread % 2 * VISITORS / 2) % VISITORS;
            match view(1, &format!("visitor {visitor}"), conn) {
                Ok(Counted) => _ = counted.fetch_add(1, Ordering::Relaxed),
                answer => assert_eq!(answer, Ok(Repeat)),
            }
        }
    });
    assert_eq!(counted.into_inner(), VISITORS);
    assert_eq!(total_of(1, conn), 100 + VISITORS);
    assert_eq!(number_of_keys(conn), VISITORS);
}

#[test]
fn a_repeat_writes_nothing() {
    let conn = &mut set_up_with_counters().conn;
    let named = Counter::named("page").once_per("ann", HUNDRED_YEARS);
    assert_eq!(view(1, "ann", conn), Ok(Counted));
    gives!(named.add(1, conn), Counted);
    let read_only = match dialect(conn) {
        Dialect::Postgres => "SET default_transaction_read_only = on",
        Dialect::Mysql => "SET SESSION TRANSACTION READ ONLY",
        _ => "PRAGMA query_only = ON",
    };
    conn.batch_execute(read_only).unwrap();
    assert_eq!(view(1, "ann", conn), Ok(Repeat));
    gives!(named.add(1, conn), Repeat);
    assert!(view(1, "bob", conn).is_err());
}

/// A clock that a test moves forward.
fn clock() -> Instant {
    Instant::now() + Duration::from_secs(AHEAD.load(Ordering::SeqCst))
}

static AHEAD: AtomicU64 = AtomicU64::new(0);

/// A minute before and after the beginning of a window.
#[test]
fn windows_begin_at_fixed_times() {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 3_600;
    let conn = &mut set_up_with_counters().conn;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let tomorrow = DAY.as_secs() - now.as_secs() % DAY.as_secs();
    let day = DAY.as_secs() as i64;
    let mut at = |after_midnight: i64, visitor: &str, offset: i64| {
        let ahead = tomorrow as i64 + 2 * day + after_midnight;
        AHEAD.store(ahead as u64, Ordering::SeqCst);
        let policy = RetryPolicy::new().with_clock(clock);
        let visit = viewed!(videos.find(1)).retry(policy);
        let visit = visit.once_per(visitor, DAY).utc_offset(offset as i32);
        visit.count(conn).done()
    };
    assert_eq!(at(-MINUTE, "ann", 0), Ok(Counted));
    assert_eq!(at(MINUTE, "ann", 0), Ok(Counted));
    assert_eq!(at(day - MINUTE, "ann", 0), Ok(Repeat));
    assert_eq!(at(day + MINUTE, "ann", 0), Ok(Counted));
    // Midnight in Berlin comes an hour earlier, in New York five hours later.
    for (visitor, offset) in [("bob", HOUR), ("eve", -5 * HOUR)] {
        assert_eq!(at(-offset - MINUTE, visitor, offset), Ok(Counted));
        assert_eq!(at(-offset + MINUTE, visitor, offset), Ok(Counted));
        assert_eq!(at(-offset + day - MINUTE, visitor, offset), Ok(Repeat));
    }
    // These windows are the same ones.
    assert_eq!(at(day + MINUTE, "ann", day), Ok(Repeat));
    // A clock that goes back finds those counted then, and counts each of the others once.
    assert_eq!(at(-MINUTE, "ann", 0), Ok(Repeat));
    assert_eq!(at(-day - MINUTE, "ann", 0), Ok(Counted));
    for back in [-day - MINUTE, MINUTE, -day - MINUTE, day + MINUTE] {
        assert_eq!(at(back, "ann", 0), Ok(Repeat));
    }
    assert_eq!(total_of(1, conn), 108);
    // Each row expires five minutes after its window.
    let rows = keys::table.select((keys::created, keys::expires));
    let rows = rows.load::<(i64, i64)>(conn).unwrap();
    let left = rows
        .iter()
        .map(|(created, expires)| expires - created - 300);
    let mut left: Vec<_> = left.collect();
    left.sort_unstable();
    let expected = [[MINUTE; 4], [day - MINUTE; 4]].concat();
    assert_eq!(left.len(), expected.len());
    for (left, expected) in left.into_iter().zip(expected) {
        assert!((expected - MINUTE..=expected).contains(&left), "{left}");
    }
}

static BEHIND: AtomicU64 = AtomicU64::new(0);

/// The database's clock decides when a row may go, and is far beyond the end of the process's window.
#[test]
fn a_clock_that_is_behind_counts_a_visitor_once() {
    fn behind() -> Instant {
        Instant::now() - Duration::from_secs(BEHIND.load(Ordering::SeqCst))
    }
    const MINUTE: u64 = 60;
    let conn = &mut set_up_with_counters().conn;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    BEHIND.store(600 + now.as_secs() % MINUTE, Ordering::SeqCst); // a window has just begun
    for answer in [Counted, Repeat] {
        let visit = viewed!(videos.find(1)).retry(RetryPolicy::new().with_clock(behind));
        let visit = visit.once_per("ann", Duration::from_secs(MINUTE));
        gives!(visit.count(conn), answer);
        gives!(remove_expired(conn), 0);
    }
}

#[test]
fn windows_have_whole_seconds() {
    let conn = &mut set_up_with_counters().conn;
    let second = Duration::from_secs(1);
    let refused = [
        Duration::ZERO,
        second / 2,
        second * 3 / 2,
        HUNDRED_YEARS + second,
        Duration::MAX,
    ];
    for window in refused {
        let visit = viewed!(videos.find(1)).once_per("ann", window);
        refused!(visit.count(conn), Error::InvalidWindow { window: told } if *told == window);
        let named = Counter::named("page").once_per("ann", window);
        refused!(named.add(1, conn), Error::InvalidWindow { .. });
    }
    for window in [second, HUNDRED_YEARS] {
        for offset in [i32::MIN, 0, i32::MAX] {
            let visit = viewed!(videos.find(1)).once_per("ann", window);
            assert!(visit.utc_offset(offset).count(conn).done().is_ok());
        }
    }
}

/// The first visitor's increment inserts the row in a transaction, the others count by one statement where there is one.
#[test]
fn a_row_is_inserted_for_a_visitor() {
    use downloads::dsl::{day, number, version};
    let Connected { conn, database } = &mut set_up_with_counters();
    on_threads(4, database, |_, conn| {
        for visitor in 0..20 {
            let count = update(downloads::table.find((1, Day(1)))).set(number.eq(number + 2));
            let count = count.or_insert((version.eq(1), day.eq(Day(1))));
            let visit = count.once_per(format!("{visitor}"), HUNDRED_YEARS);
            assert_matches!(visit.count(conn).done(), Ok(Counted | Repeat));
        }
    });
    let numbers = downloads::table.select(number.total());
    assert_eq!(numbers.load::<i32>(conn), Ok(vec![40]));
}

#[test]
fn inside_a_transaction_the_visit_goes_with_it() {
    let conn = &mut set_up_with_counters().conn;
    let named = Counter::named("page").once_per("ann", HUNDRED_YEARS);
    rolled_back(conn, |conn| {
        for answer in [Counted, Repeat] {
            assert_eq!(view(1, "ann", conn), Ok(answer));
            gives!(named.add(1, conn), answer);
        }
        assert_eq!(view(9, "ann", conn), Ok(NoSuchRow));
        assert_eq!(total_of(1, conn), 101);
    });
    assert_eq!((total_of(1, conn), number_of_keys(conn)), (100, 0));
    for answer in [Counted, Repeat] {
        let answers = in_transaction(conn, |conn| {
            Ok([view(1, "ann", conn)?, named.add(1, conn).done()?])
        });
        assert_eq!(answers, Ok([answer; 2]));
    }
    assert_eq!(total_of(1, conn), 101);
}

/// Transactions that count several visitors each, and some of which are rolled back.
#[test]
fn visitors_who_race_in_transactions_count_once() {
    const VISITORS: i64 = 12;
    let Connected { conn, database } = &mut set_up_with_counters();
    let counted = AtomicI64::new(0);
    let levels = [
        None,
        Some(Isolation::ReadCommitted),
        Some(Isolation::RepeatableRead),
        Some(Isolation::Serializable),
    ];
    on_threads(32, database, |thread, conn| {
        let policy = diesel_sharded_tests::patient().with_attempts(1_000);
        let transaction = || {
            let transaction = Transaction::new().retry(policy.clone());
            match levels[thread as usize % 4] {
                Some(level) => transaction.isolation(level),
                None => transaction,
            }
        };
        for round in 0..3 {
            let gives_up = (thread + round) % 3 == 0;
            let now: QueryResult<i64> = transaction().run(conn, |conn| {
                let mut now = 0;
                for step in 0..3 {
                    let visitor = step * 4 + (thread + round) % 4; // in one order: deadlocks take a second each
                    match view(1, &format!("{visitor}"), conn)? {
                        Counted => now += 1,
                        answer => assert_eq!(answer, Repeat),
                    }
                }
                match gives_up {
                    true => Err(DieselError::RollbackTransaction),
                    false => Ok(now),
                }
            });
            match now {
                Ok(now) => _ = counted.fetch_add(now, Ordering::Relaxed),
                error => assert_eq!(error, Err(DieselError::RollbackTransaction)),
            }
        }
    });
    let counted = counted.into_inner();
    assert!((1..=VISITORS).contains(&counted), "{counted}");
    assert_eq!(
        (total_of(1, conn), number_of_keys(conn)),
        (100 + counted, counted)
    );
}

/// A transaction that Diesel does not know of.
#[test]
fn in_a_raw_transaction_the_visit_goes_with_it() {
    let conn = &mut set_up_with_counters().conn;
    for (end, answer) in [
        ("ROLLBACK", Counted),
        ("COMMIT", Counted),
        ("COMMIT", Repeat),
    ] {
        conn.batch_execute("BEGIN").unwrap();
        assert_eq!(view(1, "ann", conn), Ok(answer));
        assert_eq!(view(1, "ann", conn), Ok(Repeat));
        assert_eq!(view(9, "ann", conn), Ok(NoSuchRow));
        conn.batch_execute(end).unwrap();
    }
    assert_eq!((total_of(1, conn), number_of_keys(conn)), (101, 1));
}

#[test]
fn a_row_that_is_inserted_again_has_had_its_visitors() {
    let conn = &mut set_up_with_counters().conn;
    assert_eq!(view(1, "ann", conn), Ok(Counted));
    delete!(videos.find(1), conn);
    assert_eq!(view(1, "ann", conn), Ok(Repeat));
    assert_eq!(view(1, "bob", conn), Ok(NoSuchRow));
    insert!(videos, (id.eq(1), slug.eq("a"), title.eq("A")), conn);
    assert_eq!(view(1, "ann", conn), Ok(Repeat));
    assert_eq!(view(1, "bob", conn), Ok(Counted));
}

/// Rows are removed while their visitors come again: each of these counts once more for each removal at most.
#[test]
fn visits_beside_removals_are_exact() {
    let Connected { conn, database } = &mut set_up_with_counters();
    let (counted, removed) = (AtomicI64::new(0), AtomicI64::new(0));
    let visit = |_, conn: &mut Conn| {
        for round in 0..40 {
            match view(1, &format!("{}", round % 3), conn) {
                Ok(Counted) => _ = counted.fetch_add(1, Ordering::SeqCst),
                answer => assert_eq!(answer, Ok(Repeat)),
            }
        }
    };
    on_threads_beside(6, database, visit, 2, |_, rounds, conn| {
        for _ in rounds {
            let expired = diesel::update(keys::table).set(keys::expires.eq(1));
            let _may_deadlock = RunQueryDsl::execute(expired, conn);
            let gone = remove_expired(conn).done().unwrap();
            removed.fetch_add(gone as i64, Ordering::SeqCst);
        }
    });
    let [counted, removed] = [counted, removed].map(AtomicI64::into_inner);
    assert_eq!(total_of(1, conn), 100 + counted);
    assert_eq!(number_of_keys(conn), counted - removed);
}

#[test]
fn what_fails_leaves_the_visitor_uncounted() {
    use diesel_sharded_tests::schema::measures::dsl::{measures, small};
    let conn = &mut set_up_with_counters().conn;
    let add = |n: i16, visitor: &str, conn: &mut Conn| {
        let count = update(measures.find(1_i16)).set(small.eq(small + n));
        count.once_per(visitor, HUNDRED_YEARS).count(conn).done()
    };
    assert_eq!(add(30_000, "ann", conn), Ok(Counted));
    for _ in 0..2 {
        refused!(add(30_000, "bob", conn), Error::Overflow { .. });
    }
    assert_eq!(add(-30_000, "bob", conn), Ok(Counted));
    assert_eq!(number_of_keys(conn), 2);
}

#[test]
fn expired_rows_go_and_others_stay() {
    let conn = &mut set_up_with_counters().conn;
    for visitor in ["ann", "bob"] {
        assert_eq!(view(1, visitor, conn), Ok(Counted));
    }
    let request = viewed!(videos.find(1)).idempotency_key("a");
    gives!(request.execute(conn), 1);
    gives!(remove_expired(conn), 0);
    // An age does not apply to what has an expiry, nor an expiry to what has none.
    edit!(keys::table, keys::created.eq(0), conn);
    let hour = Duration::from_secs(3_600);
    gives!(idempotency::remove_older_than(hour, conn), 1);
    assert_eq!(number_of_keys(conn), 2);
    let visits = keys::table.select(keys::key).load::<Vec<u8>>(conn).unwrap();
    edit!(keys::table.find(&visits[0]), keys::expires.eq(1), conn);
    gives!(remove_expired(conn), 1);
    gives!(remove_expired(conn), 0);
    let again = ["ann", "bob"].map(|visitor| view(1, visitor, conn).unwrap());
    assert_ne!(again[0], again[1], "one of them is counted");
    assert_eq!(total_of(1, conn), 104);
}

#[test]
fn many_expired_rows_are_removed_in_steps() {
    let conn = &mut set_up_with_counters().conn;
    old_keys(2_050, 1, conn);
    gives!(remove_expired(conn), 2_050);
    assert_eq!(number_of_keys(conn), 0);
}

#[test]
fn missing_tables_of_visits_are_named() {
    let conn = &mut set_up().conn;
    let counted = view(1, "ann", conn).map(drop);
    let removed = remove_expired(conn).done().map(drop);
    for missing in [counted, removed] {
        refused!(missing, Error::MissingShardsTable { table, .. } if table.ends_with("_keys"));
    }
}
