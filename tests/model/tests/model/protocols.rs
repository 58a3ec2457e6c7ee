//! The protocols with all their fixes, beside each other: every interleaving, on each level of isolation.

use diesel_sharded_model::check::holds;
use diesel_sharded_model::operation::Application::{
    AddToBase, Delete, DeleteOldMarks, Insert, Rename, Replace,
};
use diesel_sharded_model::operation::Operation;
use diesel_sharded_model::operations::*;
use diesel_sharded_model::properties::reaches::*;
use diesel_sharded_model::{Isolation, Place, Scenario};

use Place::{Mark, Parent, Shard};

const A_ALONE: &[(Place, i8)] = &[(Parent(A), 1)];
const A_WITH_ONE: &[(Place, i8)] = &[(Parent(A), 1), (Shard(A, 0), 1)];
const A_WITH_A_SHARD: &[(Place, i8)] = &[(Parent(A), 1), (Shard(A, 0), 2)];
const A_WITH_TWO_SHARDS: &[(Place, i8)] = &[(Parent(A), 1), (Shard(A, 0), 2), (Shard(A, 1), 1)];
const A_WITH_A_MARK: &[(Place, i8)] = &[(Parent(A), 1), (Shard(A, 0), 2), (Mark, 0)];

/// The scenario on each level. Read committed and checked snapshots reach more outcomes, and checked snapshots more still.
fn on_each_level(
    name: &str,
    scenario: &Scenario,
    reaches: &[&'static str],
    by_statements: &[&'static str],
    by_snapshots: &[&'static str],
) {
    for isolation in Isolation::ALL {
        let scenario = scenario.clone().with(|rules| rules.isolation = isolation);
        let more = match isolation {
            Isolation::ReadCommitted => by_statements.to_vec(),
            Isolation::Snapshot => [by_statements, by_snapshots].concat(),
            Isolation::SnapshotUnchecked => vec![],
        };
        let reaches = [reaches, &more].concat();
        holds(&format!("{name}, {isolation:?}"), &scenario, &reaches);
    }
}

/// A test for each scenario: its rows, its operations, how many connections may be killed and cut, and what it reaches.
macro_rules! protocols {
    ($($(#[$attribute:meta])* $name:ident: $rows:expr, $operations:expr, $kills:literal, $cuts:literal,
        $($reaches:expr),+;)*) => {
        $(#[test]
        $(#[$attribute])*
        fn $name() {
            let scenario = Scenario::new($rows, &$operations).with_faults($kills, $cuts);
            on_each_level(stringify!($name), &scenario, $(&$reaches),+);
        })*
    };
}

protocols! {
    counts_beside_folds:
    A_WITH_A_SHARD, [fold_away(&[A]), count(A, 0), count(A, 1)], 1, 1,
    [COUNTED, DONE, UNKNOWN, CONNECTION_LOST], [], [SERIALIZATION];

    two_folds_beside_a_count:
    A_WITH_A_SHARD, [fold_away(&[A]), fold(&[A]), count(A, 0)], 1, 1,
    [COUNTED, DONE, UNKNOWN, CONNECTION_LOST], [], [SERIALIZATION];

    folds_that_wait_for_no_lock:
    A_WITH_TWO_SHARDS, [fold_at_once(), fold_one(0), count_inside(A, 0), count(A, 1)], 1, 1,
    [COUNTED, DONE, UNKNOWN, CONNECTION_LOST, LOCK_TIMEOUT], [], [SERIALIZATION];

    a_fold_inside_a_transaction:
    A_WITH_A_SHARD, [fold_inside(), count(A, 0), count_inside(A, 1), fold(&[A])], 1, 1,
    [COUNTED, DONE, UNKNOWN, CONNECTION_LOST], [], [SERIALIZATION];

    a_set_beside_counts_and_a_fold:
    A_WITH_A_SHARD, [set(A, 7), fold(&[A]), count(A, 0), count_inside(A, 1)], 1, 1,
    [COUNTED, DONE, UNKNOWN, CONNECTION_LOST], [], [SERIALIZATION];

    parents_that_are_replaced:
    A_WITH_A_SHARD, [fold_away(&[A]), does(Replace(A, 5)), count(A, 0), set(A, 7)], 1, 0,
    [COUNTED, NO_ROWS, DONE, CONNECTION_LOST], [PARENT_GONE], [SERIALIZATION];

    parents_that_are_renamed:
    A_WITH_TWO_SHARDS, [fold_away(&[A, B]), does(Rename(A, B)), does(Rename(B, A)), count(A, 0)], 0, 0,
    [COUNTED, NO_ROWS, DONE], [PARENT_GONE], [SERIALIZATION];

    parents_that_come_and_go:
    A_WITH_A_SHARD,
    [fold(&[A]), does(Delete(A)), does(Insert(A, 4)), count(A, 1), does(AddToBase(A, 1))], 0, 0,
    [COUNTED, NO_ROWS, DONE], [PARENT_GONE], [SERIALIZATION];

    bounded_counts_beside_a_fold:
    A_WITH_ONE, [bounded(-2), bounded(-1), fold_away(&[A]), bounded(1)], 1, 1,
    [COUNTED, REFUSED, DONE, UNKNOWN, CONNECTION_LOST], [], [SERIALIZATION];

    bounded_counts_beside_sets_and_deletes:
    A_WITH_ONE, [bounded(-1), bounded(-1), set(A, -2), does(Delete(A))], 0, 0,
    [COUNTED, REFUSED, NO_ROWS, DONE, NOT_FOUND], [], [SERIALIZATION];

    requests_that_come_again:
    A_WITH_A_SHARD, [request(0, 1), request(1, 1), fold_away(&[A])], 1, 1,
    [COUNTED, REPEATED, DONE, CONNECTION_LOST, SERIALIZATION, UNKNOWN], [], [];

    a_key_of_two_requests:
    A_ALONE, [request(0, 1), request(1, 2)], 0, 2,
    [COUNTED, REPEATED, REUSED, UNKNOWN], [], [SERIALIZATION];

    a_batch_whose_connection_is_lost:
    A_WITH_A_MARK, [batch(false), fold_away(&[A]), count(A, 0)], 1, 2,
    [COUNTED, DONE, UNKNOWN, CONNECTION_LOST], [], [SERIALIZATION];

    a_batch_at_once_whose_connection_is_lost:
    A_WITH_A_MARK, [batch(true), fold_away(&[A]), count(A, 0)], 1, 2,
    [COUNTED, DONE, UNKNOWN, CONNECTION_LOST], [], [SERIALIZATION];

    a_batch_whose_mark_is_removed:
    A_WITH_A_MARK, [batch(false), does(DeleteOldMarks), does(Replace(A, 5))], 0, 2,
    [COUNTED, DONE, UNKNOWN, CONNECTION_LOST], [], [SERIALIZATION];

    a_batch_at_once_whose_mark_is_removed:
    A_WITH_A_MARK, [batch(true), does(DeleteOldMarks), does(Replace(A, 5))], 0, 2,
    [COUNTED, DONE, UNKNOWN, CONNECTION_LOST], [], [SERIALIZATION];
}

fn that_may_deadlock(operations: &[Operation]) -> Scenario {
    Scenario {
        may_deadlock: true,
        ..Scenario::new(A_WITH_ONE, operations)
    }
}

#[test]
fn bounded_counts_inside_transactions() {
    let scenario = that_may_deadlock(&[bounded_inside(-2), bounded_inside(-1), bounded(1)]);
    let reaches = [COUNTED, REFUSED, DEADLOCK];
    on_each_level("bounded_inside", &scenario, &reaches, &[], &[SERIALIZATION]);
}

#[test]
fn row_security() {
    let operations = [fold(&[A]), set(A, 7), bounded(-2), count(A, 0)];
    let scenario =
        Scenario::new(A_WITH_ONE, &operations).with(|rules| rules.surroundings.row_security = true);
    let reaches = [COUNTED, DONE, NOT_LOCKED];
    on_each_level("row_security", &scenario, &reaches, &[], &[]);
}

/// Larger spaces, of minutes: `cargo test --release -p diesel_sharded_model --test model larger -- --ignored --nocapture`.
mod larger {
    use super::*;

    /// A larger space on one level alone.
    fn on_each_level(name: &str, scenario: &Scenario, reaches: &[&'static str]) {
        holds(name, scenario, reaches);
    }

    protocols! {
        #[ignore = "minutes"]
        folds_sets_and_counts_of_a_parent_that_is_replaced:
        A_WITH_A_SHARD,
        [fold_away(&[A]), fold_at_once(), set(A, 7), count(A, 0), count(A, 1), does(Replace(A, 5))], 1, 1,
        [COUNTED, NO_ROWS, DONE, UNKNOWN, CONNECTION_LOST, LOCK_TIMEOUT, PARENT_GONE];

        #[ignore = "minutes"]
        folds_of_parents_that_are_renamed:
        A_WITH_TWO_SHARDS,
        [
            fold_away(&[A, B]), fold(&[A, B]), set(B, 7), count(A, 0), count(B, 1),
            does(Rename(A, B)), does(Rename(B, A)),
        ], 0, 0,
        [COUNTED, NO_ROWS, DONE, PARENT_GONE];

        #[ignore = "minutes"]
        bounded_counts_of_many:
        A_WITH_ONE,
        [bounded(-2), bounded(-1), bounded(1), fold_away(&[A]), set(A, 1), does(AddToBase(A, 0))], 1, 1,
        [COUNTED, REFUSED, DONE, UNKNOWN, CONNECTION_LOST];

        #[ignore = "minutes"]
        requests_of_three_clients:
        A_WITH_A_SHARD,
        [request(0, 1), request(1, 1), request(0, 2), fold_away(&[A]), does(Delete(A))], 1, 2,
        [
            COUNTED, NO_ROWS, REPEATED, REUSED, DONE, UNKNOWN, CONNECTION_LOST, SERIALIZATION, PARENT_GONE,
        ];

        #[ignore = "minutes"]
        a_batch_beside_everything:
        A_WITH_A_MARK,
        [batch(false), fold_away(&[A]), set(A, 7), does(Replace(A, 5)), does(DeleteOldMarks)], 1, 3,
        [COUNTED, NO_ROWS, DONE, UNKNOWN, CONNECTION_LOST, PARENT_GONE];

        #[ignore = "minutes"]
        a_batch_at_once_beside_everything:
        A_WITH_A_MARK,
        [batch(true), fold_away(&[A]), set(A, 7), does(Replace(A, 5)), does(DeleteOldMarks)], 1, 3,
        [COUNTED, NO_ROWS, DONE, UNKNOWN, CONNECTION_LOST, PARENT_GONE];
    }

    #[test]
    #[ignore = "minutes"]
    fn bounded_counts_inside_transactions_of_each_level() {
        let operations = [
            bounded_inside(-2),
            bounded_inside(-1),
            bounded(-1),
            bounded(1),
            fold_away(&[A]),
        ];
        let scenario = that_may_deadlock(&operations).with_faults(1, 1);
        let reaches = [COUNTED, REFUSED, DONE, UNKNOWN, CONNECTION_LOST, DEADLOCK];
        super::on_each_level("larger", &scenario, &reaches, &[], &[SERIALIZATION]);
    }
}
