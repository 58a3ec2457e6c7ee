//! The checker, on implementations in memory with a bug each and on right ones. Clients draw the same operations as for databases.

#[path = "checker/counts.rs"]
mod counts;
#[path = "checker/lives.rs"]
mod lives;
#[path = "checker/turns.rs"]
mod turns;

use std::thread;

use diesel_sharded_chaos::history::{History, Log};
use diesel_sharded_chaos::operation::Store;
use diesel_sharded_chaos::workload::{Mix, Round, Workload};
use tempfile::TempDir;

use self::turns::Turns;

/// A bug, which shows at every third chance.
struct Bug<Kind> {
    kind: Kind,
    chances: u32,
    /// How often it has shown.
    strikes: u32,
}

impl<Kind: PartialEq> Bug<Kind> {
    fn new(kind: Kind) -> Self {
        Bug {
            kind,
            chances: 0,
            strikes: 0,
        }
    }

    /// Whether the bug shows now, if this is a chance for it.
    fn strikes(&mut self, kind: Kind, is_a_chance: bool) -> bool {
        let is_a_chance = is_a_chance && self.kind == kind;
        self.chances += u32::from(is_a_chance);
        let strikes = is_a_chance && self.chances.is_multiple_of(3);
        self.strikes += u32::from(strikes);
        strikes
    }
}

/// Runs a client for each mix until the operations are enough, and returns their history.
fn played<S: Store + Send>(
    round: Round,
    mixes: Vec<Mix>,
    seed: u64,
    store: impl Fn(usize, &'static Turns) -> S,
    is_enough: impl Fn() -> bool + Sync,
) -> History {
    let logs = TempDir::new().unwrap();
    let turns: &Turns = Box::leak(Box::new(Turns::new(mixes.len(), seed)));
    thread::scope(|scope| {
        for (client, mix) in mixes.into_iter().enumerate() {
            let mut log = Log::create(&logs.path().join(format!("{client}.jsonl"))).unwrap();
            let mut store = store(client, turns);
            let is_enough = &is_enough;
            scope.spawn(move || {
                let _takes_part = turns.take_part(client);
                let seed = seed + client as u64;
                let mut workload = Workload::new(round, client as u16, mix, seed);
                for _ in 0..200_000 {
                    if is_enough() {
                        return;
                    }
                    workload.step(&mut store, &mut log).unwrap();
                }
                panic!("the bug does not show");
            });
        }
    });
    History::read(logs.path()).unwrap()
}

/// Makes a test of each bug: the checker finds that it violates these rules where they stand, whatever the clients draw.
macro_rules! catches {
    ($Place:ident: $($name:ident: $bug:ident { $($place:ident: $rule:ident),+ })+) => {$(
        #[test]
        fn $name() {
            for (place, rule) in [$(($Place::$place, Rule::$rule)),+] {
                for seed in 0..4 {
                    let findings = judged(Kind::$bug, place, 100 * seed).findings;
                    let caught = findings.iter().any(|finding| finding.rule == rule);
                    assert!(caught, "{place:?}, seed {seed}: {findings:?}");
                }
            }
        }
    )+};
}
use catches;
