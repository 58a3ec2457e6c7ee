//! The whole life of a counter at once: increments, folds, resizes, sets and reads race, and every read is judged.

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

    fn sum(self) -> i64 {
        self.acknowledged_up.into_inner() + self.acknowledged_down.into_inner()
    }
}

fn count(conn: &mut Conn, round: i64, n: i64) -> QueryResult<usize> {
    let changes = views.eq(views + n);
    let by_key = || update(videos.find(1)).set(changes);
    match round % 6 {
        0 => update(videos.filter(slug.eq("a")))
            .set(changes)
            .shard_choice(ShardChoice::Random)
            .execute(conn)
            .done(),
        1 => update(videos.filter(id.eq(1).and(channel.is_null())))
            .set((changes, likes.eq(likes + 1)))
            .shard_choice(ShardChoice::Striped)
            .execute(conn)
            .done(),
        2 => {
            let rows = by_key().returning(views).get_results::<i64>(conn).done();
            rows.map(|rows| rows.len())
        }
        3 => in_transaction(conn, |conn| super::count(1, n, conn)),
        4 => {
            let anywhere = by_key().shard_choice(ShardChoice::Random);
            anywhere.execute(conn).done()
        }
        _ => super::count(1, n, conn),
    }
}

/// Reads in a transaction, since MariaDB misses removed shards now and then in a read outside one; see decision 0003.
fn total(conn: &mut Conn) -> i64 {
    conn.transaction(|conn| QueryResult::Ok(total_of(1, conn)))
        .unwrap()
}

/// Folds remove shards while increments use them. Reads never leave the bounds, and never fall while increments only add.
#[test]
fn every_read_is_within_bounds() {
    for subtracts in [true, false] {
        let Connected { conn, database } = &mut set_up();
        let zero = set_total(videos.find(1), views, 0).execute(conn).done();
        assert_eq!(zero, Ok(1));
        let log = Log::default();
        let counting = |number, conn: &mut Conn| {
            for round in 0..60 {
                let is_down = subtracts && (round + number) % 3 == 0;
                let n = if is_down { -2 } else { 3 };
                log.count(n, || assert_eq!(count(conn, round + number, n), Ok(1)));
            }
        };
        on_threads_beside(5, database, counting, 5, |number, rounds, conn| {
            let mut last = 0;
            for round in rounds {
                if number < 3 {
                    let keep = (round % 5) as u16;
                    fold(videos).keep_shards(keep).run(conn).unwrap();
                    continue;
                }
                let read = log.read(|| total(conn));
                assert!(subtracts || read >= last, "{read} after {last}");
                last = read;
            }
        });
        let expected = log.sum();
        assert_eq!(total(conn), expected);
        fold(videos).run(conn).unwrap();
        assert_eq!(videos.find(1).select(views).first(conn), Ok(expected));
    }
}

/// So far apart are the totals that are set, which are its multiples.
const STEP: i64 = 1_000_000;

/// Sets this many totals beside increments by eight other threads and whatever `others` do: the values read between two sets contain the
/// increments made between them, and nothing else. Returns the increment that followed the last one.
fn sets_beside(
    sets: i64,
    database: &Database,
    set: impl Fn(i64, &mut Conn) + Sync,
    count: impl Fn(i64, &mut Conn) + Sync,
    read: impl Fn(&mut Conn) -> i64 + Sync,
    others: impl Fn(i64, i64, &mut Conn) + Sync,
) -> i64 {
    let (first, counted) = (read(&mut Conn::connect(database)), AtomicI64::new(0));
    let set_all = |_, conn: &mut Conn| (1..=sets).for_each(|n| set(n * STEP, conn));
    on_threads_beside(1, database, set_all, 8, |number, rounds, conn| {
        let mut last = 0;
        for round in rounds {
            match number {
                0..2 => others(number, round, conn),
                2..4 => {
                    let read = read(conn);
                    let most = first + counted.load(Ordering::SeqCst) + 4;
                    let is_sound = read / STEP >= last && read % STEP <= most;
                    assert!(is_sound, "{read} after {last} sets");
                    last = read / STEP;
                }
                _ => {
                    count(round, conn);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    });
    let since = read(&mut Conn::connect(database)) - sets * STEP;
    assert!((0..=counted.into_inner()).contains(&since), "{since}");
    since
}

#[test]
fn sets_beside_all_the_rest() {
    let Connected { conn, database } = &mut set_up();
    let set = |n, conn: &mut Conn| {
        let set = set_total(videos.find(1), views, n).execute(conn).done();
        assert_eq!(set, Ok(1));
    };
    let count = |round, conn: &mut Conn| assert_eq!(count(conn, round, 1), Ok(1));
    let since = sets_beside(20, database, set, count, total, |number, _, conn| {
        let keep = number as u16 + 1;
        fold(videos).keep_shards(keep).run(conn).unwrap();
    });
    (0..10).for_each(|round| count(round, conn));
    assert_eq!(total(conn), 20 * STEP + since + 10);
}

/// Named counters, whose numbers of shards keep changing.
#[test]
fn resizes_beside_all_the_rest() {
    let Connected { conn, database } = &mut set_up_with_counters();
    let counter = Counter::named("resized under load");
    let log = Log::default();
    let counting = |number, conn: &mut Conn| {
        for round in 0..50 {
            let n = if (round + number) % 4 == 0 { -3 } else { 2 };
            log.count(n, || counter.add(n, conn).unwrap());
        }
    };
    on_threads_beside(5, database, counting, 4, |number, rounds, conn| {
        for round in rounds {
            let n = (round % 12) as u16 + 1;
            match number {
                0 => counter.resize(n, conn).unwrap(),
                1 => drop(counter.increase_shards(n, conn).unwrap()),
                _ => drop(log.read(|| counter.get(conn).unwrap())),
            }
        }
    });
    let expected = log.sum();
    gives!(counter.get(conn), expected);
    counter.resize(2, conn).unwrap();
    gives!(counter.get(conn), expected);
    gives!(counter.estimate(conn), expected);
}

/// Increments, folds, sets, resizes and reads of one counter at once.
#[test]
fn all_at_once() {
    let Connected { conn, database } = &mut set_up_with_counters();
    let counter = Counter::named("all");
    let set = |n, conn: &mut Conn| counter.set(n, conn).unwrap();
    let count = |_, conn: &mut Conn| counter.increment(conn).unwrap();
    let read = |conn: &mut Conn| counter.get(conn).unwrap();
    let others = |number, round: i64, conn: &mut Conn| match number {
        0 => counter.resize((round % 9) as u16 + 2, conn).unwrap(),
        _ => drop(counter.fold(conn).unwrap()),
    };
    let since = sets_beside(15, database, set, count, read, others);
    on_threads(8, database, |number, conn| {
        for _ in 0..10 {
            match number {
                0 => counter.resize(3, conn).unwrap(),
                1 => drop(counter.fold(conn).unwrap()),
                _ => counter.increment(conn).unwrap(),
            }
        }
    });
    gives!(counter.get(conn), 15 * STEP + since + 60);
}
