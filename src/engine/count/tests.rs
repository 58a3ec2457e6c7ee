//! Counts on a connection that follows a script.

use super::*;
use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::observe::{Observer, Scope};
use crate::placement::ShardChoice;
use crate::query_builder::Prepare;
use diesel::connection::TransactionManagerStatus;
use diesel::mysql::Mysql;
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryBuilder, QueryFragment, QueryId};
use diesel::sqlite::Sqlite;
use std::any::TypeId;
use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn plan(dialect: Dialect) -> Plan {
    Plan {
        by_key: true,
        filter: None,
        returning: false,
        loads_apart: false,
        once: false,
        alone: false,
        inserts: false,
        in_transaction: false,
        dialect,
        shard_choice: ShardChoice::Random,
        table: "videos_shards",
        keys: observe::Keys::of::<crate::test_schema::videos::table>(dialect),
        key: 7,
        shards: 4,
    }
}

fn error(message: &str) -> DieselError {
    DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned()))
}

fn deadlock() -> DieselError {
    error("deadlock detected")
}

fn lost() -> DieselError {
    DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new(String::new()))
}

/// The outcome of each step, and the steps that were taken.
#[derive(Default)]
struct Script {
    outcomes: VecDeque<QueryResult<usize>>,
    steps: Vec<String>,
    /// The shard of each statement.
    shards: Vec<i32>,
    looks_inside: bool,
    /// A transaction is open that Diesel does not know.
    is_inside: bool,
}

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Script>>);

impl Shared {
    fn script(&self) -> RefMut<'_, Script> {
        self.0.borrow_mut()
    }

    fn take(&self, step: impl Into<String>) {
        self.script().steps.push(step.into());
    }

    /// The outcome of the step that is being taken; pending for ever at the script's end.
    async fn outcome(self) -> QueryResult<usize> {
        let outcome = self.script().outcomes.pop_front();
        match outcome {
            Some(outcome) => outcome,
            None => std::future::pending().await,
        }
    }

    /// The outcome of the question whether a transaction is open, which fails in one.
    async fn question(self) -> QueryResult<usize> {
        let Script {
            looks_inside,
            is_inside,
            ..
        } = *self.script();
        let found = match looks_inside {
            true => self.clone().outcome().await?,
            false => usize::from(is_inside),
        };
        if found == 0 {
            return Ok(0);
        }
        if looks_inside {
            self.script().outcomes.push_front(Ok(found)); // until it is believed
        }
        Err(error("cannot start a transaction within a transaction"))
    }
}

struct Connection {
    shared: Shared,
    status: TransactionManagerStatus,
}

type Local<'c, T> = Pin<Box<dyn Future<Output = T> + 'c>>;

/// Follows the script of a connection to `DB`.
struct Scripted<DB>(PhantomData<DB>);

thread_local! {
    /// Of the count that is running, for its sleeps.
    static RUNNING: RefCell<Shared> = RefCell::default();
}

impl<DB: ShardedBackend + BackendOf<Connection>> Io<Connection> for Scripted<DB> {
    type Backend = DB;
    type Future<'c, T: 'c> = Local<'c, T>;

    fn execute_prepared<'c, Q>(conn: &'c mut Connection, _: Q) -> Local<'c, QueryResult<usize>>
    where
        Q: Prepare<DB> + QueryId + 'c,
    {
        let is_inside = conn.shared.script().is_inside;
        Box::pin(async move { Ok(usize::from(is_inside)) })
    }

    fn execute<'c, Q>(conn: &'c mut Connection, statement: Q) -> Local<'c, QueryResult<usize>>
    where
        Q: QueryFragment<DB> + QueryId + 'c,
    {
        let shared = conn.shared.clone();
        let mut text = DB::default().query_builder();
        let written = statement.to_sql(&mut text, &DB::backend_of(conn));
        match written.map(|()| text.finish()).as_deref() {
            Ok(
                "START TRANSACTION"
                | "COMMIT"
                | "SAVEPOINT diesel_sharded_own"
                | "RELEASE SAVEPOINT diesel_sharded_own",
            ) => Box::pin(shared.outcome()),
            Ok("ROLLBACK" | "ROLLBACK TO SAVEPOINT diesel_sharded_own") => {
                Box::pin(async { Ok(0) })
            }
            _ => Box::pin(shared.question()),
        }
    }

    fn execute_query<'c, Q>(conn: &'c mut Connection, _: Q) -> Local<'c, QueryResult<usize>>
    where
        Q: Query + QueryFragment<DB> + QueryId + 'c,
    {
        let is_inside = conn.shared.script().is_inside;
        Box::pin(async move { Ok(usize::from(is_inside)) })
    }

    fn nothing(_: &mut Connection) -> Local<'_, QueryResult<usize>> {
        Box::pin(async { Ok(0) })
    }

    fn batch_execute<'c>(conn: &'c mut Connection, _: &'c str) -> Local<'c, QueryResult<()>> {
        let shared = conn.shared.clone();
        let looks_inside = shared.script().looks_inside;
        Box::pin(async move {
            if looks_inside {
                shared.question().await?;
            }
            Ok(())
        })
    }

    fn begin(conn: &mut Connection) -> Local<'_, QueryResult<()>> {
        let begun = conn.shared.clone().outcome();
        Box::pin(async { begun.await.map(|_| ()) })
    }

    fn commit(conn: &mut Connection) -> Local<'_, QueryResult<()>> {
        let committed = conn.shared.clone().outcome();
        Box::pin(async { committed.await.map(|_| ()) })
    }

    fn roll_back(_: &mut Connection) -> Local<'_, QueryResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn transaction_status(conn: &mut Connection) -> &mut TransactionManagerStatus {
        &mut conn.status
    }

    fn may_be_in_transaction(_: &mut Connection) -> bool {
        false
    }

    fn wait<'c, W>(wait: W, patience: Duration) -> Local<'c, W::Turn>
    where
        W: crate::connection::wait::Waiting + Send + 'c,
        W::Turn: 'c,
    {
        Box::pin(async move { wait.block(patience) })
    }

    fn sleep(_: &RetryPolicy, _: Duration) -> Local<'_, ()> {
        let shared = RUNNING.with_borrow(Shared::clone);
        shared.take("Sleep");
        Box::pin(async {
            let _ = shared.outcome().await;
        })
    }
}

struct ScriptedSender(Shared);

impl<DB> Sender<Scripted<DB>, Connection> for ScriptedSender
where
    Scripted<DB>: Io<Connection>,
{
    async fn send(
        &mut self,
        _: &mut Link<'_, Scripted<DB>, Connection>,
        _: Statement,
        shard: i32,
    ) -> QueryResult<usize> {
        self.0.script().shards.push(shard);
        self.0.clone().outcome().await
    }
}

/// Records the steps.
struct Recorder(Shared);

impl Recorder {
    fn scope() -> Scope {
        observe::Transaction::begin(Dialect::Postgres, observe::Work::Own).scope()
    }
}

impl Observer for Recorder {
    fn step(&mut self, kind: &'static str) -> Scope {
        let name = match kind {
            "begin" => "Begin",
            "commit" => "Commit",
            "rollback" => "Rollback",
            "look_inside" => "LookInside",
            "create" => "Create",
            "count_by_key" | "count_picked" => "Count",
            "count_one" => "CountOne",
            "count_all" => "CountAll",
            "count_and_load" => "CountAndLoad",
            "count_once" => "CountOnce",
            "find_missing" => "FindMissing",
            "find_parent" => "FindParent",
            "insert_unless_there" => "InsertUnlessThere",
            "insert" => "Insert",
            "pick" => "Pick",
            "load" => "Load",
            other => other,
        };
        self.0.take(name);
        let mut script = self.0.script();
        script.looks_inside = name == "LookInside";
        if name == "Rollback" {
            script.outcomes.pop_front(); // its failure changes nothing
        }
        Self::scope()
    }

    fn stepped(&mut self, _: Option<&DieselError>) {
        self.0.script().looks_inside = false;
    }

    fn failed(&mut self, _: u32, _: Option<Conflict>, _: Option<Duration>) {}

    fn ended(&mut self, _: u32, _: bool) {}
}

impl CountObserver for Recorder {
    fn probe(&mut self, _: &'static str, _: i32) -> Scope {
        self.0.take("Probe");
        Self::scope()
    }

    fn attempt(&mut self, _: u32, _: i32) {}

    fn sent(&mut self, _: &QueryResult<usize>) {}

    fn created(&mut self, _: usize) {}

    fn counted(&mut self, _: usize) {}
}

/// Counts by a script, up to its end.
fn follow<DB>(process: &'static Process, plan: Plan, retry: RetryPolicy, shared: &Shared)
where
    Scripted<DB>: Io<Connection>,
{
    RUNNING.set(shared.clone());
    let conn = &mut Connection {
        shared: shared.clone(),
        status: TransactionManagerStatus::default(),
    };
    let link = &mut Link::<Scripted<DB>, _>::new(conn);
    let (sender, recorder) = (
        &mut ScriptedSender(shared.clone()),
        Recorder(shared.clone()),
    );
    let counting = pin!(Count::new(link, plan, retry, sender, process, recorder).run());
    if let Poll::Ready(counted) = counting.poll(&mut Context::from_waker(Waker::noop())) {
        shared.take(match counted.map_err(Error::from) {
            Ok(rows) => format!("{rows} counted"),
            Err(error) => name(&error),
        });
    }
}

fn name(error: &Error) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(']).next().unwrap().to_owned()
}

/// The steps of a count, and the shard of each statement.
fn walk_in(
    process: &'static Process,
    plan: Plan,
    retry: RetryPolicy,
    script: Script,
) -> (Vec<String>, Vec<i32>) {
    let shared = Shared(Rc::new(RefCell::new(script)));
    match plan.dialect {
        Dialect::Postgres => follow::<Pg>(process, plan, retry, &shared),
        Dialect::Mysql => follow::<Mysql>(process, plan, retry, &shared),
        Dialect::Sqlite => follow::<Sqlite>(process, plan, retry, &shared),
    }
    let Script { steps, shards, .. } = shared.0.take();
    (steps, shards)
}

fn script(outcomes: Vec<QueryResult<usize>>) -> Script {
    Script {
        outcomes: outcomes.into(),
        ..Default::default()
    }
}

/// The steps of a count whose steps have these outcomes.
fn walk(plan: Plan, outcomes: Vec<QueryResult<usize>>) -> Vec<String> {
    walk_by(plan, RetryPolicy::new(), outcomes)
}

fn walk_by(plan: Plan, retry: RetryPolicy, outcomes: Vec<QueryResult<usize>>) -> Vec<String> {
    walk_in(Process::this(), plan, retry, script(outcomes)).0
}

/// The count's steps, or those from a number on, are these.
macro_rules! walks {
    ($plan:expr, $outcomes:expr $(, $from:literal ..)? => $names:literal) => {
        assert_eq!(walk($plan, $outcomes.into())[$($from)? ..], these($names));
    };
    ($plan:expr, $retry:expr, $outcomes:expr $(, $from:literal ..)? => $names:literal) => {
        assert_eq!(walk_by($plan, $retry, $outcomes.into())[$($from)? ..], these($names));
    };
}

/// Steps, one behind the other.
fn these(names: &str) -> Vec<&str> {
    names.split(", ").collect()
}

/// The same plan with these flags.
macro_rules! with {
    ($($flag:ident),+; $plan:expr) => {
        Plan { $($flag: true,)+ ..$plan }
    };
}

fn adaptive() -> Plan {
    Plan {
        shard_choice: ShardChoice::Adaptive,
        ..plan(Dialect::Postgres)
    }
}

fn by_filter(dialect: Dialect) -> Plan {
    Plan {
        by_key: false,
        ..plan(dialect)
    }
}

/// The steps of a count by a filter that finds a shard missing.
const AT_ONCE: [&str; 3] = ["CountOne", "CountAll", "FindParent"];

/// The outcomes of these steps on PostgreSQL, and of those that follow.
fn missing<const N: usize>(outcomes: [QueryResult<usize>; N]) -> Vec<QueryResult<usize>> {
    [Ok(0), Ok(0), Ok(1)].into_iter().chain(outcomes).collect()
}

#[test]
fn a_shard_that_is_there_takes_one_statement() {
    walks!(plan(Dialect::Postgres), [Ok(1)] => "Count, 1 counted");
}

#[test]
fn a_count_that_claims_a_key_is_one_statement_whatever_it_meets() {
    let once = with!(once; plan(Dialect::Postgres));
    let walked = |outcomes| walk(once, outcomes);
    assert_eq!(walked(vec![Ok(1)]), ["CountOnce", "1 counted"]);
    assert_eq!(walked(vec![Ok(0)]), ["CountOnce", "0 counted"]);
    let retried = walked(vec![Err(deadlock()), Ok(0), Ok(0), Ok(1)]);
    let expected = ["CountOnce", "LookInside", "Sleep", "CountOnce", "1 counted"];
    assert_eq!(retried, expected);
    assert_eq!(walked(vec![Err(lost())]), ["CountOnce", "OutcomeUnknown"]);
    // In a transaction that Diesel does not know.
    let inside = walked(vec![Err(deadlock()), Ok(1)]);
    assert_eq!(inside, ["CountOnce", "LookInside", "Diesel"]);
}

#[test]
fn a_missing_shard_is_created_in_one_transaction() {
    for dialect in [Dialect::Mysql, Dialect::Sqlite] {
        let outcomes = vec![Ok(0), Ok(0), Ok(1), Ok(1), Ok(0)];
        walks!(plan(dialect), outcomes => "Count, Begin, Create, Count, Commit, 1 counted");
    }
}

/// PostgreSQL's transactions begin with a look whether there is one; a shard at zero needs none.
#[test]
fn a_missing_shard_is_created_by_a_statement_that_commits_by_itself() {
    let walked = |outcomes: &[usize]| {
        let outcomes = outcomes.iter().map(|rows| Ok(*rows)).collect();
        walk(plan(Dialect::Postgres), outcomes)
    };
    assert_eq!(
        walked(&[0, 1, 1]),
        ["Count", "Create", "Count", "1 counted"]
    );
    // Another one has created it, or there is no such parent.
    assert_eq!(
        walked(&[0, 0, 1]),
        ["Count", "Create", "Count", "1 counted"]
    );
    assert_eq!(
        walked(&[0, 0, 0, 0]),
        ["Count", "Create", "Count", "FindParent", "0 counted"]
    );
    // A key that the shards' table compares in another way.
    assert_eq!(
        walked(&[0, 1, 0, 1]),
        ["Count", "Create", "Count", "Count", "1 counted"]
    );
}

#[test]
fn a_shard_that_is_folded_away_before_the_count_is_created_again_and_then_held() {
    let mut outcomes = vec![Ok(0)];
    for _ in 0..3 {
        outcomes.extend([1, 0, 0, 1].map(Ok)); // it is removed each time
    }
    outcomes.extend([Ok(0), Ok(1), Ok(1), Ok(0)]);
    let steps = walk(plan(Dialect::Postgres), outcomes);
    let round = ["Create", "Count", "Count", "FindParent"];
    let expected = [
        &["Count"][..],
        &round,
        &round,
        &round,
        &["Begin", "Create", "Count", "Commit", "1 counted"],
    ];
    assert_eq!(steps, expected.concat());
}

/// MariaDB's update of joined tables reports no error where it is interrupted.
#[test]
fn a_filter_that_counted_on_too_few_is_attempted_again() {
    let retry = RetryPolicy::new().with_attempts(2);
    let outcomes = Vec::from([0, 0, 2, 1, 0, 0, 0, 0, 2, 2, 0].map(Ok));
    let steps = walk_by(by_filter(Dialect::Mysql), retry, outcomes);
    let attempt = ["CountOne", "Begin", "Create", "Count"];
    let expected = [
        &attempt[..],
        &["Rollback", "Sleep"],
        &attempt,
        &["Commit", "2 counted"],
    ];
    assert_eq!(steps, expected.concat());
}

/// A retry must not run where a transaction of the caller's was, if Diesel does not know of that transaction.
#[test]
fn a_conflict_of_a_statement_by_itself_is_looked_into_first() {
    let retry = || RetryPolicy::new().with_attempts(2);
    for dialect in [Dialect::Postgres, Dialect::Mysql, Dialect::Sqlite] {
        let conflict = || match dialect {
            Dialect::Postgres => deadlock(),
            Dialect::Mysql => error("Lock wait timeout exceeded; try restarting transaction"),
            Dialect::Sqlite => error("database is locked"),
        };
        let outside = vec![Err(conflict()), Ok(0), Ok(0), Ok(1)];
        walks!(plan(dialect), retry(), outside => "Count, LookInside, Sleep, Count, 1 counted");
        let inside = vec![Err(conflict()), Ok(1)];
        walks!(plan(dialect), retry(), inside => "Count, LookInside, Diesel");
        let interrupted = || Err(error("interrupted"));
        let asked_again = vec![Err(conflict()), interrupted(), Ok(0), Ok(0), Ok(1)];
        walks!(plan(dialect), retry(), asked_again => "Count, LookInside, Sleep, Count, 1 counted");
        let cannot_be_told = vec![Err(conflict()), Err(lost())];
        walks!(plan(dialect), retry(), cannot_be_told => "Count, LookInside, Diesel");
    }
    let ends = |dialect, error| {
        AttemptError::<DieselError>::Commit(error).ended_transaction(dialect) == Some(true)
    };
    assert!(ends(
        Dialect::Mysql,
        error("Deadlock found when trying to get lock")
    ));
    assert!(ends(
        Dialect::Mysql,
        error("Record has changed since last read in table 't'")
    ));
    assert!(!ends(Dialect::Mysql, error("Lock wait timeout exceeded")));
    assert!(!ends(Dialect::Postgres, deadlock()));
}

#[test]
fn a_savepoint_in_a_transaction_that_diesel_does_not_know_is_inside_the_callers() {
    let inside = Script {
        is_inside: true,
        ..script(missing([Err(deadlock()), Ok(0)]))
    };
    let by_filter = by_filter(Dialect::Postgres);
    let (steps, _) = walk_in(Process::this(), by_filter, RetryPolicy::new(), inside);
    assert_eq!(steps[3..], these("Begin, Create, Rollback, Diesel"));
}

#[test]
fn a_missing_parent_counts_nothing() {
    let nothing = (0..6).map(|_| Ok(0)).collect();
    let steps = walk(plan(Dialect::Sqlite), nothing);
    // The second count compares the key as the parent's table does.
    assert_eq!(
        steps,
        these("Count, Begin, Create, Count, Count, Commit, 0 counted")
    );
}

#[test]
fn what_an_attempt_counted_is_forgotten_when_it_is_taken_back() {
    let returning = with!(returning, loads_apart; by_filter(Dialect::Postgres));
    let outcomes = vec![
        Ok(0),
        Ok(1),
        Ok(1),
        Ok(1),
        Err(deadlock()), // COMMIT
        Ok(0),
        Ok(0),
        Ok(0),
        Ok(0), // the second attempt picks no row
        Ok(0),
    ];
    let steps = walk(returning, outcomes);
    assert_eq!(steps[steps.len() - 2..], ["Commit", "0 counted"]);
}

#[test]
fn a_parent_deleted_meanwhile_is_looked_for_again() {
    let violation = || {
        let kind = DatabaseErrorKind::ForeignKeyViolation;
        DieselError::DatabaseError(kind, Box::new(String::new()))
    };
    let by_itself = vec![Ok(0), Err(violation()), Ok(0), Ok(0)];
    walks!(plan(Dialect::Postgres), by_itself => "Count, Create, LookInside, Sleep, Count");
    let in_one = || vec![Ok(0), Ok(0), Err(violation()), Ok(0), Ok(0)];
    walks!(plan(Dialect::Mysql), in_one() => "Count, Begin, Create, Rollback, Sleep, Count");
    // The first retry needs no permission from the policy; the later ones do.
    let again = ["Sleep", "Count", "Begin", "Create", "Rollback"];
    for (attempts, times, end) in [(1, 1, "ConflictPersisted"), (3, 3, "ConflictPersisted")] {
        let mut outcomes = in_one();
        for _ in 0..times {
            outcomes.extend(in_one());
        }
        outcomes.pop();
        let retry = RetryPolicy::new().with_attempts(attempts);
        let steps = walk_by(plan(Dialect::Mysql), retry, outcomes);
        let expected = [
            &["Count", "Begin", "Create", "Rollback"][..],
            &again.repeat(times),
            &[end],
        ];
        assert_eq!(steps, expected.concat());
    }
    let inside = with!(in_transaction; plan(Dialect::Postgres));
    walks!(inside, [Ok(0), Err(violation())] => "Count, Create, Diesel");
}

/// Any other error while a shard or a parent is created is returned at once, and work inside a transaction of our own
/// was not committed.
#[test]
fn only_a_race_is_looked_for_again() {
    let denied = || error("permission denied");
    walks!(plan(Dialect::Mysql), [Ok(0), Ok(0), Err(denied()), Ok(0)]
        => "Count, Begin, Create, Rollback, Diesel");
    let by_itself = vec![Ok(0), Err(denied())];
    walks!(plan(Dialect::Postgres), by_itself => "Count, Create, Diesel");
    let lost_by_itself = vec![Ok(0), Err(self::lost())];
    walks!(plan(Dialect::Postgres), lost_by_itself => "Count, Create, ConnectionLost");
    let inserts = with!(inserts; plan(Dialect::Mysql));
    let until_insert = || vec![Ok(0), Ok(0), Ok(0), Ok(0), Ok(0)];
    for other in [
        denied(),
        DieselError::DatabaseError(DatabaseErrorKind::NotNullViolation, Box::new(String::new())),
        // A range of the caller's own columns, which Diesel tells.
        DieselError::DatabaseError(DatabaseErrorKind::CheckViolation, Box::new(String::new())),
        error("Out of range value for column 'x' at row 1"),
    ] {
        let mut outcomes = until_insert();
        outcomes.extend([Err(other), Ok(0)]);
        walks!(inserts, outcomes, 5.. => "Insert, Rollback, Diesel");
    }
    let mut lost = vec![Ok(0), Ok(0), Ok(1)];
    lost.extend([Err(error("Server has gone away")), Ok(0)]);
    walks!(plan(Dialect::Mysql), lost => "Count, Begin, Create, Count, Rollback, ConnectionLost");
}

/// On MySQL a count that meets no row locks the gap: a transaction looks first, and counts the rows that exist alone.
#[test]
fn a_shard_that_is_found_is_not_created() {
    let inside = with!(in_transaction; plan(Dialect::Mysql));
    walks!(inside, [Ok(0), Ok(1)] => "FindMissing, Count, 1 counted");
    walks!(inside, [Ok(1), Ok(1), Ok(1)] => "FindMissing, Create, Count, 1 counted");
}

#[test]
fn a_filter_whose_shards_are_there_takes_one_or_two_statements() {
    let counts = |plan, outcomes: &[usize]| {
        let outcomes = outcomes.iter().copied().map(Ok).collect();
        walk(plan, outcomes)
    };
    for dialect in Dialect::ALL {
        assert_eq!(counts(by_filter(dialect), &[1]), ["CountOne", "1 counted"]);
    }
    let postgres = by_filter(Dialect::Postgres);
    assert_eq!(
        counts(postgres, &[0, 10]),
        ["CountOne", "CountAll", "10 counted"]
    );
    // No parent matches.
    assert_eq!(
        counts(postgres, &[0, 0, 0]),
        [&AT_ONCE[..], &["0 counted"]].concat()
    );
    // Drivers of the others do not tell the number of a query's rows.
    for dialect in [Dialect::Mysql, Dialect::Sqlite] {
        let steps = counts(by_filter(dialect), &[0]);
        assert_eq!(steps, ["CountOne", "Begin"]);
    }
}

#[test]
fn a_filter_that_finds_a_shard_missing_needs_a_transaction() {
    let outcomes = missing([Ok(0), Ok(2), Ok(3), Ok(0)]);
    let steps = walk(by_filter(Dialect::Postgres), outcomes);
    assert_eq!(steps[..3], AT_ONCE);
    assert_eq!(steps[3..], these("Begin, Create, Count, Commit, 3 counted"));
    // Inside the caller's, MySQL would lock the gap of a shard that is missing.
    for (dialect, first) in [(Dialect::Sqlite, "CountOne"), (Dialect::Mysql, "Create")] {
        let inside = with!(in_transaction; by_filter(dialect));
        assert_eq!(walk(inside, vec![Ok(1), Ok(1)])[0], first);
    }
}

#[test]
fn a_filter_that_matched_several_parents_is_not_taken_for_one() {
    struct Filter;
    let filter = |dialect| Plan {
        filter: Some(TypeId::of::<Filter>()),
        ..by_filter(dialect)
    };
    let first = |plan, outcomes: &[usize]| {
        let outcomes = outcomes.iter().copied().map(Ok).collect();
        walk(plan, outcomes).swap_remove(0)
    };
    assert_eq!(first(filter(Dialect::Postgres), &[0, 10]), "CountOne");
    assert_eq!(first(filter(Dialect::Mysql), &[0]), "Begin");
    assert_eq!(first(filter(Dialect::Postgres), &[1]), "CountAll");
    assert_eq!(first(filter(Dialect::Postgres), &[1]), "CountOne");
}

/// As MySQL does if the filter is about a total.
#[test]
fn a_filter_that_may_not_read_the_shards_takes_the_long_way() {
    let refused = error("You can't specify target table 'videos' for update in FROM clause");
    let outcomes = vec![Err(refused), Ok(0), Ok(1), Ok(1), Ok(0)];
    walks!(by_filter(Dialect::Mysql), outcomes => "CountOne, Begin, Create, Count, Commit, 1 counted");
}

#[test]
fn wanted_rows_come_with_the_count_on_postgres() {
    for by_key in [true, false] {
        let returning = Plan {
            by_key,
            returning: true,
            ..plan(Dialect::Postgres)
        };
        walks!(returning, [Ok(2)] => "CountAndLoad, 2 counted");
        walks!(returning, [Ok(0), Ok(0)] => "CountAndLoad, FindParent, 0 counted");
        walks!(returning, [Err(lost())] => "CountAndLoad, OutcomeUnknown");
        let unreadable = || DieselError::DeserializationError("no such colour".into());
        walks!(returning, [Err(unreadable())] => "CountAndLoad, CountedNotRead");
        let inside = with!(in_transaction; returning);
        walks!(inside, [Err(unreadable())] => "CountAndLoad, Diesel");
        let rounding = with!(loads_apart; returning);
        walks!(rounding, [] => "Begin");
    }
}

#[test]
fn wanted_rows_are_read_before_the_commit() {
    let by_key = with!(returning; plan(Dialect::Mysql));
    walks!(by_key, [Ok(0), Ok(1), Ok(1), Ok(0)] => "Begin, Count, Load, Commit, 1 counted");
    let by_filter = Plan {
        by_key: false,
        ..by_key
    };
    walks!(by_filter, [Ok(0), Ok(3), Ok(0), Ok(3), Ok(3), Ok(0)]
        => "Begin, Pick, Create, Count, Load, Commit, 3 counted");
    // The one parent is counted on before a shard is created.
    let one = [0, 1, 1, 1, 0].map(Ok);
    walks!(by_filter, one => "Begin, Pick, Count, Load, Commit, 1 counted");
    walks!(by_filter, [Ok(0), Ok(0), Ok(0)] => "Begin, Pick, Commit, 0 counted");
}

fn unique_violation() -> DieselError {
    let kind = DatabaseErrorKind::UniqueViolation;
    DieselError::DatabaseError(kind, Box::new(String::new()))
}

#[test]
fn a_missing_parent_is_inserted_and_then_counted_on() {
    let by_key = with!(inserts; plan(Dialect::Postgres));
    let outcomes = [0, 0, 0, 0, 0, 1, 1, 1, 0].map(Ok);
    walks!(by_key, outcomes
        => "Count, Begin, Create, Count, Count, InsertUnlessThere, Create, Count, Commit, 1 counted");
    // A savepoint takes the place of the transaction.
    let inside = with!(in_transaction; by_key);
    let outcomes = [0, 0, 0, 0, 0, 1, 1, 1, 0].map(Ok);
    let steps = walk(inside, outcomes.into());
    assert_eq!(steps[1], "Begin");
    let by_filter = Plan {
        by_key: false,
        returning: true,
        ..inside
    };
    let outcomes = [0, 0, 0, 1, 1, 0, 1, 1, 1, 0].map(Ok);
    walks!(by_filter, outcomes
        => "CountAndLoad, Begin, Pick, InsertUnlessThere, Pick, Count, Create, Count, Load, Commit, 1 counted");
}

#[test]
fn a_parent_that_another_one_inserted_is_looked_for_again() {
    let by_key = with!(inserts; plan(Dialect::Sqlite));
    let racing = || {
        let mut outcomes: Vec<_> = [0, 0, 0, 0, 0].map(Ok).into();
        outcomes.extend([Err(unique_violation()), Ok(0)]);
        outcomes
    };
    let mut outcomes = racing();
    outcomes.extend([Ok(0), Ok(1)]);
    walks!(by_key, RetryPolicy::never(), outcomes, 5.. => "Insert, Rollback, Sleep, Count, 1 counted");
    let mut again_and_again = racing();
    for _ in 0..3 {
        again_and_again.push(Ok(0));
        again_and_again.extend(racing());
    }
    let steps = walk_by(by_key, RetryPolicy::never(), again_and_again);
    assert_eq!(steps[steps.len() - 3..], these("Insert, Rollback, Diesel"));
}

/// PostgreSQL's insert does nothing; the row exists for the next statement, or the next insert reports why not.
#[test]
fn a_parent_that_is_there_by_now_is_counted_on() {
    let by_key = with!(inserts; plan(Dialect::Postgres));
    let outcomes = [0, 0, 0, 0, 0, 0, 1, 1, 0].map(Ok);
    walks!(by_key, outcomes, 5.. => "InsertUnlessThere, Create, Count, Commit, 1 counted");
    let outcomes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1].map(Ok);
    walks!(by_key, outcomes, 5.. => "InsertUnlessThere, Create, Count, Count, Insert, Create");
}

#[test]
fn a_parent_that_the_database_keeps_out_is_not_inserted_for_ever() {
    let by_key = with!(inserts; plan(Dialect::Sqlite));
    let steps = walk(by_key, [0; 7].map(Ok).into());
    assert_eq!(steps[5..], these("Insert, Commit, 0 counted"));
    let by_key = Plan {
        dialect: Dialect::Postgres,
        ..by_key
    };
    let steps = walk(by_key, [0; 11].map(Ok).into());
    assert_eq!(
        steps[5..],
        these("InsertUnlessThere, Create, Count, Count, Insert, Commit, 0 counted")
    );
}

#[test]
fn an_inserted_row_that_is_another_is_taken_back() {
    let by_key = with!(inserts; plan(Dialect::Postgres));
    let outcomes = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0].map(Ok);
    walks!(by_key, outcomes, 5.. => "InsertUnlessThere, Create, Count, Count, Rollback, InsertedOther");
}

#[test]
fn inside_the_callers_transaction_none_is_begun_and_nothing_is_retried() {
    let inside = |dialect| with!(in_transaction; plan(dialect));
    walks!(inside(Dialect::Postgres), [Ok(0), Ok(1), Ok(1)] => "Count, Create, Count, 1 counted");
    walks!(inside(Dialect::Mysql), [Ok(1), Ok(1), Ok(1)] => "FindMissing, Create, Count, 1 counted");
    walks!(inside(Dialect::Postgres), [Err(deadlock())] => "Count, Diesel");
}

#[test]
fn a_conflict_is_rolled_back_slept_on_and_tried_again() {
    let mut outcomes = missing([Ok(0), Err(deadlock()), Ok(0), Ok(0)]);
    outcomes.extend(missing([Ok(0), Ok(1), Ok(1), Ok(0)]));
    let steps = walk(by_filter(Dialect::Postgres), outcomes);
    let conflict = ["Begin", "Create", "Rollback", "Sleep"];
    let counted = ["Begin", "Create", "Count", "Commit", "1 counted"];
    assert_eq!(
        steps,
        [&AT_ONCE[..], &conflict, &AT_ONCE, &counted].concat()
    );
}

#[test]
fn conflicts_end_with_the_attempts() {
    walks!(plan(Dialect::Postgres), RetryPolicy::new().with_attempts(2),
        [Err(deadlock()), Ok(0), Ok(0), Err(deadlock()), Ok(0)]
        => "Count, LookInside, Sleep, Count, LookInside, ConflictPersisted");
}

#[test]
fn each_attempt_takes_a_fresh_shard() {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let retry = RetryPolicy::new()
        .with_jitter(false)
        .with_random(|| DRAWN.fetch_add(1, Ordering::Relaxed));
    let conflict = || [Err(deadlock()), Ok(0), Ok(0)]; // of the count, the look and the sleep
    let outcomes = std::iter::repeat_with(conflict).take(3).flatten().collect();
    let postgres = plan(Dialect::Postgres);
    let (_, shards) = walk_in(Process::this(), postgres, retry, script(outcomes));
    assert_eq!(shards[..3], [0, 1, 2]);
}

/// Advances by 5 ms each time it is read.
fn slow_clock() -> Instant {
    static READ: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    start + Duration::from_millis(5) * READ.fetch_add(1, Ordering::Relaxed) as u32
}

/// A process in which the last count on the key was slow.
fn suspicious(plan: Plan) -> &'static Process {
    let now = Instant::now();
    let process = Box::leak(Box::new(Process::new(4, now)));
    let attempts = Attempts::start(RetryPolicy::new());
    let mut choice = Choice::new(plan.subject(), process, &attempts);
    let kind = CountKind {
        commits: !plan.in_transaction,
        loads: false,
        claims: false,
    };
    for micros in [10, 10_000] {
        choice.took(Duration::from_micros(micros), kind, now);
    }
    drop(choice);
    process
}

#[test]
fn a_key_that_others_may_count_on_is_probed() {
    let locked = || error("could not obtain lock on row in relation \"videos_shards\"");
    let returning = with!(returning; adaptive());
    let probed =
        |plan, outcomes| walk_in(suspicious(plan), plan, RetryPolicy::new(), script(outcomes));
    for (plan, first) in [(adaptive(), "Count"), (returning, "CountAndLoad")] {
        for (outcome, takes_first) in [(Ok(1), true), (Ok(0), false), (Err(locked()), false)] {
            let (steps, shards) = probed(plan, vec![outcome]);
            assert_eq!(steps, ["Probe", first]);
            assert_eq!((shards[0], shards[1] == 0), (0, takes_first));
        }
    }
    let (steps, _) = probed(adaptive(), vec![Err(lost())]);
    assert_eq!(steps, ["Probe", "ConnectionLost"]);
    // The count fails by any other error too.
    let (steps, shards) = probed(adaptive(), vec![Err(error("permission denied"))]);
    assert_eq!(steps, ["Probe", "Count"]);
    assert_eq!(shards, [0, 0]);
    for never_probed in [
        with!(in_transaction; adaptive()),
        Plan {
            by_key: false,
            ..adaptive()
        },
        Plan {
            shard_choice: ShardChoice::Striped,
            ..adaptive()
        },
    ] {
        assert_ne!(probed(never_probed, vec![]).0, ["Probe"]);
    }
}

#[test]
fn a_slow_count_makes_its_key_suspect() {
    let process = Box::leak(Box::new(Process::new(4, Instant::now())));
    let count = |retry| walk_in(process, adaptive(), retry, script(vec![Ok(1)])).0;
    let counted = ["Count", "1 counted"];
    assert_eq!(count(RetryPolicy::new()), counted);
    assert_eq!(count(RetryPolicy::new().with_clock(slow_clock)), counted);
    assert_eq!(count(RetryPolicy::new()), ["Probe", "Count"]);
}

#[test]
fn a_conflict_leads_to_another_shard() {
    let process = Box::leak(Box::new(Process::new(4, Instant::now())));
    let conflict = || [Err(deadlock()), Ok(0), Ok(0)];
    let outcomes = std::iter::repeat_with(conflict).take(2).flatten().collect();
    let (steps, shards) = walk_in(process, adaptive(), RetryPolicy::new(), script(outcomes));
    let attempt = ["Count", "LookInside", "Sleep"];
    assert_eq!(steps, [&attempt[..], &attempt, &["Count"]].concat());
    assert_eq!(shards, [0, 2, 3]); // 1 + (4 + rank - 1) % 3
}

#[test]
fn a_connection_lost_is_an_unknown_outcome_only_where_the_count_may_be_committed() {
    walks!(plan(Dialect::Postgres), [Err(lost())] => "Count, OutcomeUnknown");
    let filter = by_filter(Dialect::Postgres);
    for (outcomes, last) in [
        (vec![Err(lost())], "CountOne"),
        (vec![Ok(0), Err(lost())], "CountAll"),
    ] {
        let steps = walk(filter, outcomes);
        assert_eq!(steps[steps.len() - 2..], [last, "OutcomeUnknown"]);
    }
    walks!(filter, missing([Ok(0), Ok(1), Err(lost()), Err(lost())]), 3..
        => "Begin, Create, Count, Rollback, ConnectionLost");
    walks!(filter, missing([Ok(0), Ok(1), Ok(1), Err(lost()), Ok(0)]), 3..
        => "Begin, Create, Count, Commit, Rollback, OutcomeUnknown");
}

#[test]
fn a_node_that_refuses_has_changed_nothing_and_one_that_lost_its_majority_may_have() {
    let refused = || error("WSREP has not yet prepared node for application use");
    let lost = || error("Error while appending streaming replication fragment");
    let filter = by_filter(Dialect::Mysql);
    for (failed, at_commit) in [
        (refused as fn() -> DieselError, "NodeNotReady"),
        (lost, "OutcomeUnknown"),
    ] {
        let steps = walk(plan(Dialect::Mysql), vec![Err(failed())]);
        assert_eq!(steps, ["Count", at_commit]);
        let outcomes = vec![Ok(0), Ok(0), Ok(1), Ok(1), Err(failed()), Err(refused())];
        let steps = walk(filter, outcomes);
        assert_eq!(steps[4..], ["Commit", "Rollback", at_commit]);
    }
}

#[test]
fn a_conflict_at_commit_is_tried_again() {
    let commit = DieselError::DatabaseError(
        DatabaseErrorKind::SerializationFailure,
        Box::new(String::new()),
    );
    walks!(by_filter(Dialect::Postgres), missing([Ok(0), Ok(1), Ok(1), Err(commit), Ok(0)]), 3..
        => "Begin, Create, Count, Commit, Rollback, Sleep");
}
