//! The checker of lives, on a right implementation in memory and on ones with a bug each.

mod memory;
mod turns;

use std::sync::Mutex;
use std::thread;

use diesel_sharded_chaos::checker::{Finding, Judgement};
use diesel_sharded_chaos::history::Log;
use diesel_sharded_chaos::lives::History;
use diesel_sharded_chaos::lives::workload::{Role, Round, Scene, Workload};
use diesel_sharded_chaos::store::Store;
use tempfile::TempDir;

use self::memory::{Bug, Memory, World};
use self::turns::Turns;

/// The least number of times that a bug has to show.
const ENOUGH: u32 = 10;
/// The fewest operations that a right implementation has to pass.
const OPERATIONS: u32 = 3000;
/// The fewest reads among them.
const READS: u32 = 200;

/// Runs the clients of a scene until the bug has shown several times, and judges their history.
fn judged(bug: Bug, scene: Scene, seed: u64) -> Judgement {
    let round = Round { scene, number: 1 };
    let roles = Role::of(scene);
    let world = Mutex::new(World::with(bug));
    let turns = Turns::new(roles.len(), seed);
    let memory = |client| Memory {
        world: &world,
        turns: &turns,
        client,
    };
    let logs = TempDir::new().unwrap();
    thread::scope(|scope| {
        for (client, role) in roles.into_iter().enumerate() {
            let mut log = Log::create(&logs.path().join(format!("{client}.jsonl"))).unwrap();
            let mut store = memory(client);
            let turns = &turns;
            scope.spawn(move || {
                let _takes_part = turns.take_part(client);
                let mut workload = Workload::new(round, role, seed + client as u64);
                loop {
                    let operation = workload.draw();
                    let answer = log.record(&operation, |operation| store.run(operation));
                    answer.unwrap().unwrap();
                    let world = store.world();
                    let has_shown = bug == Bug::None || world.strikes >= ENOUGH;
                    let is_enough = world.operations >= OPERATIONS && world.reads >= READS;
                    if has_shown && is_enough {
                        return;
                    }
                    if world.operations > 200_000 {
                        drop(world); // the other threads must get here too
                        panic!("{bug:?} does not show, {scene}");
                    }
                }
            });
        }
    });
    let aftermath = round.aftermath(&mut memory(0));
    round.judge(&History::read(logs.path()).unwrap(), &aftermath)
}

/// Checks that the checker finds the bug, as the right kind of finding, whatever the clients draw.
fn catches(bug: Bug, scene: Scene, as_it_is: fn(&Finding) -> bool) {
    for seed in 0..3 {
        let findings = judged(bug, scene, 100 * seed).findings;
        let caught = findings.iter().any(as_it_is);
        assert!(caught, "{bug:?}, {scene}, seed {seed}: {findings:?}");
    }
}

fn is_wrong_sum(finding: &Finding) -> bool {
    matches!(finding, Finding::WrongSum { .. })
}

fn is_out_of_bounds(finding: &Finding) -> bool {
    matches!(finding, Finding::OutOfBounds { .. })
}

#[test]
fn a_right_implementation_passes() {
    for scene in Scene::ALL {
        for seed in 0..5 {
            let judgement = judged(Bug::None, scene, 100 * seed);
            assert_eq!(judgement.findings, [], "{scene}, seed {seed}");
            assert!(
                judgement.ok >= OPERATIONS as usize && judgement.reads > 30,
                "{scene}: {} operations, {} reads",
                judgement.ok,
                judgement.reads
            );
        }
    }
}

#[test]
fn a_fold_that_ignores_how_many_rows_it_locked_is_caught() {
    catches(Bug::FoldIgnoresLocked, Scene::Replaced, is_wrong_sum);
    catches(Bug::FoldIgnoresLocked, Scene::Renamed, is_wrong_sum);
    catches(Bug::FoldIgnoresLocked, Scene::Bounded, is_wrong_sum);
    catches(Bug::FoldIgnoresLocked, Scene::Named, is_out_of_bounds);
}

#[test]
fn a_fold_that_ignores_how_many_rows_it_wrote_is_caught() {
    catches(Bug::FoldIgnoresWritten, Scene::Replaced, is_wrong_sum);
    catches(Bug::FoldIgnoresWritten, Scene::Renamed, is_wrong_sum);
    catches(Bug::FoldIgnoresWritten, Scene::Bounded, is_wrong_sum);
    catches(Bug::FoldIgnoresWritten, Scene::Set, is_out_of_bounds);
    catches(Bug::FoldIgnoresWritten, Scene::Named, is_out_of_bounds);
}

#[test]
fn a_set_that_ignores_how_many_rows_it_wrote_is_caught() {
    catches(Bug::SetIgnoresWritten, Scene::Set, is_out_of_bounds);
}

#[test]
fn a_repair_that_ignores_how_many_rows_it_wrote_is_caught() {
    catches(Bug::RepairIgnoresWritten, Scene::Set, is_out_of_bounds);
}

#[test]
fn a_bounded_count_that_ignores_how_many_rows_it_wrote_is_caught() {
    catches(Bug::BoundedIgnoresWritten, Scene::Bounded, is_wrong_sum);
}

#[test]
fn a_bounded_count_beyond_its_bounds_is_caught() {
    catches(Bug::BoundedIgnoresBounds, Scene::Bounded, |finding| {
        matches!(finding, Finding::BeyondBounds { .. })
    });
}

#[test]
fn a_rename_that_loses_shards_is_caught() {
    catches(Bug::RenameLosesShards, Scene::Renamed, is_wrong_sum);
    catches(Bug::RenameLosesShards, Scene::Bounded, is_wrong_sum);
}

#[test]
fn shards_that_outlive_their_row_are_caught() {
    catches(Bug::DeleteLeavesShards, Scene::Replaced, is_wrong_sum);
    catches(Bug::DeleteLeavesShards, Scene::Set, is_out_of_bounds);
    catches(Bug::DeleteLeavesShards, Scene::Named, is_out_of_bounds);
}

#[test]
fn a_count_on_nothing_is_caught() {
    catches(Bug::CountsOnNothing, Scene::Replaced, is_wrong_sum);
}

#[test]
fn a_row_that_is_there_and_said_not_to_be_is_caught() {
    let is_not_there = |finding: &Finding| matches!(finding, Finding::NotThere { .. });
    catches(Bug::SaysNotThere, Scene::Replaced, is_not_there);
    catches(Bug::ReadLeavesOut, Scene::Renamed, is_not_there);
}
