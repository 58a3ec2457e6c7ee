//! The whole life of a counter at once: counts, folds, resizes, sets and reads race, and every read is judged.

use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;

/// Sums of the amounts begun and of those acknowledged, up and down apart. By such sums
/// [Jepsen's counter checker](https://jepsen-io.github.io/jepsen/jepsen.checker.html#var-counter) judges reads.
#[derive(Default)]
struct Log {
    begun_up: AtomicI64,
    acknowledged_up: AtomicI64,
    begun_down: AtomicI64,
    acknowledged_down: AtomicI64,
}

impl Log {
    fn count(&self, n: i64, count: impl FnOnce()) {
        let (begun, acknowledged) = match n > 0 {
            true => (&self.begun_up, &self.acknowledged_up),
            false => (&self.begun_down, &self.acknowledged_down),
        };
        begun.fetch_add(n, Ordering::SeqCst);
        count();
        acknowledged.fetch_add(n, Ordering::SeqCst);
    }

    /// A read is at least the acknowledged amount before it began, less all that may have been subtracted by its end; and the
    /// other way round.
    fn read(&self, read: impl FnOnce() -> i64) -> i64 {
        let load = |sum: &AtomicI64| sum.load(Ordering::SeqCst);
        let (least, most) = (load(&self.acknowledged_up), load(&self.acknowledged_down));
        let total = read();
        let least = least + load(&self.begun_down);
        let most = most + load(&self.begun_up);
        assert!((least..=most).contains(&total), "{least} {total} {most}");
        total
    }
}

fn count(conn: &mut Conn, round: i64, n: i64) -> QueryResult<usize> {
    match round % 6 {
        0 => update(videos.filter(slug.eq("a")))
            .set(views.eq(views + n))
            .shard_choice(ShardChoice::Random)
            .execute(conn),
        1 => update(videos.filter(id.eq(1).and(channel.is_null())))
            .set((views.eq(views + n), likes.eq(likes + 1)))
            .shard_choice(ShardChoice::Striped)
            .execute(conn),
        2 => update(videos.find(1))
            .set(views.eq(views + n))
            .returning(views)
            .get_results::<i64>(conn)
            .map(|rows| rows.len()),
        3 => retry::transaction(conn, RetryPolicy::default(), |conn| {
            super::count(1, n, conn)
        }),
        4 => update(videos.find(1))
            .set(views.eq(views + n))
            .shard_choice(ShardChoice::Random)
            .execute(conn),
        _ => super::count(1, n, conn),
    }
}

/// Reads in a transaction, since MariaDB misses removed shards now and then in a read outside one; see decision 0003.
fn total(conn: &mut Conn) -> i64 {
    let read: QueryResult<i64> =
        conn.transaction(|conn| videos.find(1).select(views.total()).first(conn));
    read.unwrap()
}

/// Folds remove shards while counts use them. Reads never leave the bounds, and never fall while counts only add.
#[test]
fn every_read_is_within_bounds() {
    for subtracts in [true, false] {
        let (database, mut conn) = database();
        set_total(videos.find(1), views, 0)
            .execute(&mut conn)
            .unwrap();
        let log = Log::default();
        let counting = AtomicI64::new(5);
        on_threads(10, &database, |number, conn| match number {
            0..5 => {
                for round in 0..60 {
                    let is_down = subtracts && (round + number) % 3 == 0;
                    let n = if is_down { -2 } else { 3 };
                    log.count(n, || assert_eq!(count(conn, round + number, n), Ok(1)));
                }
                counting.fetch_sub(1, Ordering::SeqCst);
            }
            5..8 => {
                let mut keep = 0;
                while counting.load(Ordering::SeqCst) > 0 {
                    let _ = fold(videos).keep_shards(keep % 5).run(conn).unwrap();
                    keep += 1;
                }
            }
            _ => {
                let mut last = 0;
                while counting.load(Ordering::SeqCst) > 0 {
                    let read = log.read(|| total(conn));
                    assert!(subtracts || read >= last, "{read} after {last}");
                    last = read;
                }
            }
        });
        let expected = log.acknowledged_up.into_inner() + log.acknowledged_down.into_inner();
        assert_eq!(total(&mut conn), expected);
        fold(videos).run(&mut conn).unwrap();
        assert_eq!(videos.find(1).select(views).first(&mut conn), Ok(expected));
    }
}

/// Sets, beside all the rest: the values read between two sets contain the counts made between them, and nothing else.
#[test]
fn sets_beside_all_the_rest() {
    const STEP: i64 = 1_000_000;
    let (database, mut conn) = database();
    let done = AtomicBool::new(false);
    let counted = AtomicI64::new(0);
    on_threads(8, &database, |number, conn| match number {
        0 => {
            for n in 1..=20 {
                set_total(videos.find(1), views, n * STEP)
                    .execute(conn)
                    .unwrap();
            }
            done.store(true, Ordering::SeqCst);
        }
        1 | 2 => {
            while !done.load(Ordering::SeqCst) {
                let _ = fold(videos).keep_shards(number as u16).run(conn).unwrap();
            }
        }
        3 | 4 => {
            let mut last = 0;
            while !done.load(Ordering::SeqCst) {
                let read = total(conn);
                assert!(read / STEP >= last, "{read} after {last} sets");
                let since = read % STEP;
                assert!(since <= 100 + counted.load(Ordering::SeqCst) + 3, "{read}");
                last = read / STEP;
            }
        }
        _ => {
            let mut round = 0;
            while !done.load(Ordering::SeqCst) {
                assert_eq!(count(conn, round, 1), Ok(1));
                counted.fetch_add(1, Ordering::SeqCst);
                round += 1;
            }
        }
    });
    let since = total(&mut conn) - 20 * STEP;
    assert!((0..=counted.into_inner()).contains(&since), "{since}");
    for round in 0..10 {
        assert_eq!(count(&mut conn, round, 1), Ok(1));
    }
    assert_eq!(total(&mut conn), 20 * STEP + since + 10);
}

/// Named counters, whose numbers of shards keep changing.
#[test]
fn resizes_beside_all_the_rest() {
    let (database, mut conn) = super::database_with_counters();
    let counter = Counter::named("resized under load");
    let log = Log::default();
    let counting = AtomicI64::new(5);
    on_threads(9, &database, |number, conn| match number {
        0..5 => {
            for round in 0..50 {
                let n = if (round + number) % 4 == 0 { -3 } else { 2 };
                log.count(n, || counter.add(n, conn).unwrap());
            }
            counting.fetch_sub(1, Ordering::SeqCst);
        }
        5 | 6 => {
            let mut n = 1;
            while counting.load(Ordering::SeqCst) > 0 {
                match number {
                    5 => counter.resize(n, conn).unwrap(),
                    _ => drop(counter.increase_shards(n, conn).unwrap()),
                }
                n = n % 12 + 3;
            }
        }
        _ => {
            while counting.load(Ordering::SeqCst) > 0 {
                let _ = log.read(|| counter.get(conn).unwrap());
            }
        }
    });
    let expected = log.acknowledged_up.into_inner() + log.acknowledged_down.into_inner();
    assert_eq!(counter.get(&mut conn), Ok(expected));
    counter.resize(2, &mut conn).unwrap();
    assert_eq!(counter.get(&mut conn), Ok(expected));
    assert_eq!(counter.estimate(&mut conn), Ok(expected));
}

/// Counts, folds, sets, resizes and reads of one counter at once.
#[test]
fn all_at_once() {
    const STEP: i64 = 1_000_000;
    let (database, mut conn) = super::database_with_counters();
    let counter = Counter::named("all");
    let (done, counted) = (AtomicBool::new(false), AtomicI64::new(0));
    on_threads(9, &database, |number, conn| match number {
        0 => {
            for n in 1..=15 {
                counter.set(n * STEP, conn).unwrap();
            }
            done.store(true, Ordering::SeqCst);
        }
        1 => {
            let mut n = 1;
            while !done.load(Ordering::SeqCst) {
                counter.resize(n, conn).unwrap();
                n = n % 9 + 2;
            }
        }
        2 | 3 => {
            while !done.load(Ordering::SeqCst) {
                let _ = counter.fold(conn).unwrap();
            }
        }
        4 | 5 => {
            let mut last = 0;
            while !done.load(Ordering::SeqCst) {
                let read = counter.get(conn).unwrap();
                let most = counted.load(Ordering::SeqCst) + 3;
                assert!(
                    read / STEP >= last && read % STEP <= most,
                    "{read} after {last} sets"
                );
                last = read / STEP;
            }
        }
        _ => {
            while !done.load(Ordering::SeqCst) {
                counter.increment(conn).unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let since = counter.get(&mut conn).unwrap() - 15 * STEP;
    assert!((0..=counted.into_inner()).contains(&since), "{since}");
    on_threads(8, &database, |number, conn| {
        for _ in 0..10 {
            match number {
                0 => counter.resize(3, conn).unwrap(),
                1 => drop(counter.fold(conn).unwrap()),
                _ => counter.increment(conn).unwrap(),
            }
        }
    });
    assert_eq!(counter.get(&mut conn), Ok(15 * STEP + since + 60));
}
