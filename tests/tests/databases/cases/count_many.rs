//! Many rows of one field, each with its own amount, at once.

use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{measures, watchlists};
use diesel_sharded_tests::{own_key, sent};

/// Counts, and is told the number of rows and the keys without a row.
macro_rules! counts_many {
    ($count:expr, $conn:expr => $rows:expr, $missing:expr) => {
        let counted = $count.run($conn).unwrap();
        assert_eq!((counted.rows, counted.missing), ($rows, $missing));
    };
}

#[test]
fn each_row_gets_the_sum_of_its_amounts() {
    let conn = &mut set_up().conn;
    for times in 1..=3 {
        let amounts = [(2, 5), (99, 1), (1, 3), (-5, 7), (2, -1)];
        counts_many!(count_many(views, amounts), conn => 2, vec![-5, 99]);
        assert_eq!(totals(conn), [100 + 3 * times, 200 + 4 * times, 300]);
    }
    counts_many!(count_many(views, []), conn => 0, vec![]);
    let parents = videos_shards::table.select(videos_shards::id).distinct();
    let parents = parents.order(videos_shards::id).load::<i64>(conn);
    assert_eq!(parents, Ok(vec![1, 2]));
}

/// On new shards and on those that exist, beside rows that are missing, inserted, or cannot take an amount.
#[test]
fn several_fields_at_once() {
    let conn = &mut set_up_with_counters().conn;
    let both = (views.total(), likes.total());
    let both = |conn: &mut Conn| videos.order(id).select(both).load::<(i64, i32)>(conn);
    for times in 1..=3 {
        let amounts = [(1, [1, -1]), (2, [20, 0]), (9, [1, 1]), (1, [2, 5])];
        counts_many!(count_many((views, likes), amounts), conn => 2, vec![9]);
        let expected = vec![
            (100 + 3 * times, 1 + 4 * times as i32),
            (200 + 20 * times, 2),
            (300, 3),
        ];
        assert_eq!(both(conn), Ok(expected));
    }
    let new = |key: &i64| (id.eq(*key), slug.eq("new"), title.eq(""), likes.eq(7));
    let many = || count_many((likes, views), [(3, [1, 10]), (9, [2, 20])]);
    let once = || many().or_insert(new).idempotency_key("several");
    gives!(once().run(conn), 2);
    gives!(once().run(conn), 2);
    let others = count_many((views, likes), [(3, [1, 10]), (9, [2, 20])]);
    let others = others.idempotency_key("several").run(conn).done();
    refused!(others, Error::IdempotencyKeyReused);
    let expected = vec![(109, 13), (260, 2), (310, 4), (20, 9)];
    assert_eq!(both(conn), Ok(expected.clone()));
    let too_many = count_many((views, likes), [(1, [1, 1]), (2, [1, i64::MAX])]);
    refused!(too_many.run(conn), Error::Overflow { .. });
    assert_eq!(both(conn), Ok(expected));
}

#[test]
fn rows_that_are_missing_are_inserted() {
    let Connected { conn, database } = &mut set_up();
    let new = |key: &(i32, Day)| (downloads::version.eq(key.0), downloads::day.eq(key.1));
    let keys = |n: i32| (0..n).map(|version| ((version, Day(version % 3)), 2_i64));
    on_threads(4, database, |_, conn| {
        let many = count_many(downloads::number, keys(30)).or_insert(new);
        counts_many!(many, conn => 30, vec![]);
    });
    let numbers = downloads::table.select(downloads::number.total());
    assert_eq!(numbers.load::<i32>(conn), Ok(vec![8; 30]));
    let many = count_many(downloads::number, keys(31));
    counts_many!(many, conn => 30, vec![(30, Day(0))]);
}

/// Lists of values are padded.
#[test]
fn a_shard_below_0_hides_none_that_is_missing() {
    let conn = &mut set_up().conn;
    let others = (videos_shards::id.eq(3), videos_shards::shard.eq(-1));
    insert!(videos_shards::table, others, conn);
    counts_many!(count_many(views, [(1, 1), (2, 1), (3, 1)]), conn => 3, vec![]);
    assert_eq!(totals(conn), [101, 201, 301]);
}

/// No matter who counts, as long as they do not meet.
#[test]
fn batches_leave_one_shard_on_a_row() {
    let Connected { conn, database } = &mut set_up();
    let keys = [own_key(), own_key()];
    for key in keys {
        let name = format!("own {key}");
        insert!(videos, (id.eq(key), slug.eq(name), title.eq("")), conn);
    }
    for _ in 0..4 {
        on_threads(1, database, |_, conn| {
            counts_many!(count_many(views, keys.map(|key| (key, 1))), conn => 2, vec![]);
        });
    }
    let shards = videos_shards::table.filter(videos_shards::id.eq_any(keys));
    let shards = shards.select((videos_shards::shard, videos_shards::views));
    assert_eq!(shards.load(conn), Ok(vec![(0, 4_i64); 2]));
}

/// More than one statement takes, some of them without a row.
#[test]
fn hundreds_of_keys() {
    let conn = &mut set_up().conn;
    for number in 10..360_i64 {
        let name = format!("slug {number}");
        insert!(videos, (id.eq(number), slug.eq(name), title.eq("")), conn);
    }
    let missing = [0].into_iter().chain(4..10).chain(360..400);
    for _ in 0..2 {
        let many = count_many(views, (0..400).map(|key| (key, key)));
        counts_many!(many, conn => 353, missing.clone().collect::<Vec<_>>());
    }
    let old = [102, 204, 306].into_iter();
    let expected: Vec<i64> = old.chain((10..360).map(|key| 2 * key)).collect();
    assert_eq!(totals(conn), expected);
}

/// Their locks, on SQLite that of the database, are held for a few statements for each hundred keys.
#[test]
fn keys_without_a_row_take_no_statement_each() {
    let conn = &mut set_up().conn;
    let keys = (1..=1_000).map(|key| (key, 1));
    let (counted, statements) = sent(conn, |conn| count_many(views, keys).run(conn).done());
    let counted = counted.unwrap();
    assert_eq!((counted.rows, counted.missing.len()), (3, 997));
    assert!(statements.len() < 200, "{}", statements.len());
}

/// Keys as the table has them.
fn of_lists(amounts: &[(&str, i64)]) -> Vec<(String, i64)> {
    let amounts = amounts.iter().map(|(key, n)| ((*key).to_owned(), *n));
    amounts.collect()
}

/// On MySQL and MariaDB, whose default collation ignores case.
#[test]
fn keys_that_name_one_row_count_on_it_each() {
    use watchlists::dsl::{entries, name};
    let conn = &mut set_up().conn;
    insert!(watchlists::table, name.eq("list"), conn);
    let same = watchlists::table.find("LIST").count();
    let same = same.get_result::<i64>(conn) == Ok(1);
    for times in 1..=2 {
        let amounts = of_lists(&[("list", 1), ("LIST", 10), ("other", 100)]);
        let (rows, missing, n) = match same {
            true => (2, vec!["other"], 11),
            false => (1, vec!["LIST", "other"], 1),
        };
        let counted = count_many(entries, amounts).run(conn).unwrap();
        assert_eq!(counted.rows, rows);
        assert_eq!(counted.missing, missing);
        let total = watchlists::table.select(entries.total()).first(conn);
        assert_eq!(total, Ok(n * times));
    }
}

/// Where each of two such keys has a shard of its own.
#[test]
fn keys_that_name_one_row_count_on_two_of_its_shards() {
    use watchlists::dsl::{entries, name};
    let conn = &mut set_up().conn;
    insert!(watchlists::table, name.eq("list"), conn);
    ShardChoice::Random.set_global();
    let (mut rows, rounds) = (0, 40);
    for _ in 0..rounds {
        let amounts = of_lists(&[("list", 1), ("LIST", 10), ("List", 100)]);
        rows += count_many(entries, amounts).run(conn).unwrap().rows;
    }
    ShardChoice::default().set_global();
    let total = watchlists::table.select(entries.total()).first(conn);
    let of_a_round = if rows == rounds { 1 } else { 111 };
    assert_eq!(total, Ok(of_a_round * rounds as i32));
}

#[test]
fn a_row_that_cannot_take_its_amount_takes_all_back() {
    let conn = &mut set_up().conn;
    insert!(measures::table, measures::id.eq(2_i16), conn);
    let small = |conn: &mut Conn| {
        let totals = measures::table.select(measures::small.total());
        totals.order(measures::id).load::<i16>(conn).unwrap()
    };
    let count = |n: i64, conn: &mut Conn| {
        let counts = [(1, 1), (2, n)];
        count_many(measures::small, counts).run(conn).done()
    };
    assert_eq!(count(1, conn).unwrap().rows, 2);
    refused!(count(40_000, conn), Error::Overflow { .. });
    assert_eq!(small(conn), [1, 1]);
    let beyond = count_many(measures::large, [(1, i64::MAX), (1, 1)]);
    refused!(beyond.run(conn), Error::Overflow { .. });
    assert_eq!(count(1, conn).unwrap().rows, 2);
    assert_eq!(small(conn), [2, 2]);
}

/// Each thread counts on all rows, in another order, while others fold and remove shards, and count by key.
#[test]
fn threads_beside_folds_lose_nothing() {
    const ROUNDS: i64 = 40;
    let Connected { conn, database } = &mut set_up();
    on_threads(8, database, |number, conn| {
        for round in 0..ROUNDS {
            match number {
                0 => drop(fold(videos).keep_shards(0).run(conn).unwrap()),
                1 => assert_eq!(count(1 + round % 3, 1, conn), Ok(1)),
                _ => {
                    let first = (number + round) % 3;
                    let amounts = (0..3).map(|i| ((first + i) % 3 + 1, 1));
                    counts_many!(count_many(views, amounts), conn => 3, vec![]);
                }
            }
        }
    });
    let totals = totals(conn);
    assert_eq!(totals.iter().sum::<i64>(), 600 + 6 * 3 * ROUNDS + ROUNDS);
    assert_eq!(fold(videos).run(conn).unwrap().unfit.len(), 0);
    assert_eq!(videos.order(id).select(views).load(conn), Ok(totals));
}
