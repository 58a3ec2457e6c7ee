//! The protocols with all their fixes, beside each other: every interleaving, on each level of isolation.

use diesel_sharded_model::check::holds;
use diesel_sharded_model::operation::Application::{
    AddToBase, Delete, DeleteOldMarks, Insert, Rename, Replace,
};
use diesel_sharded_model::operations::*;
use diesel_sharded_model::properties::reaches::*;
use diesel_sharded_model::{Isolation, Place, Scenario};

use Place::{Mark, Parent, Shard};

const A_WITH_A_SHARD: &[(Place, i8)] = &[(Parent(A), 1), (Shard(A, 0), 2)];

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

#[test]
fn counts_beside_folds() {
    let scenario = Scenario::new(A_WITH_A_SHARD, &[fold_away(&[A]), count(A, 0), count(A, 1)])
        .with_faults(1, 1);
    let reaches = [COUNTED, DONE, UNKNOWN, CONNECTION_LOST];
    on_each_level(
        "counts_beside_folds",
        &scenario,
        &reaches,
        &[],
        &[SERIALIZATION],
    );
}

#[test]
fn two_folds_beside_a_count() {
    let scenario = Scenario::new(A_WITH_A_SHARD, &[fold_away(&[A]), fold(&[A]), count(A, 0)])
        .with_faults(1, 1);
    let reaches = [COUNTED, DONE, UNKNOWN, CONNECTION_LOST];
    on_each_level("two_folds", &scenario, &reaches, &[], &[SERIALIZATION]);
}

#[test]
fn folds_that_wait_for_no_lock() {
    let scenario = Scenario::new(
        &[(Parent(A), 1), (Shard(A, 0), 2), (Shard(A, 1), 1)],
        &[fold_at_once(), fold_one(0), count_inside(A, 0), count(A, 1)],
    )
    .with_faults(1, 1);
    let reaches = [COUNTED, DONE, UNKNOWN, CONNECTION_LOST, LOCK_TIMEOUT];
    on_each_level("at_once", &scenario, &reaches, &[], &[SERIALIZATION]);
}

#[test]
fn a_fold_inside_a_transaction() {
    let scenario = Scenario::new(
        A_WITH_A_SHARD,
        &[fold_inside(), count(A, 0), count_inside(A, 1), fold(&[A])],
    )
    .with_faults(1, 1);
    let reaches = [COUNTED, DONE, UNKNOWN, CONNECTION_LOST];
    on_each_level("fold_inside", &scenario, &reaches, &[], &[SERIALIZATION]);
}

#[test]
fn a_set_beside_counts_and_a_fold() {
    let scenario = Scenario::new(
        A_WITH_A_SHARD,
        &[set(A, 7), fold(&[A]), count(A, 0), count_inside(A, 1)],
    )
    .with_faults(1, 1);
    let reaches = [COUNTED, DONE, UNKNOWN, CONNECTION_LOST];
    on_each_level("a_set", &scenario, &reaches, &[], &[SERIALIZATION]);
}

#[test]
fn parents_that_are_replaced() {
    let scenario = Scenario::new(
        A_WITH_A_SHARD,
        &[fold_away(&[A]), does(Replace(A, 5)), count(A, 0), set(A, 7)],
    )
    .with_faults(1, 0);
    let reaches = [COUNTED, NO_ROWS, DONE, CONNECTION_LOST];
    on_each_level(
        "replaced",
        &scenario,
        &reaches,
        &[PARENT_GONE],
        &[SERIALIZATION],
    );
}

#[test]
fn parents_that_are_renamed() {
    let scenario = Scenario::new(
        &[(Parent(A), 1), (Shard(A, 0), 2), (Shard(A, 1), 1)],
        &[
            fold_away(&[A, B]),
            does(Rename(A, B)),
            does(Rename(B, A)),
            count(A, 0),
        ],
    );
    let reaches = [COUNTED, NO_ROWS, DONE];
    on_each_level(
        "renamed",
        &scenario,
        &reaches,
        &[PARENT_GONE],
        &[SERIALIZATION],
    );
}

#[test]
fn parents_that_come_and_go() {
    let scenario = Scenario::new(
        A_WITH_A_SHARD,
        &[
            fold(&[A]),
            does(Delete(A)),
            does(Insert(A, 4)),
            count(A, 1),
            does(AddToBase(A, 1)),
        ],
    );
    let reaches = [COUNTED, NO_ROWS, DONE];
    on_each_level(
        "come_and_go",
        &scenario,
        &reaches,
        &[PARENT_GONE],
        &[SERIALIZATION],
    );
}

#[test]
fn bounded_counts_beside_a_fold() {
    let scenario = Scenario::new(
        &[(Parent(A), 1), (Shard(A, 0), 1)],
        &[bounded(-2), bounded(-1), fold_away(&[A]), bounded(1)],
    )
    .with_faults(1, 1);
    let reaches = [COUNTED, REFUSED, DONE, UNKNOWN, CONNECTION_LOST];
    on_each_level("bounded", &scenario, &reaches, &[], &[SERIALIZATION]);
}

#[test]
fn bounded_counts_inside_transactions() {
    let scenario = Scenario {
        may_deadlock: true,
        ..Scenario::new(
            &[(Parent(A), 1), (Shard(A, 0), 1)],
            &[bounded_inside(-2), bounded_inside(-1), bounded(1)],
        )
    };
    let reaches = [COUNTED, REFUSED, DEADLOCK];
    on_each_level("bounded_inside", &scenario, &reaches, &[], &[SERIALIZATION]);
}

#[test]
fn bounded_counts_beside_sets_and_deletes() {
    let scenario = Scenario::new(
        &[(Parent(A), 1), (Shard(A, 0), 1)],
        &[bounded(-1), bounded(-1), set(A, -2), does(Delete(A))],
    );
    let reaches = [COUNTED, REFUSED, NO_ROWS, DONE, NOT_FOUND];
    on_each_level("bounded_set", &scenario, &reaches, &[], &[SERIALIZATION]);
}

#[test]
fn requests_that_come_again() {
    let scenario = Scenario::new(
        A_WITH_A_SHARD,
        &[request(0, 1), request(1, 1), fold_away(&[A])],
    )
    .with_faults(1, 1);
    let reaches = [
        COUNTED,
        REPEATED,
        DONE,
        CONNECTION_LOST,
        SERIALIZATION,
        UNKNOWN,
    ];
    on_each_level("requests", &scenario, &reaches, &[], &[]);
}

#[test]
fn a_key_of_two_requests() {
    let scenario =
        Scenario::new(&[(Parent(A), 1)], &[request(0, 1), request(1, 2)]).with_faults(0, 2);
    let reaches = [COUNTED, REPEATED, REUSED, UNKNOWN];
    on_each_level("reused", &scenario, &reaches, &[], &[SERIALIZATION]);
}

#[test]
fn a_batch_whose_connection_is_lost() {
    for at_once in [false, true] {
        let scenario = Scenario::new(
            &[(Parent(A), 1), (Shard(A, 0), 2), (Mark, 0)],
            &[batch(at_once), fold_away(&[A]), count(A, 0)],
        )
        .with_faults(1, 2);
        let reaches = [COUNTED, DONE, UNKNOWN, CONNECTION_LOST];
        on_each_level("a_batch", &scenario, &reaches, &[], &[SERIALIZATION]);
    }
}

#[test]
fn a_batch_whose_mark_is_removed() {
    for at_once in [false, true] {
        let scenario = Scenario::new(
            &[(Parent(A), 1), (Shard(A, 0), 2), (Mark, 0)],
            &[batch(at_once), does(DeleteOldMarks), does(Replace(A, 5))],
        )
        .with_faults(0, 2);
        let reaches = [COUNTED, DONE, UNKNOWN, CONNECTION_LOST];
        on_each_level("a_mark", &scenario, &reaches, &[], &[SERIALIZATION]);
    }
}

#[test]
fn row_security() {
    let operations = [fold(&[A]), set(A, 7), bounded(-2), count(A, 0)];
    let scenario = Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 1)], &operations)
        .with(|rules| rules.surroundings.row_security = true);
    let reaches = [COUNTED, DONE, NOT_LOCKED];
    on_each_level("row_security", &scenario, &reaches, &[], &[]);
}
