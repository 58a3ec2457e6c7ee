use std::sync::LazyLock;

use super::*;
use crate::placement::ShardChoiceStats;
use crate::policy::RetryPolicy;

const SUBJECT: Subject = Subject {
    choice: ShardChoice::Adaptive,
    table: "videos_shards",
    key: 1 << 50,
    shards: 8,
    stripe: Stripe::ALL,
    one_writer: false,
    in_transaction: false,
    in_batch: false,
    timed: true,
};
const INSIDE: Subject = Subject {
    in_transaction: true,
    ..SUBJECT
};

/// An increment by another key.
const fn of_key(key: u64) -> Subject {
    Subject { key, ..SUBJECT }
}

/// An increment by one statement.
const fn count(commits: bool) -> CountKind {
    CountKind {
        commits,
        loads: false,
        claims: false,
    }
}

/// A process that takes shards 5, 6, 7, 1, 2, … after the first one.
fn process() -> &'static Process {
    process_at(4)
}

fn process_at(offset: u32) -> &'static Process {
    Box::leak(Box::new(Process::new(offset)))
}

/// A clock that stands still, so that nothing is forgotten while a test waits for its processor.
fn now() -> Instant {
    static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
    *NOW
}

fn attempts() -> Attempts {
    Attempts::start(RetryPolicy::new().with_clock(now))
}

fn choose(process: &'static Process, subject: Subject) -> Choice {
    Choice::new(subject, process, &attempts())
}

/// Makes the shortest time 100 µs, and `key` slow.
fn slow(process: &'static Process, subject: Subject) {
    let mut choice = choose(process, subject);
    let kind = count(!subject.in_transaction);
    choice.took(Duration::from_micros(100), kind, now());
    choice.took(Duration::from_millis(5), kind, now());
}

#[test]
fn one_writer_at_a_time_keeps_to_the_first_shard() {
    let process = process();
    for _ in 0..3 {
        assert_eq!(choose(process, SUBJECT).shard(), 0);
    }
    let at_once: Vec<_> = (0..8).map(|_| choose(process, SUBJECT)).collect();
    let shards: Vec<_> = at_once.iter().map(Choice::shard).collect();
    assert_eq!(shards, [0, 5, 6, 7, 1, 2, 3, 4]);
    assert_eq!(process.stats.get().crowded, 0);
    let ninth = choose(process, SUBJECT);
    assert_eq!((ninth.shard(), process.stats.get().crowded), (0, 1));
    drop((at_once, ninth));
    assert_eq!(choose(process, SUBJECT).shard(), 0);
}

#[test]
fn after_a_conflict_the_next_attempt_takes_another_shard() {
    let process = process();
    let attempts = attempts();
    let mut choice = choose(process, SUBJECT);
    let mut shards = vec![];
    for _ in 0..3 {
        shards.push(choice.shard());
        choice.met_conflict(&attempts);
        choice.again(&attempts);
    }
    assert_eq!(shards, [0, 5, 6]);
    assert_eq!(process.stats.get().hot, 1);
    assert_eq!(choose(process, of_key(2 << 50)).shard(), 0);
    drop(choice);
    assert_eq!(choose(process, SUBJECT).shard(), 5);
}

#[test]
fn a_slow_count_is_followed_by_a_probe_which_decides() {
    for locked in [true, false] {
        let process = process();
        slow(process, SUBJECT);
        let mut choice = choose(process, SUBJECT);
        assert_eq!([choice.probes(), choice.probes()], [true, false]);
        choice.probed(locked, &attempts());
        assert_eq!(choice.shard(), if locked { 5 } else { 0 });
        assert!(!choice.probes());
        drop(choice);
        let mut next = choose(process, SUBJECT);
        assert_eq!((next.shard() == 0, next.probes()), (!locked, false));
        let stats = process.stats.get();
        assert_eq!((stats.probes, stats.hot), (1, u64::from(locked)));
    }
}

#[test]
fn no_probe_but_at_its_pace_and_where_it_may_help() {
    let process = process();
    slow(process, SUBJECT);
    assert!(choose(process, SUBJECT).probes());
    assert!(!choose(process, SUBJECT).probes()); // too early
    let process = self::process();
    let first = choose(process, SUBJECT);
    slow(process, SUBJECT);
    let mut second = choose(process, SUBJECT);
    assert_eq!((second.shard(), second.probes()), (5, false)); // not on the first shard
    drop((first, second));
    let by_a_filter = Subject {
        timed: false,
        ..SUBJECT
    };
    assert!(!choose(process, by_a_filter).probes());
    let one_shard = Subject {
        shards: 1,
        ..SUBJECT
    };
    let mut choice = choose(process, one_shard);
    assert!(!choice.probes() && !choice.is_timed());
}

/// Of two shards, one is taken by another increment, so that the first is left for a transaction.
const INSIDE_OF_TWO: Subject = Subject {
    shards: 2,
    ..INSIDE
};

fn take_the_second_of_two(process: &'static Process) -> Choice {
    let outside = Subject {
        shards: 2,
        ..SUBJECT
    };
    let [_first, second] = [(); 2].map(|()| choose(process, outside));
    assert_eq!(second.shard(), 1);
    second
}

#[test]
fn a_quick_count_makes_a_key_idle() {
    let process = process();
    let _second = take_the_second_of_two(process);
    slow(process, INSIDE_OF_TWO);
    let mut choice = choose(process, INSIDE_OF_TWO);
    choice.took(Duration::from_micros(110), count(false), now());
    choice.took(Duration::from_millis(5), count(false), now());
    assert_eq!(process.stats.get().hot, 0);
}

#[test]
fn inside_a_transaction_two_slow_counts_in_a_row_make_a_key_contended() {
    let process = process();
    let second = take_the_second_of_two(process);
    slow(process, INSIDE_OF_TWO);
    let mut choice = choose(process, INSIDE_OF_TWO);
    assert_eq!((choice.shard(), choice.probes()), (0, false));
    assert!(choice.is_timed());
    choice.took(Duration::from_millis(5), count(false), now());
    drop((choice, second));
    assert_eq!(choose(process, SUBJECT).shard(), 5);
    assert_eq!(process.stats.get().hot, 1);
}

#[test]
fn a_thread_keeps_its_shard_inside_transactions() {
    let process = process();
    assert_eq!(choose(process, INSIDE).shard(), 5);
    assert_eq!(choose(process, SUBJECT).shard(), 0); // the other row may still be locked
    let of_another = std::thread::spawn(move || choose(process, INSIDE).shard());
    assert_eq!(of_another.join().unwrap(), 6);
    assert_eq!(choose(process, INSIDE).shard(), 5);
    // After a conflict the next increment of this thread goes to another shard.
    choose(process, INSIDE).met_conflict(&attempts());
    assert_eq!(choose(process, INSIDE).shard(), 7);
}

/// Rows that several processes count on in transactions, in any order: none waits for another's row, so none deadlocks.
#[test]
fn processes_begin_apart_inside_transactions() {
    let processes = [0, 1, 2, 3, 4, 5].map(process_at);
    let mut taken = std::collections::BTreeSet::new();
    for process in processes {
        for row in 0..5 {
            let key = row << 50;
            let shard = choose(process, Subject { key, ..INSIDE }).shard();
            assert!(taken.insert((row, shard)), "row {row}, shard {shard}");
        }
        // Outside transactions all are at the first shard: an idle key has one row.
        assert_eq!(choose(process, of_key(9 << 50)).shard(), 0);
    }
}

#[test]
fn other_choices_reserve_nothing() {
    let process = process();
    let with = |choice| Subject { choice, ..SUBJECT };
    let random = RetryPolicy::new().with_random(|| 11);
    let attempts = Attempts::start(random);
    let choice = Choice::new(with(ShardChoice::Random), process, &attempts);
    assert_eq!(choice.shard(), 3);
    let striped = || Choice::new(with(ShardChoice::Striped), process, &attempts);
    let mut first = striped();
    assert_eq!(striped().shard(), first.shard());
    let before = first.shard();
    first.met_conflict(&attempts);
    first.again(&attempts);
    assert_ne!(first.shard(), before);
    assert_eq!(striped().shard(), first.shard());
    let sqlite = Subject {
        one_writer: true,
        ..SUBJECT
    };
    let at_once = [choose(process, sqlite), choose(process, sqlite)];
    assert_eq!(at_once.map(|choice| choice.shard()), [0, 0]);
    assert_eq!(process.stats.get(), ShardChoiceStats::default());
}

/// Each choice, at once, after conflicts and inside transactions.
#[test]
fn a_process_keeps_to_its_stripe() {
    let stripe = Stripe::new(1, 3).unwrap();
    let process = process();
    for choice in [
        ShardChoice::Adaptive,
        ShardChoice::Striped,
        ShardChoice::Random,
    ] {
        for in_transaction in [true, false] {
            let subject = Subject {
                choice,
                stripe,
                in_transaction,
                ..SUBJECT
            };
            let attempts = attempts();
            let mut at_once: Vec<_> = (0..8)
                .map(|_| Choice::new(subject, process, &attempts))
                .collect();
            for choice in &mut at_once {
                for _ in 0..8 {
                    assert!([1, 4, 7].contains(&choice.shard()), "{choice:?}");
                    choice.met_conflict(&attempts);
                    choice.again(&attempts);
                }
            }
        }
    }
    let subject = Subject { stripe, ..SUBJECT };
    let process = self::process();
    let at_once = [(); 4].map(|()| choose(process, subject));
    let mut shards = at_once.each_ref().map(Choice::shard);
    assert_eq!(
        (shards[0], shards[3], process.stats.get().crowded),
        (1, 1, 1)
    );
    shards[..3].sort_unstable();
    assert_eq!(shards[..3], [1, 4, 7]);
    let sqlite = Subject {
        one_writer: true,
        ..subject
    };
    assert_eq!(choose(process, sqlite).shard(), 1);
}

/// One of a batch.
const IN_BATCH: Subject = Subject {
    in_batch: true,
    timed: false,
    ..SUBJECT
};

/// These shards are the same in every process.
#[test]
fn a_batch_keeps_to_the_first_shards_of_keys_that_are_counted_on_seldom() {
    let process = process();
    for _ in 0..2 {
        let at_once = [(); 3].map(|()| choose(process, IN_BATCH));
        assert_eq!(at_once.each_ref().map(Choice::shard), [0, 1, 2]);
    }
    assert_eq!(process.stats.get(), ShardChoiceStats::default());
    let mut met = choose(process, IN_BATCH);
    met.met_conflict(&attempts());
    met.again(&attempts());
    assert_eq!(met.shard(), 5);
    let inside = Subject {
        in_batch: true,
        ..INSIDE
    };
    assert_eq!(choose(self::process(), inside).shard(), 5);
}

#[test]
fn a_batch_takes_other_shards_of_keys_that_are_counted_on_often() {
    let process = process();
    let one_by_one: Vec<_> = (0..20).map(|_| choose(process, IN_BATCH).shard()).collect();
    let often = one_by_one.iter().position(|shard| *shard != 0);
    assert_eq!(often, Some(14));
    assert_eq!(one_by_one[14..], [5; 6]);
    let at_once = [(); 2].map(|()| choose(process, IN_BATCH));
    assert_eq!(at_once.each_ref().map(Choice::shard), [5, 6]);
}

#[test]
fn an_order_has_each_shard_once() {
    for shards in [1, 2, 3, 16, 4096] {
        for offset in [0, 1, 17, u32::MAX] {
            let order = |first_comes_last, avoided| {
                let order = Order {
                    shards,
                    offset,
                    first_comes_last,
                    avoided,
                };
                order.indexes().collect::<Vec<_>>()
            };
            let (mut all, mut contended) = (order(false, None), order(true, None));
            assert_eq!((all[0], contended.last()), (0, Some(&0)));
            contended.rotate_right(1);
            assert_eq!(contended, all);
            let mut others = order(true, Some(shards / 2));
            all.sort_unstable();
            assert_eq!(all, (0..shards).collect::<Vec<_>>());
            all.retain(|index| shards == 1 || *index != shards / 2);
            others.sort_unstable();
            assert_eq!(others, all);
        }
    }
}
