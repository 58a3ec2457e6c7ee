//! Many rows of one field, each with its own amount, at once.

use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{measures, watchlists};
use diesel_sharded_tests::sent;

#[test]
fn each_row_gets_the_sum_of_its_amounts_and_no_other_key_a_shard() {
    let (_database, conn) = &mut database();
    for times in 1..=3 {
        let amounts = [(2, 5), (99, 1), (1, 3), (-5, 7), (2, -1)];
        let counted = count_many(views, amounts).run(conn).unwrap();
        assert_eq!((counted.rows, counted.missing), (2, vec![-5, 99]));
        assert_eq!(totals(conn), [100 + 3 * times, 200 + 4 * times, 300]);
    }
    let nothing = count_many(views, []).run(conn).unwrap();
    assert_eq!((nothing.rows, nothing.missing), (0, vec![]));
    let parents = videos_shards::table.select(videos_shards::id).distinct();
    let parents = parents.order(videos_shards::id).load::<i64>(conn);
    assert_eq!(parents, Ok(vec![1, 2]));
}

#[test]
fn rows_that_are_missing_are_inserted() {
    let (database, mut conn) = database();
    let new = |key: &(i32, Day)| (downloads::version.eq(key.0), downloads::day.eq(key.1));
    let keys = |n: i32| (0..n).map(|version| ((version, Day(version % 3)), 2_i64));
    on_threads(4, &database, |_, conn| {
        let counted = count_many(downloads::number, keys(30)).or_insert(new);
        let counted = counted.run(conn).unwrap();
        assert_eq!((counted.rows, counted.missing), (30, vec![]));
    });
    let numbers = downloads::table.select(downloads::number.total());
    assert_eq!(numbers.load::<i32>(&mut conn), Ok(vec![8; 30]));
    let counted = count_many(downloads::number, keys(31))
        .run(&mut conn)
        .unwrap();
    assert_eq!((counted.rows, counted.missing), (30, vec![(30, Day(0))]));
}

/// More than one statement takes, some of them without a row.
#[test]
fn hundreds_of_keys() {
    let (_database, conn) = &mut database();
    for number in 10..360_i64 {
        let row = (
            id.eq(number),
            slug.eq(format!("slug {number}")),
            title.eq(""),
        );
        insert!(videos, row, conn);
    }
    for _ in 0..2 {
        let counted = count_many(views, (0..400).map(|key| (key, key)))
            .run(conn)
            .unwrap();
        assert_eq!(counted.rows, 353);
        let missing: Vec<i64> = [0].into_iter().chain(4..10).chain(360..400).collect();
        assert_eq!(counted.missing, missing);
    }
    let expected: Vec<i64> = [102, 204, 306]
        .into_iter()
        .chain((10..360).map(|key| 2 * key))
        .collect();
    assert_eq!(totals(conn), expected);
}

/// Their locks, on SQLite that of the database, are held for a few statements for each hundred keys.
#[test]
fn keys_without_a_row_take_no_statement_each() {
    let (_database, mut conn) = database();
    let keys = (1..=1_000).map(|key| (key, 1));
    let (counted, statements) = sent(&mut conn, |conn| count_many(views, keys).run(conn));
    let counted = counted.unwrap();
    assert_eq!((counted.rows, counted.missing.len()), (3, 997));
    assert!(statements.len() < 200, "{}", statements.len());
}

/// On MySQL and MariaDB, whose default collation ignores case.
#[test]
fn keys_that_name_one_row_count_on_it_each() {
    let (_database, conn) = &mut database();
    let row = watchlists::name.eq("list");
    insert!(watchlists::table, row, conn);
    let same = watchlists::table
        .find("LIST")
        .count()
        .get_result::<i64>(conn)
        == Ok(1);
    for times in 1..=2 {
        let amounts = [("list", 1), ("LIST", 10), ("other", 100)];
        let amounts = amounts.map(|(key, n)| (key.to_owned(), n));
        let counted = count_many(watchlists::entries, amounts).run(conn).unwrap();
        let total = watchlists::table.select(watchlists::entries.total());
        let total: i32 = total.first(conn).unwrap();
        match same {
            true => {
                assert_eq!(
                    (counted.rows, counted.missing.as_slice()),
                    (2, &["other".to_owned()][..])
                );
                assert_eq!(total, 11 * times);
            }
            false => {
                assert_eq!(counted.rows, 1);
                assert_eq!(counted.missing, ["LIST", "other"]);
                assert_eq!(total, times);
            }
        }
    }
}

/// Where each of two such keys has a shard of its own.
#[test]
fn keys_that_name_one_row_count_on_two_of_its_shards() {
    let (_database, conn) = &mut database();
    let row = watchlists::name.eq("list");
    insert!(watchlists::table, row, conn);
    ShardChoice::Random.set_global();
    let (mut rows, rounds) = (0, 40);
    for _ in 0..rounds {
        let amounts = [("list", 1), ("LIST", 10), ("List", 100)];
        let amounts = amounts.map(|(key, n)| (key.to_owned(), n));
        rows += count_many(watchlists::entries, amounts)
            .run(conn)
            .unwrap()
            .rows;
    }
    ShardChoice::default().set_global();
    let total = watchlists::table.select(watchlists::entries.total());
    let of_a_round = if rows == rounds { 1 } else { 111 };
    assert_eq!(total.first(conn), Ok(of_a_round * rounds as i32));
}

#[test]
fn a_row_that_cannot_take_its_amount_takes_all_back() {
    let (_database, conn) = &mut database();
    let row = measures::id.eq(2_i16);
    insert!(measures::table, row, conn);
    let small = |conn: &mut Conn| {
        let totals = measures::table
            .order(measures::id)
            .select(measures::small.total());
        totals.load::<i16>(conn).unwrap()
    };
    let count = |n: i64, conn: &mut Conn| count_many(measures::small, [(1, 1), (2, n)]).run(conn);
    assert_eq!(count(1, conn).unwrap().rows, 2);
    let overflow = count(40_000, conn).map_err(Error::from);
    assert_matches!(overflow, Err(Error::Overflow { .. }));
    assert_eq!(small(conn), [1, 1]);
    let beyond = count_many(measures::large, [(1, i64::MAX), (1, 1)]).run(conn);
    let beyond = beyond.map_err(Error::from);
    assert_matches!(beyond, Err(Error::Overflow { .. }));
    assert_eq!(count(1, conn).unwrap().rows, 2);
    assert_eq!(small(conn), [2, 2]);
}

#[test]
fn inside_a_transaction_it_goes_with_that() {
    let (_database, conn) = &mut database();
    rolled_back(conn, |conn| {
        let counted = count_many(views, [(1, 1), (2, 1), (9, 1)])
            .run(conn)
            .unwrap();
        assert_eq!((counted.rows, counted.missing), (2, vec![9]));
        assert_eq!(totals(conn), [101, 201, 300]);
    });
    assert_eq!(totals(conn), [100, 200, 300]);
    let rows = retry::transaction(conn, RetryPolicy::default(), |conn| {
        count(3, 1, conn)?;
        Ok::<_, DieselError>(count_many(views, [(1, 1), (3, 1)]).run(conn)?.rows)
    });
    assert_eq!(rows, Ok(2));
    assert_eq!(totals(conn), [101, 200, 302]);
}

/// Each thread counts on all rows, in another order, while others fold and remove shards, and count by key.
#[test]
fn threads_beside_folds_lose_nothing() {
    const ROUNDS: i64 = 40;
    let (database, mut conn) = database();
    on_threads(8, &database, |number, conn| {
        for round in 0..ROUNDS {
            match number {
                0 => drop(fold(videos).keep_shards(0).run(conn).unwrap()),
                1 => assert_eq!(count(1 + round % 3, 1, conn), Ok(1)),
                _ => {
                    let first = (number + round) % 3;
                    let amounts = (0..3).map(|i| ((first + i) % 3 + 1, 1));
                    let counted = count_many(views, amounts).run(conn).unwrap();
                    assert_eq!((counted.rows, counted.missing), (3, vec![]));
                }
            }
        }
    });
    let sum: i64 = totals(&mut conn).iter().sum();
    assert_eq!(sum, 600 + 6 * 3 * ROUNDS + ROUNDS);
    assert_eq!(fold(videos).run(&mut conn).unwrap().unfit.len(), 0);
    assert_eq!(
        videos.order(id).select(views).load::<i64>(&mut conn),
        Ok(totals(&mut conn))
    );
}
