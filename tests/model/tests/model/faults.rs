//! Each fix, left out: the checker finds the fault that it prevents, and none once it is back.

use diesel_sharded_model::check::{breaks, holds};
use diesel_sharded_model::operation::Application;
use diesel_sharded_model::operations::*;
use diesel_sharded_model::properties::reaches::*;
use diesel_sharded_model::properties::{
    BOUNDS, DEADLOCKS, OUTCOMES, PARENTS, REQUESTS, RESENDS, TOTALS,
};
use diesel_sharded_model::{Fix, Isolation, Place, Rules, Scenario, Surroundings};

use Place::{Mark, Parent, Shard};

fn on(isolation: Isolation) -> Rules {
    Rules {
        isolation,
        ..Rules::default()
    }
}

fn in_surroundings(change: impl FnOnce(&mut Surroundings)) -> Rules {
    let mut rules = Rules::default();
    change(&mut rules.surroundings);
    rules
}

/// A test for each fix: the scenario, the property that is broken without it, and the outcomes that are reached with it.
macro_rules! fixes {
    ($($name:ident: $fix:ident, $scenario:expr, $property:expr, $reaches:expr;)*) => {
        $(#[test]
        fn $name() {
            let scenario = $scenario;
            holds(stringify!($name), &scenario, &$reaches);
            breaks(&[Fix::$fix], &scenario, $property);
        })*

        /// Each fix has a test, or this does not compile.
        const _: fn(Fix) = |fix| match fix {
            $(Fix::$fix => {})*
        };
    };
}

fixes! {
    only_locked_parents: OnlyLockedParents,
    Scenario::new(&[(Parent(A), 1)], &[bounded(-1), bounded(-1), does(Application::Replace(A, 1))]),
    BOUNDS, [COUNTED, REFUSED, DONE, NOT_FOUND];

    locks_parents: LocksParents,
    Scenario::new(&[(Parent(A), 1)], &[bounded(-1), bounded(-1)]),
    BOUNDS, [COUNTED, REFUSED];

    locks_shards: LocksShards,
    Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2)], &[fold(&[A]), count(A, 0)]),
    TOTALS, [COUNTED, DONE];

    parents_first: ParentsFirst,
    Scenario::new(
        &[(Parent(A), 1), (Shard(A, 0), 2)],
        &[fold(&[A]), does(Application::Delete(A))],
    ),
    DEADLOCKS, [DONE];

    checks_writes: ChecksWrites,
    Scenario {
        rules: in_surroundings(|it| it.suppresses_updates = true),
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2)], &[fold(&[A]), set(A, 7)])
    },
    TOTALS, [ALTERED];

    checks_between_writes: ChecksBetweenWrites,
    Scenario {
        rules: in_surroundings(|it| it.counts_in_trigger = true),
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2)], &[fold(&[A]), count(A, 0)])
    },
    TOTALS, [COUNTED, ALTERED];

    counts_emptied_shards: CountsEmptiedShards,
    Scenario {
        rules: in_surroundings(|it| it.checks_foreign_keys = false),
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2)], &[fold(&[A]), count(A, 1)])
    },
    TOTALS, [COUNTED, DONE, SERIALIZATION, ALTERED];

    removes_empty_shards: RemovesEmptyShards,
    Scenario {
        rules: in_surroundings(|it| it.checks_foreign_keys = false),
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2)], &[fold_away(&[A]), count(A, 1)])
    },
    TOTALS, [COUNTED, DONE, SERIALIZATION, ALTERED];

    reads_what_is_locked: ReadsWhatIsLocked,
    Scenario {
        rules: on(Isolation::SnapshotUnchecked),
        ..Scenario::new(
            &[(Parent(A), 1), (Shard(A, 0), 1)],
            &[bounded_inside(-2), bounded(-1)],
        )
    },
    TOTALS, [COUNTED, REFUSED];

    holding_isolation: HoldingIsolation,
    Scenario {
        rules: on(Isolation::Snapshot),
        ..Scenario::new(&[(Parent(A), 1)], &[set(A, 7), count(A, 0)])
    },
    TOTALS, [COUNTED];

    gives_where_room_is: GivesWhereRoomIs,
    Scenario::new(
        &[(Parent(A), 1), (Shard(A, 0), 0)],
        &[set(A, -3), bounded(2), bounded(-1)],
    ),
    BOUNDS, [COUNTED, REFUSED];

    creates_missing_shards: CreatesMissingShards,
    Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2)], &[fold_away(&[A]), count(A, 0)]),
    PARENTS, [COUNTED, DONE];

    reports_unknown: ReportsUnknown,
    Scenario {
        cuts: 1,
        ..Scenario::new(&[(Parent(A), 1)], &[count(A, 0)])
    },
    RESENDS, [COUNTED, UNKNOWN];

    checks_transaction: ChecksTransaction,
    Scenario {
        rules: Rules { swallows_errors: true, ..on(Isolation::Snapshot) },
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2)], &[count_inside(A, 0), count(A, 0)])
    },
    OUTCOMES, [COUNTED, ABORTED, SERIALIZATION];

    key_beside_count: KeyBesideCount,
    Scenario {
        kills: 1,
        cuts: 1,
        ..Scenario::new(&[(Parent(A), 1)], &[request(0, 1), request(0, 1)])
    },
    REQUESTS, [COUNTED, REPEATED, CONNECTION_LOST];

    claims_by_insert: ClaimsByInsert,
    Scenario::new(&[(Parent(A), 1)], &[request(0, 1), request(1, 1)]),
    REQUESTS, [COUNTED, REPEATED];

    releases_key: ReleasesKey,
    Scenario::new(&[], &[request(0, 1), request(0, 1), does(Application::Insert(A, 1))]),
    REQUESTS, [COUNTED, NO_ROWS, REPEATED, DONE];

    missing_shard_fails: MissingShardFails,
    Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2)], &[request(0, 1), fold_away(&[A])]),
    PARENTS, [COUNTED, DONE, SERIALIZATION];

    asks_mark: AsksMark,
    Scenario {
        cuts: 1,
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2), (Mark, 0)], &[batch(false)])
    },
    RESENDS, [COUNTED];

    locks_mark: LocksMark,
    Scenario {
        cuts: 1,
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2), (Mark, 0)], &[batch(false)])
    },
    OUTCOMES, [COUNTED];

    stamps_beyond: StampsBeyond,
    Scenario {
        cuts: 1,
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2), (Mark, 0)], &[batch(true)])
    },
    RESENDS, [COUNTED];

    compares_mark: ComparesMark,
    Scenario {
        cuts: 1,
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2), (Mark, 0)], &[batch(true)])
    },
    RESENDS, [COUNTED];

    missing_mark_is_unknown: MissingMarkIsUnknown,
    Scenario {
        cuts: 1,
        ..Scenario::new(
            &[(Parent(A), 1), (Shard(A, 0), 2), (Mark, 0)],
            &[batch(false), does(Application::DeleteOldMarks)],
        )
    },
    OUTCOMES, [COUNTED, DONE, UNKNOWN];

    breaks_dropped_connection: BreaksDroppedConnection,
    Scenario {
        drops: 1,
        ..Scenario::new(&[(Parent(A), 1), (Shard(A, 0), 2)], &[fold(&[A]), count(A, 0)])
    },
    OUTCOMES, [COUNTED, DONE, CONNECTION_LOST];
}

/// A fold that goes on with a parent that it has not locked loses what is counted on a new shard of it, unless it notices that it
/// empties more shards than it locked.
#[test]
fn a_fold_of_a_replaced_parent() {
    let scenario = Scenario::new(
        &[(Parent(A), 1), (Shard(A, 0), 2)],
        &[fold(&[A]), does(Application::Replace(A, 0)), count(A, 0)],
    );
    holds("replaced", &scenario, &[COUNTED, DONE]);
    let fixes = &[Fix::OnlyLockedParents, Fix::CountsEmptiedShards];
    breaks(fixes, &scenario, TOTALS);
}

/// The code works only on parents that it has locked, so that none of them can be missing afterwards.
#[test]
fn a_parent_that_is_missing_when_it_is_read() {
    let scenario = Scenario {
        rules: Rules {
            left_out: &[Fix::OnlyLockedParents],
            ..Rules::default()
        },
        ..Scenario::new(
            &[(Parent(A), 1)],
            &[fold(&[A]), does(Application::Delete(A))],
        )
    };
    holds("missing", &scenario, &[DONE, REMOVED]);
}
