//! Counters that stay within bounds.

use super::api::bounded::Bounded;
use super::api::counters;
use super::support::*;
use diesel_sharded_tests::schema::videos as table;
use diesel_sharded_tests::schema::videos::dsl::*;

/// The likes of video 1, which begin at 1, from 0 to 100.
fn bounded() -> Bounded<table::likes> {
    RowCounter::of(likes, 1).never_below(0).never_above(100)
}

fn total(conn: &mut Conn) -> i32 {
    videos.find(1).select(likes.total()).first(conn).unwrap()
}

#[test]
fn a_count_returns_the_new_total_or_nothing() {
    let conn = &mut set_up_with_counters().conn;
    gives!(bounded().add_and_get(-2, conn), None);
    gives!(bounded().add_and_get(5, conn), Some(6));
    gives!(bounded().get(conn), Some(6));
    let absent = RowCounter::of(likes, 99).never_below(0);
    let no_row = Err(DieselError::NotFound);
    rolled_back(conn, |conn| {
        gives!(bounded().add_and_get(94, conn), Some(100));
        gives!(bounded().add_and_get(1, conn), None);
        assert_eq!(absent.add(1, conn).done(), no_row);
    });
    assert_eq!(total(conn), 6);
    gives!(absent.get(conn), None);
    assert_eq!(absent.add(1, conn).done(), no_row);
    let no_total = absent.add_and_get(1, conn).done();
    assert_eq!(no_total, Err(DieselError::NotFound));

    let tickets = Counter::named("tickets").never_below(0).never_above(3);
    gives!(tickets.get(conn), 0);
    let new_totals = [-1, 3, 1].map(|n| tickets.add_and_get(n, conn).unwrap());
    assert_eq!(new_totals, [None, Some(3), None]);
    gives!(tickets.get(conn), 3);
}

#[test]
fn a_part_is_taken_where_the_bounds_leave_no_more() {
    let Connected { conn, database } = &mut set_up_with_counters();
    let take = |n, conn: &mut Conn| bounded().add_up_to(n, conn).unwrap();
    assert_eq!([-3, -3, 0, 30].map(|n| take(n, conn)), [-1, 0, 0, 30]);
    assert_eq!([i64::MAX, 1].map(|n| take(n, conn)), [70, 0]);
    let absent = RowCounter::of(likes, 99).never_below(0);
    assert_eq!(
        absent.add_up_to(-1, conn).done(),
        Err(DieselError::NotFound)
    );
    let seats = Counter::named("seats").never_below(0).never_above(3);
    let taken = [-1, 2, 2, 2].map(|n| seats.add_up_to(n, conn).unwrap());
    assert_eq!(taken, [0, 2, 1, 0]);
    // Nobody takes what another has taken.
    let taken = AtomicI64::new(0);
    on_threads(8, database, |_, conn| {
        for _ in 0..8 {
            taken.fetch_add(take(-3, conn), Ordering::Relaxed);
        }
    });
    assert_eq!((taken.into_inner(), total(conn)), (-100, 0));
    rolled_back(conn, |conn| assert_eq!(take(200, conn), 100));
    assert_eq!(total(conn), 0);
}

#[test]
fn a_key_counts_once_within_the_bounds() {
    let conn = &mut set_up_with_counters().conn;
    let row = |key: &str| bounded().idempotency_key(key);
    gives!(row("a").add(99, conn), true);
    gives!(row("a").add(99, conn), true); // again, though there is no more room
    assert_eq!(total(conn), 100);
    // A refused one leaves its key to any other.
    gives!(row("b").add(1, conn), false);
    gives!(row("b").add(-10, conn), true);
    assert!(is_reused(row("b").add(1, conn).done()));
    assert_eq!(total(conn), 90);
    let read = |key: &str, n, conn: &mut Conn| row(key).add_and_get(n, conn).done();
    assert_eq!(read("f", 11, conn), Ok(None));
    assert_eq!(read("f", 2, conn), Ok(Some(92)));
    gives!(bounded().add(8, conn), true);
    assert_eq!(read("f", 2, conn), Ok(Some(100))); // as it is now
    rolled_back(conn, |conn| assert_eq!(read("g", -1, conn), Ok(Some(99))));
    assert_eq!(read("g", 1, conn), Ok(None));

    let seats = Counter::named("seats").never_below(0).never_above(2);
    let taken = ["c", "c", "d", "e"].map(|key| seats.idempotency_key(key).add(1, conn).unwrap());
    assert_eq!(taken, [true, true, true, false]);
    let mut read = |key: &str, n| seats.idempotency_key(key).add_and_get(n, conn).done();
    let answers = [read("h", 1), read("h", -1), read("c", 1)];
    assert_eq!(answers, [None, Some(1), Some(1)].map(Ok));
}

#[test]
fn one_bound_leaves_the_other_direction_free() {
    let conn = &mut set_up().conn;
    let stock = RowCounter::of(views, 1).never_below(0);
    let taken = [1_000_000, -1_000_100, -1].map(|n| stock.add(n, conn).unwrap());
    assert_eq!(taken, [true, true, false]);
    let debt = RowCounter::of(views, 2).never_above(200);
    let taken = [1, -1_000, 1_001, 1_000].map(|n| debt.add(n, conn).unwrap());
    assert_eq!(taken, [false, true, false, true]);
    assert_eq!(totals(conn), [0, 200, 300]);
}

#[test]
fn the_ends_of_the_columns_type_are_bounds_like_any_other() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let conn = &mut set_up().conn;
    let all = RowCounter::of(small, 1).never_below(i64::MIN);
    let all = all.never_above(i64::MAX);
    let up = RowCounter::of(large, 1).never_above(i64::MAX);
    let taken = [5, -10].map(|n| all.add(n, conn).unwrap());
    assert_eq!(taken, [true, true]);
    let taken = [i64::MAX, 1, -5].map(|n| up.add(n, conn).unwrap());
    assert_eq!(taken, [true, false, true]);
    let read = measures.find(1).select((small.total(), large.total()));
    assert_eq!(read.first(conn), Ok((-5_i16, i64::MAX - 5)));
}

/// Far from the bounds an increment touches one shard and no parent, which is the point of bounded counters.
#[test]
fn uses_shards_while_there_is_room() {
    let conn = &mut set_up().conn;
    let stock = RowCounter::of(views, 3).never_below(0); // 300
    gives!(stock.add(-1, conn), true); // hands out
    let base = |conn: &mut Conn| videos.find(3).select(views).first::<i64>(conn).unwrap();
    let handed_out = base(conn);
    assert!(handed_out < 10, "{handed_out}");
    for _ in 0..100 {
        gives!(stock.add(-1, conn), true);
        assert_eq!(base(conn), handed_out);
    }
    let used = videos_shards::id.eq(3).and(videos_shards::views.gt(0));
    let used = videos_shards::table.filter(used).count();
    assert_eq!(used.get_result(conn), Ok(2_i64)); // half of 4: the other half is for the other bound
}

/// Additions to a total below its bound pay off the debt first, and make no room until then.
#[test]
fn a_debt_is_paid_first() {
    let conn = &mut set_up().conn;
    let stock = RowCounter::of(views, 1).never_below(0);
    gives!(stock.add(100, conn), true); // its shards are there
    set_total(videos.find(1), views, -10).execute(conn).unwrap();
    let taken = [9, -1, 2, -1, -1].map(|n| stock.add(n, conn).unwrap());
    assert_eq!(taken, [true, false, true, true, false]);
    assert_eq!(total_of(1, conn), 0);
}

/// Buyers in transactions of their own and of the application's, some of which are rolled back, while the number of shards
/// changes and others fold: every seat is sold once.
#[test]
fn seats_are_sold_once_each_inside_transactions_too() {
    const SEATS: i64 = 120;
    let Connected { conn, database } = &mut set_up_with_counters();
    let event = Counter::named("event");
    event.set(SEATS, conn).unwrap();
    let sold = AtomicI64::new(0);
    let buy = |number, conn: &mut Conn| {
        let left = RowCounter::of(counters::value, b"event".to_vec());
        let seats = left.never_below(0).never_above(SEATS);
        for round in 0..20 {
            let bought = match (number + round) % 4 {
                0 => in_transaction(conn, |conn| seats.add(-1, conn).done()),
                1 => {
                    // Bought, and then rolled back with the transaction.
                    let taken_back: QueryResult<()> = in_transaction(conn, |conn| {
                        seats.add(-1, conn).done()?;
                        Err(DieselError::NotFound)
                    });
                    assert_eq!(taken_back, Err(DieselError::NotFound));
                    Ok(false)
                }
                _ => seats.add(-1, conn).done(),
            };
            sold.fetch_add(i64::from(bought.unwrap()), Ordering::SeqCst);
        }
    };
    on_threads_beside(8, database, buy, 2, |number, rounds, conn| {
        for round in rounds {
            if number == 0 {
                let shards = (round % 9) as u16 + 1;
                let of_all = ShardCount::of(counters::value);
                of_all.resize(shards, conn).unwrap();
                continue;
            }
            let _ = fold(counters::table).run(conn).unwrap();
            let left = event.get(conn).unwrap();
            assert!((0..=SEATS).contains(&left), "{left}");
        }
    });
    // 8 × 15 = 120 buyers who keep their seats, one for each.
    assert_eq!(sold.into_inner(), SEATS);
    gives!(event.get(conn), 0);
}

/// Groups come and go, each after another increment of the same row, which may hold what others need; some take back what they did.
#[test]
fn bounds_hold_behind_other_counts_of_the_row() {
    const ROUNDS: i64 = 12;
    let Connected { conn, database } = &mut set_up();
    let [added, counted] = [const { AtomicI64::new(0) }; 2];
    on_threads(6, database, |thread, conn| {
        for round in 0..ROUNDS {
            let n = (thread + round) % 7 - 3;
            let done = in_transaction(conn, |conn| {
                assert_eq!(count(1, 1, conn)?, 1);
                let seats = RowCounter::of(likes, 1).never_below(0).never_above(20);
                let done = match round % 3 {
                    0 => seats.add_up_to(4 * n, conn).done()?,
                    1 => i64::from(seats.add(n, conn).done()?) * n,
                    _ => seats.add_and_get(n, conn).done()?.map_or(0, |_| n),
                };
                match round % 5 {
                    0 => Err(DieselError::NotFound),
                    _ => Ok(done),
                }
            });
            match done {
                Err(DieselError::NotFound) => continue,
                done => added.fetch_add(done.unwrap(), Ordering::SeqCst),
            };
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let left = i64::from(total(conn));
    assert!((0..=20).contains(&left), "{left}");
    assert_eq!(left, 1 + added.into_inner());
    assert_eq!(total_of(1, conn), 100 + counted.into_inner());
}
