//! Rows are deleted, inserted again and renamed, and named counters are deleted, while others count, fold, set and repair.

use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::Fault;
use crate::backend::{Backend, Locks};
use crate::history::{History, Outcome};
use crate::operation::{Answer, Operation};
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Process, play};
use crate::workload::{Kind, Scene};

pub const FAULT: Fault = Fault {
    name: "parents-replaced",
    about: "rows are deleted, inserted again and renamed beside counts, folds, sets and repairs; no count is lost or doubled",
    backends: &Backend::ALL,
    rounds: (30 * SCENES, SCENES),
    run,
};

/// The number of scenes. Each round plays one of them.
const SCENES: u32 = 5;

/// The patience for clients: longer than a server waits for a lock.
const PATIENCE: Duration = Duration::from_secs(120);

/// A round goes on until rows were replaced this often and folds moved something this often.
const ENOUGH: usize = 5;

fn run(line: &mut Line) {
    let mut place = Place::new(line.backend);
    if line.backend == Backend::Sqlite {
        place.execute("PRAGMA journal_mode = WAL"); // readers wait for nobody
    }
    let scenes = Scene::value_variants();
    let mut sums = vec![[0; 3]; scenes.len()];
    let time = line.choose(Duration::from_secs(2), Duration::from_millis(500));
    while line.goes_on() {
        let n = line.rounds as usize % scenes.len();
        let played = play(&mut place, &crew(scenes[n]), line, |_, playing| {
            let began = Instant::now();
            thread::sleep(time);
            while !is_enough(effects(&playing.history())) && began.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(50));
            }
        });
        let effects = effects(&played.history);
        if !is_enough(effects) {
            let round = line.rounds;
            line.find(format!("round {round}: the clients make no progress"));
        }
        let [replaced, folded] = effects;
        let found = played.judgement.findings.len();
        for (sum, more) in sums[n].iter_mut().zip([replaced, folded, found]) {
            *sum += more;
        }
    }
    for (scene, [replaced, folded, findings]) in scenes.iter().zip(sums) {
        line.remark(format!(
            "{scene:?}: {replaced} times deleted or renamed beside {folded} folds that moved something, {findings} findings"
        ));
    }
}

/// The clients of a scene.
fn crew(scene: Scene) -> Crew {
    let all = |clients, kind| Process::new(clients, vec![(kind, 1)]);
    let others = match scene {
        Scene::Named => all(1, Kind::Keep(1)),
        _ => all(2, Kind::CountLives),
    };
    let processes = vec![all(1, Kind::Keep(0)), others, all(3, Kind::FoldLives)];
    let mut crew = Crew {
        attempts: Some(u32::MAX),
        shards: Some(4),
        scene: Some(scene),
        ..Crew::of(processes)
    };
    crew.settings.locks = Locks::Retried;
    crew
}

/// The number of deletes and renames, and of folds that moved something.
fn effects(history: &History) -> [usize; 2] {
    let mut effects = [0, 0];
    for done in &history.operations {
        match (&done.operation, &done.outcome) {
            (
                Operation::Delete { .. } | Operation::Rename { .. },
                Outcome::Ok(Answer::Totals(totals)),
            ) => effects[0] += usize::from(!totals.is_empty()),
            (Operation::DeleteNamed { .. }, Outcome::Ok(Answer::Rows(1..))) => effects[0] += 1,
            (Operation::Fold { .. }, Outcome::Ok(Answer::Rows(1..))) => effects[1] += 1,
            _ => {}
        }
    }
    effects
}

fn is_enough(effects: [usize; 2]) -> bool {
    effects.iter().all(|number| *number >= ENOUGH)
}
