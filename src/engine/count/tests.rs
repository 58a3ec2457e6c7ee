//! Counts on a connection that follows a script.

use Dialect::{Mysql, Postgres, Sqlite};

use super::*;
use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::model::ShardedTable;
use crate::observe::{Observer, Scope};
use crate::placement::ShardChoice;
use diesel::connection::{Instrumentation, TransactionManagerStatus};
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryBuilder, QueryFragment, QueryId};
use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

fn facts(dialect: Dialect) -> Facts {
    Facts {
        by_key: true,
        returning: false,
        loads_apart: false,
        once: false,
        inserts: false,
        part_of: PartOf::Nothing,
        dialect,
        shard_choice: ShardChoice::Random,
        shards_table: crate::test_schema::videos::table::SHARDS_TABLE,
        columns: &[],
        key_columns: &[],
        fields: &[],
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

fn failed(kind: DatabaseErrorKind) -> DieselError {
    DieselError::DatabaseError(kind, Box::new(String::new()))
}

fn lost() -> DieselError {
    failed(DatabaseErrorKind::ClosedConnection)
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

    /// The outcome of the step that is being taken; pending forever at the script's end.
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
    /// The script of the running count, for its sleeps.
    static RUNNING: RefCell<Shared> = RefCell::default();
}

impl<DB: ShardedBackend + BackendOf<Connection>> Io for Scripted<DB> {
    type Conn = Connection;
    type Backend = DB;
    type Future<'c, T: 'c> = Local<'c, T>;

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
            Ok(older) if older.starts_with("SELECT 1 ") => {
                let is_inside = shared.script().is_inside;
                Box::pin(async move { Ok(usize::from(is_inside)) })
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

    fn instrumentation(_: &mut Connection) -> &mut dyn Instrumentation {
        unreachable!("nobody is admitted here")
    }

    fn set_instrumentation(_: &mut Connection, _: impl Instrumentation) {
        unreachable!("nobody is admitted here")
    }

    fn wait<'c, W>(wait: &'c mut W, patience: Duration) -> Local<'c, Option<W::Turn>>
    where
        W: crate::connection::wait::Waiting + Send,
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

struct ScriptedUpdate(Shared);

impl<DB> SendStatement<Scripted<DB>> for ScriptedUpdate
where
    Scripted<DB>: Io<Conn = Connection>,
{
    async fn send(&mut self, _: &mut Link<'_, Scripted<DB>>, step: Step) -> QueryResult<usize> {
        self.0.script().shards.push(step.shard);
        self.0.clone().outcome().await
    }
}

/// Records the steps.
struct Recorder(Shared);

impl Recorder {
    fn scope() -> Scope {
        observe::Transaction::begin(Dialect::Postgres, "own").scope()
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
            "probe" => "Probe",
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

/// Counts by a script, up to its end.
fn follow<DB>(process: &'static Process, facts: Facts, retry: RetryPolicy, shared: &Shared)
where
    Scripted<DB>: Io<Conn = Connection>,
{
    RUNNING.set(shared.clone());
    let conn = &mut Connection {
        shared: shared.clone(),
        status: TransactionManagerStatus::default(),
    };
    let link = &mut Link::<Scripted<DB>>::new(conn);
    let (update, recorder) = (
        &mut ScriptedUpdate(shared.clone()),
        Recorder(shared.clone()),
    );
    let counting = pin!(Counting::run(link, facts, retry, update, process, recorder));
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
    facts: Facts,
    retry: RetryPolicy,
    script: Script,
) -> (String, Vec<i32>) {
    let shared = Shared(Rc::new(RefCell::new(script)));
    match facts.dialect {
        Postgres => follow::<Pg>(process, facts, retry, &shared),
        Mysql => follow::<diesel::mysql::Mysql>(process, facts, retry, &shared),
        Sqlite => follow::<diesel::sqlite::Sqlite>(process, facts, retry, &shared),
    }
    let Script { steps, shards, .. } = shared.0.take();
    (steps.join(", "), shards)
}

fn script(outcomes: Vec<QueryResult<usize>>) -> Script {
    Script {
        outcomes: outcomes.into(),
        ..Default::default()
    }
}

/// The outcome of a step: the number of its rows, or an error.
trait Outcome {
    fn outcome(self) -> QueryResult<usize>;
}

impl Outcome for usize {
    fn outcome(self) -> QueryResult<usize> {
        Ok(self)
    }
}

impl Outcome for DieselError {
    fn outcome(self) -> QueryResult<usize> {
        Err(self)
    }
}

macro_rules! outcomes {
    ($($outcome:expr),*) => {
        vec![$(Outcome::outcome($outcome)),*]
    };
}

/// The steps of a count whose steps have these outcomes.
fn walk(facts: Facts, retry: RetryPolicy, outcomes: Vec<QueryResult<usize>>) -> String {
    walk_in(Process::this(), facts, retry, script(outcomes)).0
}

/// A count whose steps have these outcomes takes these steps, or begins or ends with them.
macro_rules! walks {
    ($facts:expr $(, $retry:expr)?; $($outcome:expr),* => .. $steps:literal) => {
        let steps = walk($facts, policy!($($retry)?), outcomes![$($outcome),*]);
        assert!(steps.ends_with(concat!(", ", $steps)), "{steps}");
    };
    ($facts:expr $(, $retry:expr)?; $($outcome:expr),* => $steps:literal ..) => {
        let steps = walk($facts, policy!($($retry)?), outcomes![$($outcome),*]);
        assert!(steps.starts_with(concat!($steps, ", ")), "{steps}");
    };
    ($facts:expr $(, $retry:expr)?; $($outcome:expr),* => $steps:expr) => {
        let steps = walk($facts, policy!($($retry)?), outcomes![$($outcome),*]);
        assert_eq!(steps, $steps);
    };
}

macro_rules! policy {
    () => {
        RetryPolicy::new()
    };
    ($retry:expr) => {
        $retry
    };
}

/// The same facts with these flags.
macro_rules! with {
    ($($flag:ident),+; $facts:expr) => {
        Facts { $($flag: true,)+ ..$facts }
    };
}

/// The same in the caller's transaction.
fn in_callers(facts: Facts) -> Facts {
    Facts {
        part_of: PartOf::CallersTransaction,
        ..facts
    }
}

fn adaptive() -> Facts {
    Facts {
        shard_choice: ShardChoice::Adaptive,
        ..facts(Postgres)
    }
}

fn by_filter(dialect: Dialect) -> Facts {
    Facts {
        by_key: false,
        ..facts(dialect)
    }
}

fn attempts(attempts: u32) -> RetryPolicy {
    RetryPolicy::new().with_attempts(attempts)
}

#[test]
fn a_shard_that_is_there_takes_one_statement() {
    walks!(facts(Postgres); 1 => "Count, 1 counted");
}

#[test]
fn a_count_that_claims_a_key_is_one_statement_whatever_it_meets() {
    let once = with!(once; facts(Postgres));
    walks!(once; 1 => "CountOnce, 1 counted");
    walks!(once; 0 => "CountOnce, 0 counted");
    walks!(once; deadlock(), 0, 0, 1 => "CountOnce, LookInside, Sleep, CountOnce, 1 counted");
    walks!(once; lost() => "CountOnce, OutcomeUnknown");
    // In a transaction that Diesel does not know.
    walks!(once; deadlock(), 1 => "CountOnce, LookInside, Diesel");
}

#[test]
fn a_missing_shard_is_created_in_one_transaction() {
    for dialect in [Mysql, Sqlite] {
        walks!(facts(dialect); 0, 0, 1, 1, 0 => "Count, Begin, Create, Count, Commit, 1 counted");
    }
}

/// PostgreSQL's transactions begin by checking whether there is one; a shard at zero needs none.
#[test]
fn a_missing_shard_is_created_by_one_statement_on_postgres() {
    walks!(facts(Postgres); 0, 1, 1 => "Count, Create, Count, 1 counted");
    // Another connection has created it, or there is no such parent.
    walks!(facts(Postgres); 0, 0, 1 => "Count, Create, Count, 1 counted");
    walks!(facts(Postgres); 0, 0, 0, 0 => "Count, Create, Count, FindParent, 0 counted");
    // The shards table compares the key in another way.
    walks!(facts(Postgres); 0, 1, 0, 1 => "Count, Create, Count, Count, 1 counted");
}

#[test]
fn a_shard_that_is_folded_away_is_created_again_and_held() {
    // It is removed three times.
    walks!(facts(Postgres); 0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0
        => "Count, Create, Count, Count, FindParent, Create, Count, Count, FindParent, \
            Create, Count, Count, FindParent, Begin, Create, Count, Commit, 1 counted");
}

/// MariaDB's update of joined tables reports no error if it is interrupted.
#[test]
fn a_filter_that_counted_on_too_few_is_attempted_again() {
    walks!(by_filter(Mysql), attempts(2); 0, 0, 2, 1, 0, 0, 0, 0, 2, 2, 0
        => "CountOne, Begin, Create, Count, Rollback, Sleep, CountOne, Begin, Create, Count, Commit, 2 counted");
}

/// A retry must not run where a transaction of the caller's was, if Diesel does not know of that transaction.
#[test]
fn a_conflict_of_a_statement_by_itself_is_looked_into_first() {
    for (dialect, conflict) in [
        (Postgres, "deadlock detected"),
        (
            Mysql,
            "Lock wait timeout exceeded; try restarting transaction",
        ),
        (Sqlite, "database is locked"),
    ] {
        let (facts, conflict) = (facts(dialect), || error(conflict));
        let retried = "Count, LookInside, Sleep, Count, 1 counted";
        walks!(facts, attempts(2); conflict(), 0, 0, 1 => retried);
        walks!(facts, attempts(2); conflict(), error("interrupted"), 0, 0, 1 => retried);
        let inside = "Count, LookInside, Diesel";
        walks!(facts, attempts(2); conflict(), 1 => inside);
        walks!(facts, attempts(2); conflict(), lost() => inside); // nobody can tell
    }
    for (dialect, text, is_ended) in [
        (Mysql, "Deadlock found when trying to get lock", true),
        (
            Mysql,
            "Record has changed since last read in table 't'",
            true,
        ),
        (Mysql, "Lock wait timeout exceeded", false),
        (Postgres, "deadlock detected", false),
    ] {
        let failure = AttemptError::<DieselError>::Commit(error(text));
        let ended = failure.ended_transaction(dialect) == Some(true);
        assert_eq!(ended, is_ended, "{text}");
    }
}

/// The error may come from a proxy that has lost its server.
#[test]
fn what_is_not_known_to_have_failed_is_unknown() {
    let (odd, violated) = (
        || error("no idea"),
        || failed(DatabaseErrorKind::UniqueViolation),
    );
    for dialect in [Postgres, Mysql, Sqlite] {
        let facts = facts(dialect);
        walks!(facts; odd(), 0 => "Count, LookInside, Diesel");
        walks!(facts; odd(), lost() => "Count, LookInside, OutcomeUnknown");
        walks!(facts; DieselError::NotFound => "Count, Diesel");
    }
    walks!(facts(Postgres); violated() => "Count, Diesel");
    walks!(facts(Mysql); violated() => "Count, Diesel");
    walks!(facts(Sqlite); violated(), 1 => "Count, LookInside, OutcomeUnknown"); // `FAIL` keeps it
    walks!(facts(Sqlite); error("no such table: videos_shards") => "Count, Diesel");
    // A `COMMIT` of MySQL's may fail after others have it.
    walks!(by_filter(Mysql); 0, 0, 1, 1, odd(), 0 => .. "Commit, Rollback, OutcomeUnknown");
}

#[test]
fn a_savepoint_in_an_unknown_transaction_is_the_callers() {
    let inside = Script {
        is_inside: true,
        ..script(outcomes![0, 0, 1, deadlock(), 0])
    };
    let (steps, _) = walk_in(
        Process::this(),
        by_filter(Postgres),
        RetryPolicy::new(),
        inside,
    );
    assert_eq!(
        steps,
        "CountOne, CountAll, FindParent, Begin, Create, Rollback, Diesel"
    );
}

#[test]
fn a_missing_parent_counts_nothing() {
    // The second count compares the key as the parent's table does.
    walks!(facts(Sqlite); 0, 0, 0, 0, 0, 0 => "Count, Begin, Create, Count, Count, Commit, 0 counted");
}

#[test]
fn what_an_attempt_counted_is_forgotten_when_it_is_taken_back() {
    let returning = with!(returning, loads_apart; by_filter(Postgres));
    // The conflict is at COMMIT, and the second attempt picks no row.
    walks!(returning; 0, 1, 1, 1, deadlock(), 0, 0, 0, 0, 0 => .. "Commit, 0 counted");
}

#[test]
fn a_parent_deleted_meanwhile_is_looked_for_again() {
    let violation = || failed(DatabaseErrorKind::ForeignKeyViolation);
    walks!(facts(Postgres); 0, violation(), 0, 0 => "Count, Create, LookInside, Sleep, Count");
    walks!(facts(Mysql); 0, 0, violation(), 0, 0 => "Count, Begin, Create, Rollback, Sleep, Count");
    // The first retry needs no permission from the policy; the later ones do.
    walks!(facts(Mysql), attempts(1); 0, 0, violation(), 0, 0, 0, 0, violation(), 0
        => "Count, Begin, Create, Rollback, Sleep, Count, Begin, Create, Rollback, ConflictPersisted");
    walks!(facts(Mysql), attempts(2); 0, 0, violation(), 0, 0, 0, 0, violation(), 0, 0, 0, 0, violation(), 0
        => "Count, Begin, Create, Rollback, Sleep, Count, Begin, Create, Rollback, \
            Sleep, Count, Begin, Create, Rollback, ConflictPersisted");
    let inside = in_callers(facts(Postgres));
    walks!(inside; 0, violation() => "Count, Create, Diesel");
}

/// Any other error while a shard or a parent is created is returned at once, and work inside a transaction of our own
/// was not committed.
#[test]
fn only_a_race_is_looked_for_again() {
    let denied = || error("permission denied");
    walks!(facts(Mysql); 0, 0, denied(), 0 => "Count, Begin, Create, Rollback, Diesel");
    walks!(facts(Postgres); 0, denied() => "Count, Create, Diesel");
    walks!(facts(Postgres); 0, lost() => "Count, Create, ConnectionLost");
    let inserts = with!(inserts; facts(Mysql));
    for other in [
        denied(),
        failed(DatabaseErrorKind::NotNullViolation),
        // A range of the caller's own columns, which Diesel reports.
        failed(DatabaseErrorKind::CheckViolation),
        error("Out of range value for column 'x' at row 1"),
    ] {
        walks!(inserts; 0, 0, 0, 0, 0, other, 0 => .. "Insert, Rollback, Diesel");
    }
    walks!(facts(Mysql); 0, 0, 1, error("Server has gone away"), 0
        => "Count, Begin, Create, Count, Rollback, ConnectionLost");
}

/// On MySQL a count that meets no row locks the gap: a transaction looks first, and counts only the rows that exist.
#[test]
fn a_shard_that_is_found_is_not_created() {
    let inside = in_callers(facts(Mysql));
    walks!(inside; 0, 1 => "FindMissing, Count, 1 counted");
    walks!(inside; 1, 1, 1 => "FindMissing, Create, Count, 1 counted");
}

#[test]
fn a_filter_whose_shards_are_there_takes_one_or_two_statements() {
    for dialect in Dialect::ALL {
        walks!(by_filter(dialect); 1 => "CountOne, 1 counted");
    }
    walks!(by_filter(Postgres); 0, 10 => "CountOne, CountAll, 10 counted");
    // No parent matches.
    walks!(by_filter(Postgres); 0, 0, 0 => "CountOne, CountAll, FindParent, 0 counted");
    // Drivers of the others do not report the number of a query's rows.
    for dialect in [Mysql, Sqlite] {
        walks!(by_filter(dialect); 0 => "CountOne, Begin");
    }
}

#[test]
fn a_filter_that_finds_a_shard_missing_needs_a_transaction() {
    walks!(by_filter(Postgres); 0, 0, 1, 0, 2, 3, 0
        => "CountOne, CountAll, FindParent, Begin, Create, Count, Commit, 3 counted");
    // Inside the caller's, MySQL would lock the gap of a shard that is missing.
    walks!(in_callers(by_filter(Sqlite)); 1, 1 => "CountOne" ..);
    walks!(in_callers(by_filter(Mysql)); 1, 1 => "Create" ..);
}

/// As MySQL does if the filter is about a total.
#[test]
fn a_filter_that_may_not_read_the_shards_takes_the_long_way() {
    let refused = error("You can't specify target table 'videos' for update in FROM clause");
    walks!(by_filter(Mysql); refused, 0, 1, 1, 0 => "CountOne, Begin, Create, Count, Commit, 1 counted");
}

#[test]
fn wanted_rows_come_with_the_count_on_postgres() {
    for by_key in [true, false] {
        let returning = Facts {
            by_key,
            returning: true,
            ..facts(Postgres)
        };
        walks!(returning; 2 => "CountAndLoad, 2 counted");
        walks!(returning; 0, 0 => "CountAndLoad, FindParent, 0 counted");
        walks!(returning; lost() => "CountAndLoad, OutcomeUnknown");
        let unreadable = || DieselError::DeserializationError("no such colour".into());
        walks!(returning; unreadable() => "CountAndLoad, CountedNotRead");
        walks!(in_callers(returning); unreadable() => "CountAndLoad, Diesel");
        walks!(with!(loads_apart; returning); => "Begin"); // its rows round
    }
}

#[test]
fn wanted_rows_are_read_before_the_commit() {
    let by_key = with!(returning; facts(Mysql));
    walks!(by_key; 0, 1, 1, 0 => "Begin, Count, Load, Commit, 1 counted");
    let by_filter = with!(returning; by_filter(Mysql));
    walks!(by_filter; 0, 3, 0, 3, 3, 0 => "Begin, Pick, Create, Count, Load, Commit, 3 counted");
    // The one parent is counted on before a shard is created.
    walks!(by_filter; 0, 1, 1, 1, 0 => "Begin, Pick, Count, Load, Commit, 1 counted");
    walks!(by_filter; 0, 0, 0 => "Begin, Pick, Commit, 0 counted");
}

#[test]
fn a_missing_parent_is_inserted_and_then_counted_on() {
    let by_key = with!(inserts; facts(Postgres));
    walks!(by_key; 0, 0, 0, 0, 0, 1, 1, 1, 0
        => "Count, Begin, Create, Count, Count, InsertUnlessThere, Create, Count, Commit, 1 counted");
    // A savepoint takes the place of the transaction.
    let inside = in_callers(by_key);
    walks!(inside; 0, 0, 0, 0, 0, 1, 1, 1, 0 => "Count, Begin" ..);
    let by_filter = in_callers(with!(inserts, returning; by_filter(Postgres)));
    walks!(by_filter; 0, 0, 0, 1, 1, 0, 1, 1, 1, 0
        => "CountAndLoad, Begin, Pick, InsertUnlessThere, Pick, Count, Create, Count, Load, Commit, 1 counted");
}

#[test]
fn a_parent_that_another_one_inserted_is_looked_for_again() {
    let by_key = with!(inserts; facts(Sqlite));
    let taken = || failed(DatabaseErrorKind::UniqueViolation);
    walks!(by_key, RetryPolicy::never(); 0, 0, 0, 0, 0, taken(), 0, 0, 1
        => .. "Insert, Rollback, Sleep, Count, 1 counted");
    let mut again_and_again = outcomes![0, 0, 0, 0, 0, taken(), 0];
    for _ in 0..3 {
        again_and_again.extend(outcomes![0, 0, 0, 0, 0, 0, taken(), 0]);
    }
    let steps = walk(by_key, RetryPolicy::never(), again_and_again);
    assert!(steps.ends_with("Insert, Rollback, Diesel"), "{steps}");
}

/// PostgreSQL's insert does nothing; the row exists for the next statement, or the next insert reports why not.
#[test]
fn a_parent_that_is_there_by_now_is_counted_on() {
    let by_key = with!(inserts; facts(Postgres));
    walks!(by_key; 0, 0, 0, 0, 0, 0, 1, 1, 0 => .. "InsertUnlessThere, Create, Count, Commit, 1 counted");
    walks!(by_key; 0, 0, 0, 0, 0, 0, 0, 0, 0, 1
        => .. "InsertUnlessThere, Create, Count, Count, Insert, Create");
}

#[test]
fn a_parent_that_is_kept_out_is_not_inserted_for_ever() {
    let by_key = |dialect| with!(inserts; facts(dialect));
    walks!(by_key(Sqlite); 0, 0, 0, 0, 0, 0, 0 => .. "Insert, Commit, 0 counted");
    walks!(by_key(Postgres); 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        => .. "InsertUnlessThere, Create, Count, Count, Insert, Commit, 0 counted");
}

#[test]
fn an_inserted_row_that_is_another_is_taken_back() {
    walks!(with!(inserts; facts(Postgres)); 0, 0, 0, 0, 0, 1, 0, 0, 0, 0
        => .. "InsertUnlessThere, Create, Count, Count, Rollback, InsertedOther");
}

#[test]
fn inside_the_callers_transaction_nothing_is_retried() {
    let inside = in_callers(facts(Postgres));
    walks!(inside; 0, 1, 1 => "Count, Create, Count, 1 counted");
    walks!(inside; deadlock() => "Count, Diesel");
}

#[test]
fn a_conflict_is_rolled_back_slept_on_and_tried_again() {
    walks!(by_filter(Postgres); 0, 0, 1, 0, deadlock(), 0, 0, 0, 0, 1, 0, 1, 1, 0
        => "CountOne, CountAll, FindParent, Begin, Create, Rollback, Sleep, \
            CountOne, CountAll, FindParent, Begin, Create, Count, Commit, 1 counted");
}

#[test]
fn conflicts_end_with_the_attempts() {
    walks!(facts(Postgres), attempts(2); deadlock(), 0, 0, deadlock(), 0
        => "Count, LookInside, Sleep, Count, LookInside, ConflictPersisted");
}

/// This many counts that each meet a conflict, with the looks and the sleeps in between.
fn conflicts(times: usize) -> Script {
    let conflict = || outcomes![deadlock(), 0, 0];
    script(
        std::iter::repeat_with(conflict)
            .take(times)
            .flatten()
            .collect(),
    )
}

#[test]
fn each_attempt_takes_a_fresh_shard() {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let retry = RetryPolicy::new()
        .with_jitter(false)
        .with_random(|| DRAWN.fetch_add(1, Ordering::Relaxed));
    let (_, shards) = walk_in(Process::this(), facts(Postgres), retry, conflicts(3));
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
fn after_a_slow_count(facts: Facts) -> &'static Process {
    let now = Instant::now();
    let process = Box::leak(Box::new(Process::new(4)));
    let attempts = Attempts::start(RetryPolicy::new());
    let mut choice = Choice::new(facts.subject(), process, &attempts);
    let kind = CountKind {
        commits: facts.part_of == PartOf::Nothing,
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
    let probed = |facts, outcomes| {
        walk_in(
            after_a_slow_count(facts),
            facts,
            RetryPolicy::new(),
            script(outcomes),
        )
    };
    let returning = with!(returning; adaptive());
    for (facts, steps) in [
        (adaptive(), "Probe, Count"),
        (returning, "Probe, CountAndLoad"),
    ] {
        for (outcome, takes_first) in [(Ok(1), true), (Ok(0), false), (Err(locked()), false)] {
            let (walked, shards) = probed(facts, vec![outcome]);
            assert_eq!(walked, steps);
            assert_eq!((shards[0], shards[1] == 0), (0, takes_first));
        }
    }
    assert_eq!(
        probed(adaptive(), outcomes![lost()]).0,
        "Probe, ConnectionLost"
    );
    // The count meets any other error too.
    let denied = probed(adaptive(), outcomes![error("permission denied")]);
    assert_eq!(denied, ("Probe, Count".to_owned(), vec![0, 0]));
    for never_probed in [
        in_callers(adaptive()),
        Facts {
            by_key: false,
            ..adaptive()
        },
        Facts {
            shard_choice: ShardChoice::Striped,
            ..adaptive()
        },
    ] {
        assert_ne!(probed(never_probed, vec![]).0, "Probe");
    }
}

#[test]
fn a_slow_count_is_followed_by_a_probe() {
    let process = Box::leak(Box::new(Process::new(4)));
    let count = |retry| walk_in(process, adaptive(), retry, script(outcomes![1])).0;
    assert_eq!(count(RetryPolicy::new()), "Count, 1 counted");
    let slow = RetryPolicy::new().with_clock(slow_clock);
    assert_eq!(count(slow), "Count, 1 counted");
    assert_eq!(count(RetryPolicy::new()), "Probe, Count");
}

#[test]
fn a_conflict_leads_to_another_shard() {
    let process = Box::leak(Box::new(Process::new(4)));
    let (steps, shards) = walk_in(process, adaptive(), RetryPolicy::new(), conflicts(2));
    assert_eq!(
        steps,
        "Count, LookInside, Sleep, Count, LookInside, Sleep, Count"
    );
    assert_eq!(shards, [0, 2, 3]); // from 4 % 3 on, after the first
}

#[test]
fn a_lost_connection_is_unknown_where_it_may_have_committed() {
    walks!(facts(Postgres); lost() => "Count, OutcomeUnknown");
    let filter = by_filter(Postgres);
    walks!(filter; lost() => "CountOne, OutcomeUnknown");
    walks!(filter; 0, lost() => "CountOne, CountAll, OutcomeUnknown");
    walks!(filter; 0, 0, 1, 0, 1, lost(), lost() => .. "Begin, Create, Count, Rollback, ConnectionLost");
    walks!(filter; 0, 0, 1, 0, 1, 1, lost(), 0
        => .. "Begin, Create, Count, Commit, Rollback, OutcomeUnknown");
}

#[test]
fn a_node_that_refuses_has_changed_nothing() {
    let refused = || error("WSREP has not yet prepared node for application use");
    let lost = || error("Error while appending streaming replication fragment");
    let filter = by_filter(Mysql);
    walks!(facts(Mysql); refused() => "Count, NodeNotReady");
    walks!(facts(Mysql); lost() => "Count, OutcomeUnknown");
    walks!(filter; 0, 0, 1, 1, refused(), refused() => .. "Commit, Rollback, NodeNotReady");
    walks!(filter; 0, 0, 1, 1, lost(), refused() => .. "Commit, Rollback, OutcomeUnknown");
}

#[test]
fn a_conflict_at_commit_is_tried_again() {
    let conflict = failed(DatabaseErrorKind::SerializationFailure);
    walks!(by_filter(Postgres); 0, 0, 1, 0, 1, 1, conflict, 0
        => .. "Begin, Create, Count, Commit, Rollback, Sleep");
}
