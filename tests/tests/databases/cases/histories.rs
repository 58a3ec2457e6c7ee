//! Operations whose order matters, drawn at random and run together on one row: some order explains all answers and the total at the end.

mod checker;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Instant;

use diesel_sharded::backend::Dialect;
use diesel_sharded::combine::Combiner;
use diesel_sharded_tests::fixture::Fixture;
use diesel_sharded_tests::patient;
use diesel_sharded_tests::schema::videos::dsl::*;

use self::checker::Operation::{self, *};
use self::checker::{ENDLESS, Event, Model, REFUSED, is_explained};
use super::support::*;

/// A row is counted on plainly or within bounds: nothing is promised where both happen.
const KINDS: [(Model, &[Operation]); 3] = [
    (Model::new(10, ENDLESS), PLAIN),
    (Model::new(3, 6), WITHIN),
    (Model::new(3, ENDLESS), WITHIN),
];

#[rustfmt::skip]
const PLAIN: &[Operation] = &[
    Get, Fold(0), Fold(4), Set(100), Reset, Add(1), Add(-2), Combined(4), Combined(-8), AddAndGet(16),
    ByKey(&Add(32)), ByKey(&Add(64)), ByKey(&Set(200)), ByKey(&Reset),
];

#[rustfmt::skip]
const WITHIN: &[Operation] = &[
    Get, Fold(0), Fold(4), Set(0), Set(8), Reset, Within(1), Within(-1), Within(-3), UpTo(4), UpTo(-2), UpTo(-9), WithinAndGet(2),
    WithinAndGet(-2), ByKey(&Within(2)), ByKey(&Within(-1)), ByKey(&Set(5)),
];

/// A row, and what its threads share.
struct Row {
    key: i64,
    most: i64,
    combiner: Combiner,
    clock: AtomicU64,
}

impl Row {
    fn perform(&self, operation: Operation, conn: &mut Conn) -> QueryResult<i64> {
        let request = self.key.to_string();
        let row = || videos.find(self.key);
        let set = |total| set_total(row(), views, total);
        let counter = || RowCounter::of(views, self.key);
        let within = match self.most {
            ENDLESS => counter().never_below(0),
            most => counter().never_below(0).never_above(most),
        };
        let counted = match operation {
            Get => return Ok(self.total(conn)),
            Fold(keep) => return fold(row()).keep_shards(keep).run(conn).done().map(|_| 0),
            UpTo(n) => return within.add_up_to(n, conn).done(),
            AddAndGet(n) => return Ok(counter().add_and_get(n, conn).done()?.unwrap()),
            WithinAndGet(n) => return Ok(within.add_and_get(n, conn).done()?.unwrap_or(REFUSED)),
            Within(n) => within.add(n, conn).done().map(usize::from),
            ByKey(&Within(n)) => {
                let once = within.idempotency_key(request);
                once.add(n, conn).done().map(usize::from)
            }
            Add(n) => counter().add(n, conn).done(),
            ByKey(&Add(n)) => counter().idempotency_key(request).add(n, conn).done(),
            Combined(n) => counter().combine(&self.combiner).add(n, conn).done(),
            Set(total) => set(total).execute(conn).done(),
            ByKey(&Set(total)) => set(total).idempotency_key(request).execute(conn).done(),
            Reset => reset(row()).execute(conn).done(),
            ByKey(&Reset) => reset(row()).idempotency_key(request).execute(conn).done(),
            ByKey(_) => unreachable!("not drawn"),
        };
        counted.map(|rows| rows as i64)
    }

    fn total(&self, conn: &mut Conn) -> i64 {
        match dialect(conn) {
            // Outside a transaction MariaDB may read from an old snapshot.
            Dialect::Mysql => in_transaction(conn, |conn| Ok(total_of(self.key, conn))).unwrap(),
            _ => total_of(self.key, conn),
        }
    }

    fn events(&self, operation: Operation, conn: &mut Conn) -> Vec<Event> {
        let tick = || self.clock.fetch_add(1, Ordering::SeqCst);
        let start = tick();
        let answer = match self.perform(operation, conn).map_err(Error::from) {
            Err(Error::IdempotencyKeyReused) => REFUSED,
            answer => answer.unwrap_or_else(|e| panic!("{operation:?}: {e}")),
        };
        let span = start..tick();
        let event = |operation, answer| (operation, answer, span.clone());
        // All that a total beside an increment promises: the increment was added to it, at some time before it is committed.
        match (operation, answer) {
            (WithinAndGet(n), REFUSED) => vec![event(Within(n), 0)],
            (WithinAndGet(n), total) => vec![event(Get, total - n), event(Within(n), 1)],
            (AddAndGet(n), total) => vec![event(Get, total - n), event(Add(n), 1)],
            _ => vec![event(operation, answer)],
        }
    }
}

/// One thread begins, then two or three run 4 to 6 operations, and the first reads the total.
fn round(seed: u64, conns: &mut [Conn; 3]) {
    let mut drawn = 0;
    let mut draw = |below: usize| {
        drawn += 1;
        let random = BuildHasherDefault::<DefaultHasher>::new();
        (random.hash_one((seed, drawn)) % below as u64) as usize
    };
    let [kind, before, more, third] = [KINDS.len(), 3, 3, 2].map(&mut draw);
    let threads = 2 + third;
    let (model, all) = KINDS[kind];
    let drawn = (0..before + 4 + more).map(|_| all[draw(all.len())]);
    let drawn: Vec<Operation> = drawn.collect();
    let (before, together) = drawn.split_at(before);

    let row = &Row {
        key: 1000 + seed as i64,
        most: model.most,
        combiner: Combiner::new(),
        clock: AtomicU64::new(0),
    };
    let name = (slug.eq(seed.to_string()), title.eq(""));
    let values = (id.eq(row.key), name, views.eq(model.total));
    insert!(videos, values, &mut conns[0]);
    let alone = before.iter();
    let alone = alone.flat_map(|of| row.events(*of, &mut conns[0]));
    let mut alone: Vec<Event> = alone.collect();
    let mut history = vec![vec![]; threads];
    let start = &Barrier::new(threads);
    thread::scope(|scope| {
        for (number, (conn, events)) in conns.iter_mut().zip(&mut history).enumerate() {
            let own = together.iter().skip(number).step_by(threads);
            scope.spawn(move || {
                start.wait();
                events.extend(own.flat_map(|of| row.events(*of, conn)));
            });
        }
    });
    alone.extend(row.events(Get, &mut conns[0]));
    history.push(alone);
    let threads: Vec<&[Event]> = history.iter().map(Vec::as_slice).collect();
    let is_explained = is_explained(model, &threads);
    assert!(is_explained, "seed {seed}, {model:?}: {history:?}");
}

#[test]
fn some_order_explains_what_ran_together() {
    patient().set_global();
    let until = Instant::now() + duration(10);
    let conns = &mut *Fixture::<Conn, 3>::with_counters();
    for seed in (0..).take_while(|_| Instant::now() < until) {
        round(seed, conns);
    }
}
