//! Named counters, and numbers of shards at run time.

use std::time::Duration;

use super::api::shard_counts;
use super::api::{MIGRATIONS, counters};
use super::support::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded_tests::until;

#[test]
fn counts_up_and_down_and_is_set() {
    let conn = &mut set_up_with_counters().conn;
    let signups = Counter::named("signups");
    gives!(signups.get(conn), 0);
    signups.increment(conn).unwrap();
    signups.add(-101, conn).unwrap();
    signups.decrement(conn).unwrap();
    let both = |conn: &mut Conn| (signups.get(conn).done(), signups.estimate(conn).done());
    assert_eq!(both(conn), (Ok(-101), Ok(0)));
    assert_eq!(signups.fold(conn).unwrap().parents, 1);
    assert_eq!(both(conn), (Ok(-101), Ok(-101)));
    signups.set(7, conn).unwrap();
    signups.increment(conn).unwrap();
    gives!(signups.get(conn), 8);
    signups.reset(conn).unwrap();
    gives!(signups.get(conn), 0);
    let fresh = Counter::named("fresh");
    fresh.set(5, conn).unwrap();
    fresh.increment(conn).unwrap();
    gives!(fresh.get(conn), 6);
    gives!(fresh.delete(conn), true);
    gives!(fresh.delete(conn), false);
    gives!(fresh.get(conn), 0);
    fresh.increment(conn).unwrap();
    gives!(fresh.get(conn), 1);
}

/// Names that some collation takes for the same, that end in a space, or that hold characters with a meaning in SQL.
const NAMES: [&str; 16] = [
    "A", "a", "e", "é", "e\u{301}", "É", "ß", "ss", "a ", " a", "%", "_", INJECTED, "\0", "日本",
    "🐘",
];
const INJECTED: &str = "'; DROP TABLE x --";

#[test]
fn names_are_told_apart_by_their_bytes() {
    let conn = &mut set_up_with_counters().conn;
    for (n, name) in (1..).zip(NAMES) {
        Counter::named(name).add(n, conn).unwrap();
    }
    for (n, name) in (1..).zip(NAMES) {
        gives!(Counter::named(name).get(conn), n, "{name:?}");
    }
    let totals = (1..=16).collect();
    gives!(Counter::get_many(&NAMES, conn), totals);
    let longest = Counter::named("é".repeat(127) + "x");
    longest.increment(conn).unwrap();
    gives!(longest.increase_shards(129, conn), 129);
    gives!(longest.get(conn), 1);
    for (name, length) in [(String::new(), 0), ("é".repeat(128), 256)] {
        let counter = Counter::named(name);
        for refused in [
            counter.increment(conn).done(),
            counter.get(conn).done().map(drop),
            counter.set(1, conn).done(),
            counter.resize(2, conn).done(),
            counter.delete(conn).done().map(drop),
            Counter::get_many(&[counter.name()], conn).done().map(drop),
        ] {
            refused!(refused, Error::InvalidCounterName { bytes } if *bytes == length);
        }
    }
}

#[test]
fn lists_by_prefix_in_pages() {
    let conn = &mut set_up_with_counters().conn;
    let mut names: Vec<String> = (0..25).map(|n| format!("page:{n:02}")).collect();
    names.push("page:é".to_owned());
    let others = ["pagf", "pag", "page"];
    for name in names.iter().map(String::as_str).chain(others) {
        Counter::named(name).increment(conn).unwrap();
    }
    let mut list = Counter::list("page:").limit(10);
    let mut pages = vec![];
    loop {
        let page = list.load(conn).unwrap();
        let Some((last, _)) = page.last() else { break };
        list = list.after(last);
        pages.push(page);
    }
    assert_eq!(pages.len(), 3);
    let expected: Vec<_> = names.into_iter().map(|name| (name, 1)).collect();
    assert_eq!(pages.concat(), expected);
    assert_eq!(Counter::list("").load(conn).unwrap().len(), 29);
    gives!(Counter::list("x").load(conn), vec![]);
    assert_eq!(Counter::get_many::<_, &str>(&[], conn).done(), Ok(vec![]));
    let some = Counter::get_many(&["page:07", "none", "page:07"], conn).done();
    assert_eq!(some, Ok(vec![1, 0, 1]));
}

#[test]
fn the_first_use_of_64_threads_creates_one_counter() {
    let Connected { conn, database } = &mut set_up_with_counters();
    on_threads(64, database, |number, conn| {
        for round in 0..4 {
            let counter = Counter::named(format!("new:{round}"));
            let counted = match number % 4 {
                0 => in_transaction(conn, |conn| counter.increment(conn).done()),
                _ => counter.increment(conn).done(),
            };
            counted.unwrap();
        }
    });
    let expected = (0..4).map(|round| (format!("new:{round}"), 64));
    let list = Counter::list("new:").load(conn).done();
    assert_eq!(list, Ok(expected.collect()));
}

#[test]
fn missing_tables_are_told_with_what_to_do() {
    let conn = &mut set_up().conn;
    let counter = Counter::named("x");
    for error in [
        counter.increment(conn).unwrap_err(),
        counter.add_and_get(1, conn).unwrap_err(),
        counter.add_and_get(0, conn).unwrap_err(),
        counter.clone().never_below(0).add(1, conn).unwrap_err(),
        counter.get(conn).unwrap_err(),
        counter.set(1, conn).unwrap_err(),
        counter.fold(conn).unwrap_err(),
        counter.delete(conn).unwrap_err(),
        Counter::list("").load(conn).unwrap_err(),
        Counter::top("", 3).load(conn).unwrap_err(),
        counter.increase_shards(3, conn).unwrap_err(),
        shard_counts::refresh(conn).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("diesel_sharded::MIGRATIONS"), "{text}");
        assert_matches!(Error::from(error), Error::MissingShardsTable { .. });
    }
}

#[test]
fn the_migrations_run_beside_an_applications_and_are_reverted() {
    let database = Conn::database();
    let conn = &mut Conn::connect(&database);
    for run in [2, 0] {
        assert_eq!(conn.has_pending_migration(MIGRATIONS).unwrap(), run > 0);
        assert_eq!(conn.run_pending_migrations(MIGRATIONS).unwrap().len(), run);
    }
    Counter::named("x").increment(conn).unwrap();
    // An application's own migration comes after it, whenever it ran, and is the one that `revert_last_migration` reverts.
    let own = || ShardsTable::of(downloads::table).migration("00000000000001");
    conn.batch_execute(
        "CREATE TABLE downloads (version INTEGER, day INTEGER, number INTEGER NOT NULL, PRIMARY KEY (version, day))",
    )
    .unwrap();
    conn.run_pending_migrations(own()).unwrap();
    conn.revert_last_migration(own()).unwrap();
    for _ in ["idempotency keys", "counters"] {
        conn.revert_last_migration(MIGRATIONS).unwrap();
    }
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    gives!(Counter::named("x").get(conn), 0);
}

#[test]
fn numbers_of_shards_change_at_run_time() {
    let conn = &mut set_up_with_counters().conn;
    let counter = Counter::named("resized");
    gives!(counter.shards(conn), 128);
    for (least, held) in [(4, 128), (200, 200), (150, 200)] {
        gives!(counter.increase_shards(least, conn), held); // never down
    }
    let shards = |conn: &mut Conn| number!("COUNT(*) FROM diesel_sharded_counter_shards", conn);
    let mut expected = 0;
    let mut count = |times, conn: &mut Conn| {
        (0..times).for_each(|_| counter.increment(conn).unwrap());
        expected += times;
    };
    // One writer visits all of them. The tests beside this one work with any choice.
    ShardChoice::Random.set_global();
    eventually(|| {
        gives!(counter.increase_shards(200, conn), 200);
        count(300, conn);
        shards(conn) > 128
    });
    ShardChoice::default().set_global();
    counter.resize(1, conn).unwrap();
    gives!(counter.shards(conn), 1);
    assert!(shards(conn) <= 1); // the first one may have been drawn or not
    eventually(|| {
        counter.resize(1, conn).unwrap();
        count(20, conn);
        shards(conn) == 1
    });
    gives!(counter.get(conn), expected);
    let folded = counter.fold(conn).unwrap();
    assert_eq!((folded.parents, folded.shards_removed), (1, 0));
    gives!(counter.increase_shards(2, conn), 2);
    counter.delete(conn).unwrap();
    gives!(counter.shards(conn), 128);
    for n in [0, 4097] {
        let increased = counter.increase_shards(n, conn).done().map(drop);
        for refused in [counter.resize(n, conn).done(), increased] {
            refused!(refused, Error::InvalidShardCount { number } if *number == n);
        }
    }
}

/// They are a sharded table like any other.
#[test]
fn are_verified_folded_and_read_by_their_table() {
    let conn = &mut set_up_with_counters().conn;
    for name in ["a", "b"] {
        Counter::named(name).add(5, conn).unwrap();
    }
    let bases = counters::table.select((counters::name, counters::value));
    let check = verify(counters::table, counters::value, bases);
    let drifts = check.repair(conn).unwrap().into_iter();
    let drifts: Vec<_> = drifts.map(|drift| (drift.total, drift.expected)).collect();
    assert_eq!(drifts, [(5, 0); 2]);
    Counter::named("b").add(7, conn).unwrap();
    assert_eq!(fold(counters::table).run(conn).unwrap().parents, 2);
    let totals = counters::table.order(counters::name);
    let totals = totals.select((counters::name, counters::value.total(), counters::value));
    let expected = vec![(b"a".to_vec(), 0_i64, 0_i64), (b"b".to_vec(), 7, 7)];
    assert_eq!(totals.load(conn), Ok(expected));
}

#[test]
fn many_are_counted_at_once() {
    let conn = &mut set_up_with_counters().conn;
    for _ in 0..2 {
        let many = Counter::count_many([("a", 2), ("b", 2), ("a", 2)]);
        assert_eq!(many.run(conn).unwrap().rows, 2);
    }
    let names = vec![("a".to_owned(), 1), ("é".to_owned(), -1)];
    for rows in [Ok(2), Ok(2)] {
        let once = Counter::count_many(names.clone()).idempotency_key("a batch");
        assert_eq!(once.run(conn).done(), rows);
    }
    gives!(Counter::get_many(&["a", "b", "é"], conn), vec![9, 4, -1]);
}

/// Nor is any other of them.
#[test]
fn many_with_an_invalid_name_are_refused() {
    let conn = &mut set_up_with_counters().conn;
    Counter::named("a").increment(conn).unwrap();
    let long = "x".repeat(256);
    for (name, length) in [("", 0), (&*long, 256)] {
        let count = |conn: &mut Conn| {
            let many = Counter::count_many([("a", 1), (name, 1)]);
            refused!(many.run(conn).done().map(drop), Error::InvalidCounterName { bytes } if *bytes == length);
            Counter::named("a").add(2, conn).done()
        };
        count(conn).unwrap();
        conn.transaction(count).unwrap();
    }
    let counters = Counter::list("").load(conn).done();
    assert_eq!(counters, Ok(vec![("a".to_owned(), 9)]));
}

#[test]
fn racing_increases_leave_the_largest() {
    let Connected { conn, database } = &mut set_up_with_counters();
    on_threads(16, database, |number, conn| {
        let n = 200 + number as u16;
        let held = Counter::named("racing").increase_shards(n, conn).unwrap();
        assert!((n..=215).contains(&held), "{held}");
    });
    gives!(Counter::named("racing").shards(conn), 215);
}

/// Retries: a process remembers the shard counts of one database only, and another test's database may come in between.
fn eventually(mut holds: impl FnMut() -> bool) {
    assert!((0..10).any(|_| holds()));
}

#[test]
fn a_field_follows_its_number() {
    let Connected { mut conn, database } = set_up_with_counters();
    let conn = &mut conn;
    let number = ShardCount::of(downloads::number);
    gives!(number.get(conn), 128);
    let row = (downloads::version.eq(1), downloads::day.eq(1));
    insert!(downloads::table, row, conn);
    let shards = |conn: &mut Conn| {
        for _ in 0..30 {
            let count = update(downloads::table).set(downloads::number.eq(downloads::number + 1));
            let count = count.shard_choice(ShardChoice::Random);
            gives!(count.execute(conn), 1);
        }
        number!("COUNT(*) FROM downloads_shards WHERE number <> 0", conn)
    };
    eventually(|| {
        conn.batch_execute("DELETE FROM downloads_shards").unwrap();
        number.resize(1, conn).unwrap();
        shards(conn) == 1
    });
    let every = Duration::from_millis(50);
    let following = shard_counts::follow(every, move || {
        Ok::<_, std::convert::Infallible>(Conn::connect(&database))
    })
    .unwrap();
    // Another process resizes.
    conn.batch_execute("UPDATE diesel_sharded_shard_numbers SET shards = 64")
        .unwrap();
    until("it follows", || shards(conn) > 1);
    assert_eq!(following.last_error(), None);
    number.resize(128, conn).unwrap();
}
