//! Counts on rows that are there all the time, and by name.

use std::collections::BTreeMap;
use std::sync::Mutex;

use diesel_sharded_chaos::checker::{Aftermath, Judgement, Rule, judge};
use diesel_sharded_chaos::operation::{Answer, Counter, On, Operation, Refused, Store, Totals};
use diesel_sharded_chaos::workload::{Round, everything};

use super::turns::Turns;
use super::{Bug, catches, played};

const CLIENTS: u16 = 4;
/// The fewest operations.
const OPERATIONS: u32 = 1200;
const ROUND: Round = Round {
    number: 1,
    clients: CLIENTS,
    scene: None,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    /// A count writes a total that it read before another count.
    LostUpdate,
    /// A count whose answer is lost is sent again.
    DoubleApply,
    /// A fold writes a sum that it read before other counts.
    StaleFold,
    /// COMMIT fails, and the caller gets no error.
    SwallowedCommit,
    /// The caller gets an error that promises no change, and the count was applied.
    FailedButApplied,
    /// A count by a filter changes only some of its rows.
    TornTeam,
    /// A read returns old totals.
    StaleRead,
    /// The caller gets an error that does not tell the outcome.
    BareError,
    /// A repeated request is counted again.
    CountedAgain,
}

/// The operations that the bug affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hits {
    /// Operations with a token. Some outcomes are unknown.
    Transactions,
    /// Single updates. No outcome is unknown, or the checker could take the error for one of these.
    Updates,
}

/// The totals that all clients share.
struct World {
    bug: Bug<Kind>,
    hits: Hits,
    totals: BTreeMap<Counter, i64>,
    tokens: Vec<String>,
    /// Operations whose client did not wait for the answer. They are applied later.
    on_the_way: Vec<Operation>,
    /// The last amount that was added to each counter.
    last: BTreeMap<Counter, i64>,
    /// The totals that a fold has read, and the number of operations until it writes them.
    folding: Option<(BTreeMap<Counter, i64>, u32)>,
    /// The totals after each of the last operations.
    before: Vec<BTreeMap<Counter, i64>>,
    operations: u32,
}

impl World {
    /// Whether an error in this operation can be detected. Its amounts are positive, so that lost and doubled ones do not cancel out.
    fn tells(&self, operation: &Operation) -> bool {
        let adds = operation.adds();
        // A set hides earlier errors of a row. The inserted row and the coalesced one behind the team are not set.
        let last = ROUND.team()[2] + 2;
        let is_set = |(counter, _): &_| matches!(counter, Counter::Views(row) if *row > last);
        let is_hit = match self.hits {
            Hits::Transactions => matches!(operation, Operation::Transaction { .. }),
            Hits::Updates => operation.token().is_none() && !adds.iter().any(is_set),
        };
        is_hit && !adds.is_empty() && adds.iter().all(|(_, amount)| *amount > 0)
    }

    fn apply(&mut self, operation: &Operation) {
        let adds = operation.adds();
        if let Operation::Count(count) = operation
            && count
                .request
                .as_ref()
                .is_some_and(|request| self.tokens.contains(request))
        {
            if self.bug.strikes(Kind::CountedAgain, count.n > 0) {
                *self.totals.entry(adds[0].0.clone()).or_default() += count.n;
            }
            return;
        }
        let is_team =
            matches!(operation, Operation::Count(count) if matches!(count.on, On::Team { .. }));
        let torn = self.bug.strikes(Kind::TornTeam, is_team);
        let mut before = adds.iter().map(|(counter, _)| self.last.get(counter));
        let all_grew = before.all(|last| last.is_some_and(|last| *last > 0));
        let loses = self
            .bug
            .strikes(Kind::LostUpdate, all_grew && self.tells(operation));
        for (counter, amount) in adds.iter().skip(usize::from(torn)) {
            let total = self.totals.entry(counter.clone()).or_default();
            *total += amount;
            let last = self.last.insert(counter.clone(), *amount);
            if loses {
                *total -= last.unwrap_or(0);
            }
        }
        if let Some((counter, total)) = operation.sets() {
            self.totals.insert(counter, total);
        }
        self.tokens.extend(operation.token().map(str::to_owned));
    }

    fn read(&mut self, operation: &Operation) -> Totals {
        let team = Counter::Views(ROUND.team()[0]);
        let shows = matches!(operation, Operation::ReadRows { .. })
            && (self.before.first())
                .is_some_and(|before| before.get(&team) < self.totals.get(&team));
        let stale = self.bug.strikes(Kind::StaleRead, shows);
        let totals = match self.before.first() {
            Some(before) if stale => before,
            _ => &self.totals,
        };
        let is_read = |counter: &Counter| match (operation, counter) {
            (Operation::ReadRows { first, last }, Counter::Views(row) | Counter::Likes(row)) => {
                (first..=last).contains(&row)
            }
            (Operation::ReadNamed { name }, Counter::Named(other)) => name == other,
            _ => false,
        };
        let read = totals.iter().filter(|(counter, _)| is_read(counter));
        read.map(|(counter, total)| (counter.clone(), *total))
            .collect()
    }

    /// Advances delayed operations and folds.
    fn go_on(&mut self) {
        self.operations += 1;
        if self.operations.is_multiple_of(17) && !self.on_the_way.is_empty() {
            let late = self.on_the_way.remove(0);
            self.apply(&late);
        }
        let counter = match self.hits {
            Hits::Transactions => Counter::Views(ROUND.team()[0] - 3),
            Hits::Updates => Counter::Views(ROUND.team()[0]),
        };
        let grew = |read: &BTreeMap<_, _>| read.get(&counter) < self.totals.get(&counter);
        match self.folding.take() {
            Some((read, 0)) if grew(&read) => {
                self.totals = read;
                self.bug.strikes += 1;
            }
            Some((read, wait)) => self.folding = Some((read, wait.saturating_sub(1))),
            None => {}
        }
        self.before.push(self.totals.clone());
        if self.before.len() > 60 {
            self.before.remove(0);
        }
    }
}

fn refused(unknown: bool, kind: &str) -> Refused {
    Refused {
        unknown,
        kind: kind.into(),
        text: "the wire was cut".into(),
    }
}

fn met_all(operation: &Operation) -> Result<Answer, Refused> {
    Ok(Answer::Rows(operation.rows().unwrap_or(1)))
}

struct Memory<'w> {
    world: &'w Mutex<World>,
    turns: &'w Turns,
    client: usize,
}

impl Store for Memory<'_> {
    fn run(&mut self, operation: &Operation) -> Result<Answer, Refused> {
        self.turns.pass(self.client); // others run while this operation is under way
        let world = &mut *self.world.lock().unwrap();
        world.go_on();
        let tells = world.tells(operation);
        if operation.adds().is_empty() && operation.sets().is_none() {
            if matches!(operation, Operation::Fold { .. }) && world.bug.kind == Kind::StaleFold {
                world.folding = Some((world.totals.clone(), 5));
            }
            return Ok(Answer::Totals(world.read(operation)));
        }
        let lost = || Err(refused(true, "OutcomeUnknown"));
        // Sometimes the wire is cut: before the request, after it, or so that it arrives late.
        match (rand::random_range(0..40), world.hits) {
            (0, _) => {
                if world.bug.strikes(Kind::FailedButApplied, tells) {
                    world.apply(operation);
                }
                Err(refused(false, "ConnectionLost"))
            }
            (1, _) if world.bug.strikes(Kind::DoubleApply, tells) => {
                world.apply(operation);
                let tokens = world.tokens.clone(); // the second insert of a token fails, and the error is ignored
                world.apply(operation);
                world.tokens = tokens;
                met_all(operation)
            }
            (1, Hits::Transactions) => {
                world.apply(operation);
                lost()
            }
            (2, Hits::Transactions) => {
                world.on_the_way.push(operation.clone());
                lost()
            }
            (3, Hits::Transactions) => lost(),
            (4, Hits::Updates) if world.bug.strikes(Kind::BareError, tells) => {
                Err(refused(false, "Diesel"))
            }
            _ => {
                if !world.bug.strikes(Kind::SwallowedCommit, tells) {
                    world.apply(operation);
                }
                met_all(operation)
            }
        }
    }
}

/// Runs four clients until the bug has shown several times, and judges their history.
fn judged(kind: Kind, hits: Hits, seed: u64) -> Judgement {
    let rules = ROUND.rules();
    let world = &Mutex::new(World {
        bug: Bug::new(kind),
        hits,
        totals: rules.base.clone(),
        tokens: vec![],
        on_the_way: vec![],
        last: BTreeMap::new(),
        folding: None,
        before: vec![],
        operations: 0,
    });
    let mixes = vec![everything(); CLIENTS.into()];
    let store = |client, turns| Memory {
        world,
        turns,
        client,
    };
    let history = played(ROUND, mixes, seed, store, || {
        let world = world.lock().unwrap();
        let has_shown = kind == Kind::None || world.bug.strikes >= 5;
        has_shown && world.operations >= OPERATIONS
    });
    let mut world = world.lock().unwrap();
    let end = ROUND.reads().map(|read| world.read(&read)).concat();
    let aftermath = Aftermath {
        totals: end,
        tokens: world.tokens.clone(),
    };
    judge(&rules, &history, &aftermath)
}

#[test]
fn a_right_implementation_passes() {
    for seed in 0..10 {
        let judgement = judged(Kind::None, Hits::Transactions, 100 * seed);
        assert_eq!(judgement.findings, [], "seed {seed}");
        assert!(
            judgement.ok > 1000 && judgement.reads > 100,
            "{judgement:?}"
        );
        assert!(
            judgement.failed > 0 && judgement.unknown > 0,
            "{judgement:?}"
        );
    }
}

catches! { Hits:
    a_lost_update: LostUpdate { Transactions: RightTotal, Updates: RightTotal, Updates: InBounds }
    a_double_apply: DoubleApply { Transactions: RightTotal, Updates: RightTotal }
    a_stale_fold: StaleFold { Transactions: RightTotal, Updates: RightTotal }
    a_swallowed_commit: SwallowedCommit { Transactions: NothingLost, Updates: RightTotal, Updates: InBounds }
    a_failure_that_was_applied: FailedButApplied { Transactions: FailedChangesNothing, Updates: RightTotal }
    a_torn_team: TornTeam { Updates: Teams }
    a_stale_read: StaleRead { Updates: InBounds, Updates: NoWayBack }
    a_request_that_is_counted_again: CountedAgain { Transactions: RightTotal, Updates: RightTotal }
    a_bare_error: BareError { Updates: Errors }
}
