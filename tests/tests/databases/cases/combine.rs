//! Callers who share a statement and its commit.

use super::support::*;
use diesel_sharded::combine::Combiner;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{measures, watchlists};

#[test]
fn sixty_four_threads_combine_on_one_row() {
    let Connected { conn, database } = &mut set_up();
    let combiner = Combiner::new();
    on_threads(64, database, |_, conn| {
        for _ in 0..200 {
            let count = viewed!(videos.find(1)).combine(&combiner);
            assert_eq!(count.execute(conn).done(), Ok(1));
        }
    });
    assert_eq!(totals(conn), [100 + 64 * 200, 200, 300]);
}

/// Several rows and fields, plus and minus, keys by value, by reference and of a model; a row that is not there.
#[test]
fn callers_are_counted_on_their_own_row_and_fields() {
    let Connected { conn, database } = &mut set_up();
    let combiner = Combiner::new();
    let model = Video {
        id: 3,
        slug: String::new(),
        views: 0,
        likes: 0,
    };
    on_threads(16, database, |_, conn| {
        macro_rules! combined {
            ($rows:expr, $changes:expr) => {
                update($rows)
                    .set($changes)
                    .combine(&combiner)
                    .execute(conn)
                    .done()
            };
        }
        for round in 0..40 {
            let counted = match round % 5 {
                0 => combined!(
                    videos.find(1),
                    (views.eq(views + 3 - 1), likes.eq(likes - 1))
                ),
                1 => combined!(videos.find(&2), views.eq(views - 1)),
                2 => combined!(&model, likes.eq(likes + 1)),
                3 => combined!(videos.find(9), views.eq(views + 1)).map(|rows| rows + 1),
                _ => combined!(videos.filter(id.eq(1)), views.eq(views + 1)),
            };
            assert_eq!(counted, Ok(1), "round {round}");
        }
    });
    let times = 16 * 8;
    assert_eq!(totals(conn), [100 + 3 * times, 200 - times, 300]);
    let all_likes = videos.order(id).select(likes.total());
    let times = times as i32;
    assert_eq!(all_likes.load(conn), Ok(vec![1 - times, 2, 3 + times]));
}

#[test]
fn eight_fields_of_every_type_combine() {
    use diesel_sharded_tests::schema::measures::dsl::{
        exact, f, g, h, large, measures, medium, real, small,
    };
    let Connected { conn, database } = &mut set_up();
    let combiner = Combiner::new();
    let tenth = "0.1".parse::<bigdecimal::BigDecimal>().unwrap();
    on_threads(16, database, |_, conn| {
        for _ in 0..40 {
            let changes = (
                small.eq(small - 1),
                medium.eq(medium + 2),
                large.eq(large + (1 << 40)),
                real.eq(real + 0.5 - 0.25),
                exact.eq(exact + &tenth),
                f.eq(f + 1),
                g.eq(g - 1),
                h.eq(h + 1 + 1),
            );
            let count = update(measures.find(1)).set(changes).combine(&combiner);
            assert_eq!(count.execute(conn).done(), Ok(1));
        }
    });
    let all = measures.select((small.total(), medium.total(), large.total(), real.total()));
    assert_eq!(all.first(conn), Ok((-640_i16, 1280, 640_i64 << 40, 160.0)));
    let others = measures.select((f.total(), g.total(), h.total()));
    assert_eq!(others.first(conn), Ok((640_i64, -640_i64, 1280_i64)));
    let folded = fold(measures).run(conn).done().unwrap();
    let moved = folded.moved(exact).to_string().parse::<f64>().unwrap();
    assert!((moved - 64.0).abs() < 1e-9, "{moved}"); // SQLite's decimals are doubles
}

/// One of a row's callers inserts it, with what that caller has for it. Those who would insert none combine with them.
#[test]
fn callers_with_a_row_to_insert_combine() {
    let Connected { conn, database } = &mut set_up();
    let combiner = Combiner::new();
    on_threads(16, database, |thread, conn| {
        for round in 0..40 {
            let key = 10 + round / 8;
            let row = (
                id.eq(key),
                slug.eq(key.to_string()),
                title.eq(""),
                views.eq(1_000),
                likes.eq(thread as i32),
            );
            let inserts = viewed!(videos.find(key)).or_insert(row).combine(&combiner);
            assert_eq!(inserts.execute(conn).done(), Ok(1));
            let there = viewed!(videos.find(key)).combine(&combiner);
            assert_eq!(there.execute(conn).done(), Ok(1));
        }
    });
    let inserted = [1_000 + 2 * 16 * 8; 5];
    assert_eq!(
        totals(conn),
        [vec![100, 200, 300], inserted.to_vec()].concat()
    );
}

#[test]
fn text_keys_and_an_applications_own_key_are_counted_apart() {
    use downloads::dsl::{day, number, version};
    use watchlists::dsl::{entries, name};
    let Connected { conn, database } = &mut set_up();
    let lists = ["a", "a\"", "a, b", "é"];
    for list in lists {
        insert!(watchlists::table, name.eq(list), conn);
    }
    for on in 1..=2 {
        insert!(downloads::table, (version.eq(1), day.eq(on)), conn);
    }
    let combiner = Combiner::new();
    on_threads(8, database, |thread, conn| {
        for round in 0..40 {
            let list = lists[round % lists.len()];
            let count = update(watchlists::table.find(list)).set(entries.eq(entries + 1));
            assert_eq!(
                count.combine(&combiner).execute(conn).done(),
                Ok(1),
                "{list}"
            );
            let on = Day(1 + (thread as i32 + round as i32) % 2);
            let count = update(downloads::table.find((1, on))).set(number.eq(number + 1));
            assert_eq!(count.combine(&combiner).execute(conn).done(), Ok(1));
        }
    });
    let lists = watchlists::table.select(entries.total());
    assert_eq!(lists.load(conn), Ok(vec![80; 4]));
    let numbers = downloads::table.select(number.total());
    assert_eq!(numbers.load(conn), Ok(vec![160; 2]));
}

#[test]
fn counters_combine_and_are_created_once() {
    let Connected { conn, database } = &mut set_up_with_counters();
    let combiner = Combiner::new();
    on_threads(16, database, |_, conn| {
        let (of_1, of_9) = (RowCounter::of(views, 1), RowCounter::of(views, 9));
        let visits = Counter::named("visits");
        for _ in 0..40 {
            assert_eq!(of_1.combine(&combiner).add(3, conn).done(), Ok(1));
            assert_eq!(of_9.combine(&combiner).add(3, conn).done(), Ok(0));
            assert_eq!(visits.combine(&combiner).add(2, conn).done(), Ok(()));
            assert_eq!(visits.combine(&combiner).decrement(conn).done(), Ok(()));
        }
    });
    assert_eq!(total_of(1, conn), 100 + 3 * 16 * 40);
    assert_eq!(Counter::named("visits").get(conn).done(), Ok(16 * 40));
}

/// Callers by the same key, of whom some count on what is there alone.
#[test]
fn who_creates_a_counter_is_counted_by_nobody_who_does_not() {
    use diesel_sharded::counters;
    let Connected { conn, database } = &mut set_up_with_counters();
    let combiner = Combiner::new();
    let names = || (0..60).map(|round| format!("new {round}"));
    let counted = AtomicI64::new(0);
    on_threads(12, database, |thread, conn| {
        for name in names() {
            let (n, is_counted) = if thread == 0 {
                let created = Counter::named(&*name)
                    .combine(&combiner)
                    .add(1_000, conn)
                    .done();
                (1_000, created.map(|()| 1))
            } else {
                let there = RowCounter::of(counters::value, name.into_bytes());
                (1, there.combine(&combiner).add(1, conn).done())
            };
            counted.fetch_add(n * is_counted.unwrap() as i64, Ordering::Relaxed);
        }
    });
    let totals = names().map(|name| Counter::named(name).get(conn).unwrap());
    let totals = totals.collect::<Vec<_>>();
    assert!(totals.iter().all(|total| *total >= 1_000), "{totals:?}");
    assert_eq!(totals.iter().sum::<i64>(), counted.into_inner());
}

/// Together the amounts do not fit: each caller then has its own result. Nor is anybody refused who counts on another row beside them.
#[test]
fn who_overflows_alone_gets_the_error() {
    use measures::dsl::small;
    let Connected { conn, database } = &mut set_up();
    let combiner = Combiner::new();
    let counted = AtomicI64::new(0);
    on_threads(16, database, |_, conn| {
        for _ in 0..10 {
            let count = update(measures::table.find(1)).set(small.eq(small + 1_000));
            match count.combine(&combiner).execute(conn).done() {
                Ok(rows) => drop(counted.fetch_add(rows as i64, Ordering::Relaxed)),
                refused => refused!(refused, Error::Overflow { .. }),
            }
            let fits = viewed!(videos.find(1)).combine(&combiner);
            assert_eq!(fits.execute(conn).done(), Ok(1));
        }
    });
    let counted = counted.into_inner();
    assert!((32..160).contains(&counted), "{counted}");
    let shards = number!("(SELECT SUM(small) FROM measures_shards)", conn);
    assert_eq!(shards, 1_000 * counted);
    assert_eq!(total_of(1, conn), 100 + 160);
}

/// A rollback takes back only the caller's own increments, also in a transaction unknown to Diesel. (Others may have made them then.)
#[test]
fn nobody_counts_for_others_inside_a_transaction() {
    let Connected { conn, database } = &mut set_up_with_counters();
    let combiner = Combiner::new();
    let count = |conn: &mut Conn| {
        let count = viewed!(videos.find(1)).combine(&combiner);
        assert_eq!(count.execute(conn).done(), Ok(1));
    };
    on_threads(8, database, |thread, conn| {
        for round in 0..60 {
            match (thread, round % 3) {
                (0, 0) => {
                    conn.batch_execute("BEGIN").unwrap();
                    count(conn);
                    let alone = update(videos.find(1)).set(views.eq(views + 1_000));
                    alone.alone().execute(conn).unwrap();
                    let once = update(videos.find(1)).set(views.eq(views + 1_000));
                    let once = once.combine(&combiner).idempotency_key("taken back");
                    assert_eq!(once.execute(conn).done(), Ok(1));
                    conn.batch_execute("ROLLBACK").unwrap();
                }
                (1, 0) => rolled_back(conn, count),
                _ => count(conn),
            }
        }
    });
    let rolled_back = 100 + 8 * 60 - total_of(1, conn);
    assert!((20..=40).contains(&rolled_back), "{rolled_back}");
}

/// A key changes, and a row is deleted and inserted anew: each increment that is acknowledged is on a row, or went with one.
#[test]
fn counts_go_where_their_rows_go() {
    let Connected { conn, database } = &mut set_up();
    let combiner = Combiner::new();
    let policy = || diesel_sharded_tests::patient().with_attempts(1_000);
    let due = AtomicI64::new(600);
    let counting = |thread: i64, conn: &mut Conn| {
        for round in 0..120 {
            let key = [1, 2, 20][(thread + round) as usize % 3];
            let choice = [ShardChoice::Adaptive, ShardChoice::Random][round as usize % 2];
            let count = viewed!(videos.find(key)).shard_choice(choice);
            let counted = count.retry(policy()).combine(&combiner).execute(conn);
            due.fetch_add(counted.unwrap() as i64, Ordering::Relaxed);
        }
    };
    on_threads_beside(16, database, counting, 2, |number, rounds, conn| {
        for round in rounds {
            let went: QueryResult<i64> =
                retry::transaction(conn, policy(), |conn| match (number, round % 2) {
                    (0, is_back) => {
                        let (from, to) = [(2, 20), (20, 2)][is_back as usize];
                        let renamed = diesel::update(videos.find(from)).set(id.eq(to));
                        renamed.execute(conn).map(|_| 0)
                    }
                    (_, 0) => {
                        // Until both are locked, somebody may count on the row.
                        let row = diesel::update(videos.find(1)).set(slug.eq("gone"));
                        row.execute(conn)?;
                        let shards = videos_shards::table.filter(videos_shards::id.eq(1));
                        let shards = diesel::update(shards).set(videos_shards::likes.eq(0));
                        shards.execute(conn)?;
                        let total = total_of(1, conn);
                        diesel::delete(videos.find(1)).execute(conn)?;
                        Ok(total)
                    }
                    _ => {
                        let row = (id.eq(1), slug.eq("a"), title.eq("A"));
                        let inserted = diesel::insert_into(videos).values(row);
                        inserted.execute(conn).map(|_| 0)
                    }
                });
            due.fetch_sub(went.unwrap(), Ordering::Relaxed);
        }
    });
    assert_eq!(totals(conn).iter().sum::<i64>(), due.into_inner());
}
