//! Callers who share a statement and its commit.

use std::sync::atomic::{AtomicI64, Ordering};

use super::support::*;
use diesel::connection::SimpleConnection;
use diesel_sharded::combine::Combiner;
use diesel_sharded_tests::number;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{Day, Video, downloads, measures, watchlists};

#[test]
fn sixty_four_threads_combine_on_one_row() {
    let (database, mut conn) = database();
    let combiner = Combiner::new();
    on_threads(64, &database, |_, conn| {
        for _ in 0..200 {
            let count = update(videos.find(1)).set(views.eq(views + 1));
            assert_eq!(count.combine(&combiner).execute(conn), Ok(1));
        }
    });
    assert_eq!(totals(&mut conn), [100 + 64 * 200, 200, 300]);
}

/// Several rows and fields, plus and minus, keys by value, by reference and of a model; a row that is not there.
#[test]
fn callers_are_counted_on_their_own_row_and_fields() {
    let (database, mut conn) = database();
    let combiner = Combiner::new();
    let model = Video {
        id: 3,
        slug: String::new(),
        views: 0,
        likes: 0,
    };
    on_threads(16, &database, |_, conn| {
        for round in 0..40 {
            let counted = match round % 5 {
                0 => update(videos.find(1))
                    .set((views.eq(views + 3 - 1), likes.eq(likes - 1)))
                    .combine(&combiner)
                    .execute(conn),
                1 => update(videos.find(&2))
                    .set(views.eq(views - 1))
                    .combine(&combiner)
                    .execute(conn),
                2 => update(&model)
                    .set(likes.eq(likes + 1))
                    .combine(&combiner)
                    .execute(conn),
                3 => update(videos.find(9))
                    .set(views.eq(views + 1))
                    .combine(&combiner)
                    .execute(conn)
                    .map(|rows| rows + 1),
                _ => update(videos.filter(id.eq(1)))
                    .set(views.eq(views + 1))
                    .combine(&combiner)
                    .execute(conn),
            };
            assert_eq!(counted, Ok(1), "round {round}");
        }
    });
    let times = 16 * 8;
    assert_eq!(totals(&mut conn), [100 + 3 * times, 200 - times, 300]);
    let all_likes = videos.order(id).select(likes.total());
    let times = times as i32;
    assert_eq!(all_likes.load(&mut conn), Ok(vec![1 - times, 2, 3 + times]));
}

#[test]
fn text_keys_and_an_applications_own_key_are_counted_apart() {
    let (database, mut conn) = database();
    let conn = &mut conn;
    let names = ["a", "a\"", "a, b", "é"];
    for name in names {
        let row = (watchlists::name.eq(name), watchlists::entries.eq(0));
        diesel::insert_into(watchlists::table)
            .values(row)
            .execute(conn)
            .unwrap();
    }
    for day in 1..=2 {
        let row = (
            downloads::version.eq(1),
            downloads::day.eq(day),
            downloads::number.eq(0),
        );
        diesel::insert_into(downloads::table)
            .values(row)
            .execute(conn)
            .unwrap();
    }
    let combiner = Combiner::new();
    on_threads(8, &database, |thread, conn| {
        for round in 0..40 {
            let name = names[round % names.len()];
            let counted = update(watchlists::table.find(name))
                .set(watchlists::entries.eq(watchlists::entries + 1))
                .combine(&combiner)
                .execute(conn);
            assert_eq!(counted, Ok(1), "{name}");
            let day = Day(1 + (thread as i32 + round as i32) % 2);
            let counted = update(downloads::table.find((1, day)))
                .set(downloads::number.eq(downloads::number + 1))
                .combine(&combiner)
                .execute(conn);
            assert_eq!(counted, Ok(1));
        }
    });
    let entries = watchlists::table.select(watchlists::entries.total());
    assert_eq!(entries.load(conn), Ok(vec![80; 4]));
    let numbers = downloads::table.select(downloads::number.total());
    assert_eq!(numbers.load(conn), Ok(vec![160; 2]));
}

#[test]
fn counters_combine_and_are_created_once() {
    let (database, mut conn) = database_with_counters();
    let combiner = Combiner::new();
    on_threads(16, &database, |_, conn| {
        let (of_1, of_9) = (RowCounter::of(views, 1), RowCounter::of(views, 9));
        let visits = Counter::named("visits");
        for _ in 0..40 {
            assert_eq!(of_1.combine(&combiner).add(3, conn), Ok(1));
            assert_eq!(of_9.combine(&combiner).add(3, conn), Ok(0));
            assert_eq!(visits.combine(&combiner).add(2, conn), Ok(()));
            assert_eq!(visits.combine(&combiner).decrement(conn), Ok(()));
        }
    });
    assert_eq!(total_of(1, &mut conn), 100 + 3 * 16 * 40);
    assert_eq!(Counter::named("visits").get(&mut conn), Ok(16 * 40));
}

/// Together the amounts do not fit: each caller then has its own result.
#[test]
fn who_overflows_alone_gets_the_error() {
    let (database, mut conn) = database();
    let combiner = Combiner::new();
    let counted = AtomicI64::new(0);
    on_threads(16, &database, |_, conn| {
        for _ in 0..10 {
            let added = update(measures::table.find(1))
                .set(measures::small.eq(measures::small + 1_000))
                .combine(&combiner)
                .execute(conn);
            match added {
                Ok(rows) => {
                    assert_eq!(rows, 1);
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    let error = diesel_sharded::Error::from(error);
                    let overflow = matches!(error, diesel_sharded::Error::Overflow { .. });
                    assert!(overflow, "{error:?}");
                }
            }
        }
    });
    let counted = counted.into_inner();
    assert!((32..160).contains(&counted), "{counted}");
    let shards = number!("(SELECT SUM(small) FROM measures_shards)", &mut conn);
    assert_eq!(shards, 1_000 * counted);
}

/// Who rolls back takes back its own counts alone, also in a transaction that Diesel does not know. (Its own may have been counted by others then.)
#[test]
fn nobody_counts_for_others_inside_a_transaction() {
    let (database, mut conn) = database();
    let combiner = Combiner::new();
    let count = |conn: &mut Conn| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        assert_eq!(count.combine(&combiner).execute(conn), Ok(1));
    };
    on_threads(8, &database, |thread, conn| {
        for round in 0..60 {
            match (thread, round % 3) {
                (0, 0) => {
                    conn.batch_execute("BEGIN").unwrap();
                    count(conn);
                    update(videos.find(1))
                        .set(views.eq(views + 1_000))
                        .alone()
                        .execute(conn)
                        .unwrap();
                    conn.batch_execute("ROLLBACK").unwrap();
                }
                (1, 0) => {
                    let undone = conn.transaction(|conn| {
                        count(conn);
                        Err::<(), _>(diesel::result::Error::RollbackTransaction)
                    });
                    assert!(undone.is_err());
                }
                _ => count(conn),
            }
        }
    });
    let rolled_back = 100 + 8 * 60 - total_of(1, &mut conn);
    assert!((20..=40).contains(&rolled_back), "{rolled_back}");
}
