//! Updates that are requested more than once and count once.

use std::time::Duration;

use super::api::idempotency;
use super::support::*;
use diesel_sharded_tests::schema::measures;
use diesel_sharded_tests::schema::videos::dsl::*;

fn count_video(video: i64, key: &str, conn: &mut Conn) -> QueryResult<usize> {
    let count = viewed!(videos.find(video)).idempotency_key(key);
    count.execute(conn).done()
}

/// A counter that cannot take 40,000.
macro_rules! small {
    ($key:expr) => {
        RowCounter::of(measures::small, 1_i16).idempotency_key($key)
    };
}

#[test]
fn a_repeat_counts_nothing_and_is_told_what_the_first_was() {
    let Connected { conn, database } = &mut set_up_with_counters();
    for _ in 0..3 {
        assert_eq!(count_video(1, "a", conn), Ok(1));
    }
    assert_eq!(count_video(1, "b", conn), Ok(1));
    // A restart, or another process: only the database remembers.
    *conn = Conn::connect(database);
    assert_eq!(count_video(1, "a", conn), Ok(1));
    assert_eq!(total_of(1, conn), 102);
    // Several rows.
    for _ in 0..2 {
        let all = update(videos.filter(id.le(2))).set((views.eq(views + 5), likes.eq(likes - 1)));
        gives!(all.idempotency_key("c").execute(conn), 2);
    }
    let both = videos.order(id).select((views.total(), likes.total()));
    let expected = vec![(107_i64, 0), (205, 1), (300, 3)];
    assert_eq!(both.load(conn), Ok(expected));
}

#[test]
fn rows_are_read_in_the_transaction_that_counts_or_repeats() {
    let conn = &mut set_up_with_counters().conn;
    let count = |conn: &mut Conn| -> QueryResult<i64> {
        in_transaction(conn, |conn| {
            let of_a = videos.filter(slug.eq("a"));
            let counted = viewed!(of_a).idempotency_key("a").execute(conn).done()?;
            assert_eq!(counted, 1);
            of_a.select(views.total()).first(conn)
        })
    };
    assert_eq!(count(conn), Ok(101));
    assert_eq!(count_video(1, "b", conn), Ok(1));
    assert_eq!(count(conn), Ok(102));
    assert_eq!(total_of(1, conn), 102);
}

#[test]
fn what_counted_nothing_leaves_no_key() {
    let conn = &mut set_up_with_counters().conn;
    assert_eq!(count_video(9, "no such row", conn), Ok(0));
    refused!(small!("too much").add(40_000, conn), Error::Overflow { .. });
    assert_eq!(number_of_keys(conn), 0);
    insert!(videos, (id.eq(9), slug.eq("i"), title.eq("I")), conn);
    for _ in 0..2 {
        assert_eq!(count_video(9, "no such row", conn), Ok(1));
    }
    assert_eq!(total_of(9, conn), 1);
}

#[test]
fn a_key_belongs_to_one_update() {
    let conn = &mut set_up_with_counters().conn;
    assert_eq!(count_video(1, "a", conn), Ok(1));
    assert!(is_reused(count_video(2, "a", conn)));
    let more = update(videos.find(1)).set(views.eq(views + 2));
    assert!(is_reused(more.idempotency_key("a").execute(conn).done()));
    let other_field = update(videos.find(1)).set(likes.eq(likes + 1));
    assert!(is_reused(
        other_field.idempotency_key("a").execute(conn).done()
    ));
    let named = Counter::named("a");
    assert!(is_reused(named.idempotency_key("a").add(1, conn).done()));
    let or_insert = |name: &'static str, conn: &mut Conn| {
        let row = (id.eq(9), slug.eq(name), title.eq("I"));
        let count = viewed!(videos.find(9)).or_insert(row);
        count.idempotency_key("b").execute(conn).done()
    };
    assert_eq!([or_insert("i", conn), or_insert("i", conn)], [Ok(1), Ok(1)]);
    assert!(is_reused(or_insert("j", conn)));
    assert!(is_reused(count_video(9, "b", conn)));
    assert_eq!(totals(conn), [101, 200, 300, 1]);
    gives!(named.get(conn), 0);
}

#[test]
fn keys_are_bytes_of_a_certain_length() {
    let conn = &mut set_up_with_counters().conn;
    for key in [vec![], vec![b'k'; 256]] {
        let count = viewed!(videos.find(1)).idempotency_key(&key);
        refused!(count.execute(conn), Error::InvalidIdempotencyKey { bytes } if *bytes == key.len());
    }
    // Keys that some collation or some string type takes for the same.
    let longest = [0xFF; 255];
    let different: [&[u8]; 8] = [
        b"a", b"A", b"a ", b"a\0", b"\0", b"'; --", b"\xFF", &longest,
    ];
    for key in different {
        for _ in 0..2 {
            let count = viewed!(videos.find(1)).idempotency_key(key);
            gives!(count.execute(conn), 1, "{key:?}");
        }
    }
    assert_eq!(total_of(1, conn), 108);
}

/// Whatever another writer stored there.
#[test]
fn numbers_of_rows_are_told_as_far_as_they_go() {
    let conn = &mut set_up_with_counters().conn;
    assert_eq!(count_video(1, "a", conn), Ok(1));
    for (stored, told) in [(0, 0), (i64::MAX, i64::MAX as usize), (-1, usize::MAX)] {
        let key = keys::table.find(b"a".to_vec());
        edit!(key, keys::counted.eq(stored), conn);
        assert_eq!(count_video(1, "a", conn), Ok(told));
    }
    assert_eq!(total_of(1, conn), 101);
}

/// Most of them find their shard, and race for the key alone.
#[test]
fn racing_repeats_count_once() {
    const KEYS: i64 = 120;
    let Connected { conn, database } = &mut set_up_with_counters();
    on_threads(8, database, |_, conn| {
        for key in 0..KEYS {
            let key = format!("request {key}");
            assert_eq!(count_video(1, &key, conn), Ok(1));
            let page = Counter::named("page").idempotency_key(format!("{key}/page"));
            gives!(page.add(3, conn), 1);
        }
    });
    assert_eq!(total_of(1, conn), 100 + KEYS);
    gives!(Counter::named("page").get(conn), 3 * KEYS);
    assert_eq!(number_of_keys(conn), 2 * KEYS);
}

/// The first inserts its row in a transaction, the others count by one statement where there is one.
#[test]
fn rows_that_are_inserted_count_once_too() {
    use downloads::dsl::{day, number, version};
    let Connected { conn, database } = &mut set_up_with_counters();
    on_threads(4, database, |_, conn| {
        for key in 0..20 {
            let count = update(downloads::table.find((1, Day(1)))).set(number.eq(number + 2));
            let count = count.or_insert((version.eq(1), day.eq(Day(1))));
            let count = count.idempotency_key(format!("{key}"));
            gives!(count.execute(conn), 1);
        }
    });
    let numbers = downloads::table.select(number.total());
    assert_eq!(numbers.load::<i32>(conn), Ok(vec![40]));
    assert_eq!(number_of_keys(conn), 20);
}

#[test]
fn keys_count_once_beside_folds_that_remove_shards() {
    const KEYS: i64 = 60;
    let Connected { conn, database } = &mut set_up_with_counters();
    on_threads(5, database, |number, conn| {
        for key in 0..KEYS {
            if number == 0 {
                fold(videos.find(1)).keep_shards(1).run(conn).unwrap();
            } else {
                let request = format!("{}/{key}", number % 2); // two at once ask for the same
                assert_eq!(count_video(1, &request, conn), Ok(1));
            }
        }
    });
    assert_eq!(total_of(1, conn), 100 + 2 * KEYS);
    assert_eq!(number_of_keys(conn), 2 * KEYS);
}

#[test]
fn what_fails_where_its_shard_is_leaves_no_key() {
    use diesel_sharded_tests::schema::measures::dsl::{measures, small};
    let conn = &mut set_up_with_counters().conn;
    let add = |n: i16, key: &str, conn: &mut Conn| {
        let count = update(measures.find(1_i16)).set(small.eq(small + n));
        count.idempotency_key(key).execute(conn).done()
    };
    assert_eq!(add(30_000, "most", conn), Ok(1));
    for _ in 0..2 {
        refused!(add(30_000, "more", conn), Error::Overflow { .. });
    }
    assert_eq!(number_of_keys(conn), 1);
    assert_eq!(add(-30_000, "more", conn), Ok(1));
    assert!(is_reused(add(30_000, "more", conn)));
    assert_eq!(add(30_000, "most", conn), Ok(1));
    assert_eq!(measures.select(small.total()).first(conn), Ok(0_i16));
}

#[test]
fn inside_a_transaction_the_key_goes_with_it() {
    let conn = &mut set_up_with_counters().conn;
    rolled_back(conn, |conn| {
        assert_eq!(count_video(1, "a", conn), Ok(1));
        assert_eq!(count_video(1, "a", conn), Ok(1));
        assert_eq!(total_of(1, conn), 101);
    });
    assert_eq!((total_of(1, conn), number_of_keys(conn)), (100, 0));
    for _ in 0..2 {
        let counted = in_transaction(conn, |conn| {
            assert_eq!(count_video(1, "b", conn), Ok(1));
            assert!(is_reused(count_video(2, "b", conn))); // which takes a savepoint back, no more
            count_video(3, "c", conn)
        });
        assert_eq!(counted, Ok(1));
    }
    assert_eq!(totals(conn), [101, 200, 301]);
}

#[test]
fn a_batch_counts_once() {
    let conn = &mut set_up_with_counters().conn;
    let batch = |n| count_many(views, [(2, 5), (9, 1), (1, n)]).idempotency_key("batch");
    for _ in 0..2 {
        gives!(batch(3).run(conn), 2);
    }
    assert!(is_reused(batch(4).run(conn).done()));
    assert_eq!(totals(conn), [103, 205, 300]);
    // What is not there is inserted, once; what met nothing leaves the key free.
    let new = |key: &i64| (id.eq(*key), slug.eq("i"), title.eq("I"));
    let missing = || count_many(views, [(9, 7)]).idempotency_key("missing");
    gives!(missing().run(conn), 0);
    for _ in 0..2 {
        let inserted = count_many(views, [(9, 7)]).or_insert(new);
        gives!(inserted.idempotency_key("new").run(conn), 1);
        gives!(missing().run(conn), 1);
    }
    assert_eq!(total_of(9, conn), 14);
    // All of it goes with the caller's transaction, and with an overflow.
    let undone = in_transaction(conn, |conn| -> QueryResult<()> {
        let batch = count_many(views, [(1, 1)]).idempotency_key("a");
        gives!(batch.run(conn), 1);
        Err(diesel::result::Error::RollbackTransaction)
    });
    assert!(undone.is_err());
    let too_much = count_many(likes, [(1, 1), (2, 3_000_000_000)]).idempotency_key("b");
    refused!(too_much.run(conn), Error::Overflow { .. });
    assert_eq!((totals(conn)[0], number_of_keys(conn)), (103, 3));
}

#[test]
fn a_total_is_read_with_the_count_or_its_repeat() {
    let conn = &mut set_up_with_counters().conn;
    let (row, named) = (RowCounter::of(views, 1_i64), Counter::named("total"));
    gives!(row.idempotency_key("a").add_and_get(5, conn), Some(105));
    gives!(named.idempotency_key("b").add_and_get(5, conn), 5);
    row.add(1, conn).unwrap();
    gives!(row.idempotency_key("a").add_and_get(5, conn), Some(106));
    gives!(named.idempotency_key("b").add_and_get(5, conn), 5);
    assert!(is_reused(
        row.idempotency_key("b").add_and_get(5, conn).done()
    ));
    let none = RowCounter::of(views, 9_i64).idempotency_key("c");
    gives!(none.add_and_get(5, conn), None);
    gives!(none.add_and_get(0, conn), None);
}

#[test]
fn old_keys_are_removed_by_the_databases_clock() {
    let conn = &mut set_up_with_counters().conn;
    const HOUR: Duration = Duration::from_secs(3600);
    let count_both = |conn: &mut Conn| {
        for key in ["old", "new"] {
            assert_eq!(count_video(1, key, conn), Ok(1));
        }
    };
    count_both(conn);
    for (age, removed) in [(0, 0), (-1_000_000, 0), (1_003_500, 0), (200, 1)] {
        let old = keys::table.find(b"old".to_vec());
        edit!(old, keys::created.eq(keys::created - age), conn);
        gives!(idempotency::remove_older_than(HOUR, conn), removed);
    }
    gives!(idempotency::remove_older_than(Duration::MAX, conn), 0);
    count_both(conn);
    assert_eq!(total_of(1, conn), 103); // the old one again
}

#[test]
fn many_old_keys_are_removed_in_steps() {
    let conn = &mut set_up_with_counters().conn;
    old_keys(2_050, i64::MAX, conn);
    let day = Duration::from_secs(24 * 3600);
    gives!(idempotency::remove_older_than(day, conn), 2_050);
    assert_eq!(number_of_keys(conn), 0);
}

#[test]
fn missing_tables_are_named() {
    let conn = &mut set_up().conn;
    let counted = count_video(1, "a", conn);
    let removed = idempotency::remove_older_than(Duration::ZERO, conn).done();
    for missing in [counted, removed] {
        refused!(missing, Error::MissingShardsTable { table, .. } if table.ends_with("_keys"));
    }
}
