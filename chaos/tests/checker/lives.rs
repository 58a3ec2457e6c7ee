//! The checker of lives, on a right implementation in memory and on ones with a bug each.

mod memory;
mod turns;

use std::sync::Mutex;
use std::thread;

use clap::ValueEnum;
use diesel_sharded_chaos::checker::{Judgement, Rule};
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
                        panic!("{bug:?} does not show, {scene:?}");
                    }
                }
            });
        }
    });
    let aftermath = round.aftermath(&mut memory(0));
    round.judge(&History::read(logs.path()).unwrap(), &aftermath)
}

#[test]
fn a_right_implementation_passes() {
    for &scene in Scene::value_variants() {
        for seed in 0..5 {
            let judgement = judged(Bug::None, scene, 100 * seed);
            assert_eq!(judgement.findings, [], "{scene:?}, seed {seed}");
            let (ok, reads) = (judgement.ok, judgement.reads);
            assert!(
                ok >= OPERATIONS as usize && reads > 30,
                "{scene:?}: {ok}, {reads}"
            );
        }
    }
}

/// Makes a test of each bug: the checker finds that it violates these rules in these scenes, whatever the clients draw.
macro_rules! catches {
    ($($name:ident: $bug:ident { $($scene:ident: $rule:ident),+ })+) => {$(
        #[test]
        fn $name() {
            for (scene, rule) in [$((Scene::$scene, Rule::$rule)),+] {
                for seed in 0..3 {
                    let findings = judged(Bug::$bug, scene, 100 * seed).findings;
                    let caught = findings.iter().any(|finding| finding.rule == rule);
                    assert!(caught, "{scene:?}, seed {seed}: {findings:?}");
                }
            }
        }
    )+};
}

catches! {
    a_fold_that_ignores_how_many_rows_it_locked: FoldIgnoresLocked {
        Replaced: RightSum, Renamed: RightSum, Bounded: RightSum, Named: InBounds
    }
    a_fold_that_ignores_how_many_rows_it_wrote: FoldIgnoresWritten {
        Replaced: RightSum, Renamed: RightSum, Bounded: RightSum, Set: InBounds, Named: InBounds
    }
    a_set_that_ignores_how_many_rows_it_wrote: SetIgnoresWritten { Set: InBounds }
    a_repair_that_ignores_how_many_rows_it_wrote: RepairIgnoresWritten { Set: InBounds }
    a_bounded_count_that_ignores_how_many_rows_it_wrote: BoundedIgnoresWritten { Bounded: RightSum }
    a_bounded_count_beyond_its_bounds: BoundedIgnoresBounds { Bounded: Bounds }
    a_rename_that_loses_shards: RenameLosesShards { Renamed: RightSum, Bounded: RightSum }
    shards_that_outlive_their_row: DeleteLeavesShards { Replaced: RightSum, Set: InBounds, Named: InBounds }
    a_count_on_nothing: CountsOnNothing { Replaced: RightSum }
    a_row_that_is_there_and_said_not_to_be: SaysNotThere { Replaced: There }
    a_row_that_a_read_leaves_out: ReadLeavesOut { Renamed: There }
}
