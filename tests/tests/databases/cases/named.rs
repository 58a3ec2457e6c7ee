//! Named counters, and numbers of shards at run time.

use std::time::Duration;

use super::api::shard_counts;
use super::api::{MIGRATIONS, counters};
use super::support::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::until;

#[test]
fn counts_up_and_down_and_is_set() {
    let (_database, conn) = &mut database_with_counters();
    let signups = Counter::named("signups");
    assert_eq!(signups.get(conn), Ok(0));
    signups.increment(conn).unwrap();
    signups.add(41, conn).unwrap();
    assert_eq!(signups.get(conn), Ok(42));
    signups.decrement(conn).unwrap();
    signups.add(-100, conn).unwrap();
    assert_eq!(
        (signups.get(conn), signups.estimate(conn)),
        (Ok(-59), Ok(0))
    );
    assert_eq!(signups.fold(conn).unwrap().parents, 1);
    assert_eq!(
        (signups.get(conn), signups.estimate(conn)),
        (Ok(-59), Ok(-59))
    );
    signups.set(7, conn).unwrap();
    signups.increment(conn).unwrap();
    assert_eq!(signups.get(conn), Ok(8));
    signups.reset(conn).unwrap();
    assert_eq!(signups.get(conn), Ok(0));
    let fresh = Counter::named("fresh");
    fresh.set(5, conn).unwrap();
    fresh.increment(conn).unwrap();
    assert_eq!(fresh.get(conn), Ok(6));
    assert_eq!(fresh.delete(conn), Ok(true));
    assert_eq!(fresh.delete(conn), Ok(false));
    assert_eq!(fresh.get(conn), Ok(0));
    fresh.increment(conn).unwrap();
    assert_eq!(fresh.get(conn), Ok(1));
}

/// Names that some collation takes for the same, that end in a space, or that hold characters with a meaning in SQL.
const NAMES: [&str; 16] = [
    "A",
    "a",
    "e",
    "é",
    "e\u{301}",
    "É",
    "ß",
    "ss",
    "a ",
    " a",
    "%",
    "_",
    "'; DROP TABLE x --",
    "\0",
    "日本",
    "🐘",
];

#[test]
fn names_are_told_apart_by_their_bytes() {
    let (_database, conn) = &mut database_with_counters();
    for (n, name) in (1..).zip(NAMES) {
        Counter::named(name).add(n, conn).unwrap();
    }
    for (n, name) in (1..).zip(NAMES) {
        assert_eq!(Counter::named(name).get(conn), Ok(n), "{name:?}");
    }
    let totals: Vec<i64> = (1..=16).collect();
    assert_eq!(Counter::get_many(&NAMES, conn), Ok(totals));
    let longest = "é".repeat(127) + "x";
    Counter::named(&longest).increment(conn).unwrap();
    let shards = Counter::named(&longest).increase_shards(129, conn);
    assert_eq!(shards, Ok(129));
    assert_eq!(Counter::named(longest).get(conn), Ok(1));
    for (name, length) in [(String::new(), 0), ("é".repeat(128), 256)] {
        let counter = Counter::named(name);
        let errors = [
            counter.increment(conn).unwrap_err(),
            counter.get(conn).unwrap_err(),
            counter.set(1, conn).unwrap_err(),
            counter.resize(2, conn).unwrap_err(),
            counter.delete(conn).unwrap_err(),
            Counter::get_many(&[counter.name()], conn).unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(Error::from(error), Error::InvalidCounterName { bytes } if bytes == length),
            );
        }
    }
}

#[test]
fn lists_by_prefix_in_pages() {
    let (_database, conn) = &mut database_with_counters();
    let mut names: Vec<String> = (0..25).map(|n| format!("page:{n:02}")).collect();
    names.push("page:é".to_owned());
    for name in names
        .iter()
        .map(String::as_str)
        .chain(["pagf", "pag", "page"])
    {
        Counter::named(name).increment(conn).unwrap();
    }
    let mut list = Counter::list("page:").limit(10);
    let mut found = vec![];
    let mut pages = 0;
    loop {
        let page = list.load(conn).unwrap();
        let Some((last, _)) = page.last() else { break };
        list = list.after(last);
        found.extend(page);
        pages += 1;
    }
    assert_eq!(pages, 3);
    let expected: Vec<_> = names.into_iter().map(|name| (name, 1)).collect();
    assert_eq!(found, expected);
    assert_eq!(Counter::list("").load(conn).unwrap().len(), 29);
    assert_eq!(Counter::list("x").load(conn), Ok(vec![]));
    assert_eq!(Counter::get_many::<_, &str>(&[], conn), Ok(vec![]));
    let some = Counter::get_many(&["page:07", "none", "page:07"], conn);
    assert_eq!(some, Ok(vec![1, 0, 1]));
}

#[test]
fn the_first_use_of_64_threads_creates_one_counter() {
    let (database, mut conn) = database_with_counters();
    on_threads(64, &database, |number, conn| {
        for round in 0..4 {
            let counter = Counter::named(format!("new:{round}"));
            match number % 4 {
                0 => {
                    let counted: QueryResult<()> =
                        retry::transaction(conn, RetryPolicy::default(), |conn| {
                            counter.increment(conn)
                        });
                    counted.unwrap();
                }
                _ => counter.increment(conn).unwrap(),
            }
        }
    });
    let list = Counter::list("new:").load(&mut conn).unwrap();
    let expected: Vec<_> = (0..4).map(|round| (format!("new:{round}"), 64)).collect();
    assert_eq!(list, expected);
}

#[test]
fn a_count_is_part_of_the_callers_transaction() {
    let (_database, conn) = &mut database_with_counters();
    let counter = Counter::named("x");
    for commits in [false, true] {
        let result: QueryResult<()> = conn.transaction(|conn| {
            counter.add(5, conn)?;
            counter.set(10, conn)?;
            counter.increment(conn)?;
            match commits {
                true => Ok(()),
                false => Err(diesel::result::Error::RollbackTransaction),
            }
        });
        assert_eq!(result.is_ok(), commits);
        assert_eq!(counter.get(conn), Ok(if commits { 11 } else { 0 }));
    }
}

#[test]
fn missing_tables_are_told_with_what_to_do() {
    let (_database, conn) = &mut database();
    let counter = Counter::named("x");
    let errors = [
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
    ];
    for error in errors {
        let text = error.to_string();
        let error = Error::from(error);
        assert_matches!(error, Error::MissingShardsTable { .. });
        assert!(text.contains("diesel_sharded::MIGRATIONS"), "{text}");
    }
}

#[test]
fn the_migrations_run_beside_an_applications_and_are_reverted() {
    let database = Conn::database();
    let conn = &mut Conn::connect(&database);
    assert!(conn.has_pending_migration(MIGRATIONS).unwrap());
    assert_eq!(conn.run_pending_migrations(MIGRATIONS).unwrap().len(), 3);
    assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
    assert_eq!(conn.run_pending_migrations(MIGRATIONS).unwrap().len(), 0);
    Counter::named("x").increment(conn).unwrap();
    // An application's own migration comes after it, whenever it ran, and is the one that `revert_last_migration` reverts.
    let own = || ShardsTable::of(downloads::table).migration("00000000000001");
    diesel::sql_query(
        "CREATE TABLE downloads (version INTEGER, day INTEGER, number INTEGER NOT NULL, PRIMARY KEY (version, day))",
    )
    .execute(conn)
    .unwrap();
    conn.run_pending_migrations(own()).unwrap();
    conn.revert_last_migration(own()).unwrap();
    for _ in ["idempotency keys", "batches", "counters"] {
        conn.revert_last_migration(MIGRATIONS).unwrap();
    }
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    assert_eq!(Counter::named("x").get(conn), Ok(0));
}

#[test]
fn numbers_of_shards_change_at_run_time() {
    let (_database, conn) = &mut database_with_counters();
    let counter = Counter::named("resized");
    assert_eq!(counter.shards(conn), Ok(128));
    assert_eq!(counter.increase_shards(4, conn), Ok(128)); // never down
    assert_eq!(counter.increase_shards(200, conn), Ok(200));
    assert_eq!(counter.increase_shards(150, conn), Ok(200));
    let shards = |conn: &mut Conn| number!("COUNT(*) FROM diesel_sharded_counter_shards", conn);
    let mut expected = 0;
    // One writer visits all of them. The tests beside this one work with any choice.
    ShardChoice::Random.set_global();
    eventually(|| {
        assert_eq!(counter.increase_shards(200, conn), Ok(200));
        for _ in 0..300 {
            counter.increment(conn).unwrap();
        }
        expected += 300;
        shards(conn) > 128
    });
    ShardChoice::default().set_global();
    counter.resize(1, conn).unwrap();
    assert_eq!(counter.shards(conn), Ok(1));
    assert!(shards(conn) <= 1); // the first one may have been drawn or not
    eventually(|| {
        counter.resize(1, conn).unwrap();
        for _ in 0..20 {
            counter.increment(conn).unwrap();
        }
        expected += 20;
        shards(conn) == 1
    });
    assert_eq!(counter.get(conn), Ok(expected));
    let folded = counter.fold(conn).unwrap();
    assert_eq!((folded.parents, folded.shards_removed), (1, 0));
    assert_eq!(counter.increase_shards(2, conn), Ok(2));
    counter.delete(conn).unwrap();
    assert_eq!(counter.shards(conn), Ok(128));
    for n in [0, 4097] {
        for error in [
            counter.resize(n, conn),
            counter.increase_shards(n, conn).map(drop),
        ] {
            let error = Error::from(error.unwrap_err());
            assert!(matches!(error, Error::InvalidShardCount { number } if number == n));
        }
    }
}

/// They are a sharded table like any other.
#[test]
fn are_verified_folded_and_read_by_their_table() {
    let (_database, conn) = &mut database_with_counters();
    for name in ["a", "b"] {
        Counter::named(name).add(5, conn).unwrap();
    }
    let bases = counters::table.select((counters::name, counters::value));
    let drifts = verify(counters::table, counters::value, bases)
        .repair(conn)
        .unwrap();
    assert_eq!(drifts.len(), 2);
    assert!(
        drifts
            .iter()
            .all(|drift| (drift.total, drift.expected) == (5, 0))
    );
    Counter::named("b").add(7, conn).unwrap();
    assert_eq!(fold(counters::table).run(conn).unwrap().parents, 2);
    let totals = counters::table
        .select((counters::name, counters::value.total(), counters::value))
        .order(counters::name)
        .load::<(Vec<u8>, i64, i64)>(conn);
    let expected = vec![(b"a".to_vec(), 0, 0), (b"b".to_vec(), 7, 7)];
    assert_eq!(totals, Ok(expected));
}

#[test]
fn racing_increases_leave_the_largest() {
    let (database, mut conn) = database_with_counters();
    on_threads(16, &database, |number, conn| {
        let n = 200 + number as u16;
        let held = Counter::named("racing").increase_shards(n, conn).unwrap();
        assert!((n..=215).contains(&held), "{held}");
    });
    assert_eq!(Counter::named("racing").shards(&mut conn), Ok(215));
}

/// Retries: a process remembers the shard counts of one database only, and another test's database may come in between.
fn eventually(mut holds: impl FnMut() -> bool) {
    assert!((0..10).any(|_| holds()));
}

#[test]
fn a_field_follows_its_number() {
    let (database, mut conn) = database_with_counters();
    let conn = &mut conn;
    let number = ShardCount::of(downloads::number);
    assert_eq!(number.get(conn), Ok(128));
    let row = (downloads::version.eq(1), downloads::day.eq(1));
    insert!(downloads::table, row, conn);
    let shards = |conn: &mut Conn| {
        for _ in 0..30 {
            update(downloads::table)
                .set(downloads::number.eq(downloads::number + 1))
                .shard_choice(ShardChoice::Random)
                .execute(conn)
                .unwrap();
        }
        number!("COUNT(*) FROM downloads_shards WHERE number <> 0", conn)
    };
    eventually(|| {
        diesel::sql_query("DELETE FROM downloads_shards")
            .execute(conn)
            .unwrap();
        number.resize(1, conn).unwrap();
        shards(conn) == 1
    });
    let every = Duration::from_millis(50);
    let following = shard_counts::follow(every, move || {
        Ok::<_, std::convert::Infallible>(Conn::connect(&database))
    })
    .unwrap();
    // Another process resizes.
    diesel::sql_query("UPDATE diesel_sharded_shard_numbers SET shards = 64")
        .execute(conn)
        .unwrap();
    until("it follows", || shards(conn) > 1);
    assert_eq!(following.last_error(), None);
    number.resize(128, conn).unwrap();
}

/// A key of the application's in a column of the same name belongs to another table.
#[test]
fn shards_are_the_counters_own() {
    let (_database, conn) = &mut database_with_counters();
    Counter::named("videos").increment(conn).unwrap();
    let shards = videos_shards::table.count().get_result::<i64>(conn);
    assert_eq!(shards, Ok(0));
    assert_eq!(videos.count().get_result(conn), Ok(3_i64));
}
