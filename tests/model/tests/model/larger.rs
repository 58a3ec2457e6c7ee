//! Larger spaces, of minutes: `cargo test --release -p diesel_sharded_model --test model larger -- --ignored --nocapture`.

use diesel_sharded_model::check::holds;
use diesel_sharded_model::operation::Application::{
    AddToBase, Delete, DeleteOldMarks, Rename, Replace,
};
use diesel_sharded_model::operations::*;
use diesel_sharded_model::properties::reaches::*;
use diesel_sharded_model::{Isolation, Place, Scenario};

use Place::{Mark, Parent, Shard};

const A_WITH_A_SHARD: &[(Place, i8)] = &[(Parent(A), 1), (Shard(A, 0), 2)];

#[test]
#[ignore = "minutes"]
fn folds_sets_and_counts_of_a_parent_that_is_replaced() {
    let operations = [
        fold_away(&[A]),
        fold_at_once(),
        set(A, 7),
        count(A, 0),
        count(A, 1),
        does(Replace(A, 5)),
    ];
    let scenario = Scenario::new(A_WITH_A_SHARD, &operations).with_faults(1, 1);
    let reaches = [
        COUNTED,
        NO_ROWS,
        DONE,
        UNKNOWN,
        CONNECTION_LOST,
        LOCK_TIMEOUT,
        PARENT_GONE,
    ];
    holds("replaced", &scenario, &reaches);
}

#[test]
#[ignore = "minutes"]
fn folds_of_parents_that_are_renamed() {
    let operations = [
        fold_away(&[A, B]),
        fold(&[A, B]),
        set(B, 7),
        count(A, 0),
        count(B, 1),
        does(Rename(A, B)),
        does(Rename(B, A)),
    ];
    let scenario = Scenario::new(
        &[(Parent(A), 1), (Shard(A, 0), 2), (Shard(A, 1), 1)],
        &operations,
    );
    let reaches = [COUNTED, NO_ROWS, DONE, PARENT_GONE];
    holds("renamed", &scenario, &reaches);
}

#[test]
#[ignore = "minutes"]
fn bounded_counts_of_many() {
    let operations = [
        bounded(-2),
        bounded(-1),
        bounded(1),
        fold_away(&[A]),
        set(A, 1),
        does(AddToBase(A, 0)),
    ];
    let scenario =
        Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 1)], &operations).with_faults(1, 1);
    let reaches = [COUNTED, REFUSED, DONE, UNKNOWN, CONNECTION_LOST];
    holds("bounded", &scenario, &reaches);
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
    for isolation in Isolation::ALL {
        let scenario = Scenario {
            may_deadlock: true,
            kills: 1,
            cuts: 1,
            ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 1)], &operations)
        };
        let scenario = scenario.with(|rules| rules.isolation = isolation);
        let mut reaches = vec![COUNTED, REFUSED, DONE, UNKNOWN, CONNECTION_LOST, DEADLOCK];
        if isolation == Isolation::Snapshot {
            reaches.push(SERIALIZATION);
        }
        holds(
            &format!("bounded_inside, {isolation:?}"),
            &scenario,
            &reaches,
        );
    }
}

#[test]
#[ignore = "minutes"]
fn requests_of_three_clients() {
    let operations = [
        request(0, 1),
        request(1, 1),
        request(0, 2),
        fold_away(&[A]),
        does(Delete(A)),
    ];
    let scenario = Scenario::new(A_WITH_A_SHARD, &operations).with_faults(1, 2);
    let reaches = [
        COUNTED,
        NO_ROWS,
        REPEATED,
        REUSED,
        DONE,
        UNKNOWN,
        CONNECTION_LOST,
        SERIALIZATION,
        PARENT_GONE,
    ];
    holds("requests", &scenario, &reaches);
}

#[test]
#[ignore = "minutes"]
fn a_batch_beside_everything() {
    for at_once in [false, true] {
        let operations = [
            batch(at_once),
            fold_away(&[A]),
            set(A, 7),
            does(Replace(A, 5)),
            does(DeleteOldMarks),
        ];
        let scenario = Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2), (Mark, 0)], &operations)
            .with_faults(1, 3);
        let reaches = [
            COUNTED,
            NO_ROWS,
            DONE,
            UNKNOWN,
            CONNECTION_LOST,
            PARENT_GONE,
        ];
        holds("a_batch", &scenario, &reaches);
    }
}
