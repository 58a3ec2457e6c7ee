//! A proxy cuts the connection of a call at each of its requests in turn: before the request reaches the server, or before the answer
//! reaches the client.
//!
//! Each kind of call is repeated on rows of its own, and cut one request later each time, until it completes. It is made on a new
//! connection, where a request of its own prepares each statement, and on a connection that made the same call before. So the cuts
//! hit BEGIN, every statement and COMMIT, each before and after it is sent.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use diesel::prelude::*;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{Counter, Error, RowCounter, fold, set_total, update};
use diesel_sharded_tests::proxy::{Cut, Proxy};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::Fault;
use crate::backend::{Backend, ChaosConnection};
use crate::place::Place;
use crate::report::Line;
use crate::schema::chaos_rows::dsl::*;
use crate::schema::{chaos_rows, chaos_tokens};
use crate::sql_store::coalescer;
use crate::{on_each_connection, until, with_connection};

pub const FAULT: Fault = Fault {
    name: "connection-cut",
    about: "a proxy cuts the connection at every request of a call; with an idempotency key it counts exactly once, without one never twice",
    backends: &Backend::SERVERS,
    rounds: (1000, 60),
    run: |line| with_connection!(line.backend, Conn => run_on::<Conn>(line)),
};

/// How a call is made, and where it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    call: Call,
    keyed: bool,
    /// The connection has made the same call before.
    warm: bool,
    after_it_was_sent: bool,
}

impl Way {
    fn all() -> Vec<Way> {
        let mut ways = vec![];
        for &call in Call::value_variants() {
            for bits in 0..8 {
                let way = Way {
                    call,
                    keyed: bits & 4 != 0,
                    warm: bits & 2 != 0,
                    after_it_was_sent: bits & 1 != 0,
                };
                // A coalescer keeps its connection as long as it is not cut.
                let is_one = !way.keyed || call.takes_a_key();
                if is_one && (way.warm || !call.is_coalesced()) {
                    ways.push(way);
                }
            }
        }
        ways
    }

    fn cut(self) -> Cut {
        match self.after_it_was_sent {
            true => Cut::BeforeTheAnswer,
            false => Cut::BeforeTheRequest,
        }
    }
}

fn run_on<Conn: Cuttable>(line: &mut Line) {
    let place = Place::new(line.backend);
    let (proxy, url) = Proxy::before(&place.url);
    let mut judge = Judge::<Conn> {
        conn: place.connect(),
        proxy,
        coalescer: None,
        url,
        targets: 0,
        commits: 0,
        told: vec![],
    };
    let mut cut_at: BTreeMap<Call, u32> = BTreeMap::new();
    let mut ways = Way::all();
    ways.shuffle(&mut SmallRng::seed_from_u64(line.extent.seed));
    let mut ways = ways.into_iter().cycle();
    while line.goes_on() {
        let way = ways.next().expect("a circle");
        let mut request = 0;
        while judge.play(way, request, line) {
            request += 1;
            line.rounds += 1;
            *cut_at.entry(way.call).or_default() += 1;
        }
    }
    judge.look_again(line);
    if judge.commits == 0 && !line.extent.short {
        line.find("no COMMIT was cut".into());
    }
    let cut_at = cut_at
        .iter()
        .map(|(call, cuts)| format!("{cuts} of {call:?}"));
    let cut_at = cut_at.collect::<Vec<_>>().join(", ");
    line.remark(format!("cuts: {cut_at}; {} at a COMMIT", judge.commits));
}

/// Whether the loss of a request may show at a COMMIT: the request is the COMMIT, or one that surrounds it on MySQL. One of those has
/// no answer, so its loss shows at the COMMIT behind it. With the others Diesel switches to a mode that sends the COMMIT as text.
fn commits(request: &[u8]) -> bool {
    request.windows(6).any(|text| text == b"COMMIT") || is_housekeeping(request)
}

/// Whether a request of MySQL's may be lost without harm if it is the last of a call: the server does not answer it, or it only
/// switches back the mode for the COMMIT, or it ends a guard.
fn is_housekeeping(request: &[u8]) -> bool {
    const ENDS_A_GUARD: &[u8] = b"@diesel_sharded_autocommit = NULL";
    const COM_STMT_CLOSE: u8 = 0x19;
    const COM_SET_OPTION: u8 = 0x1b;
    let mysql = request.get(4);
    request.ends_with(ENDS_A_GUARD)
        || mysql.is_some_and(|command| [COM_STMT_CLOSE, COM_SET_OPTION].contains(command))
}

struct Judge<Conn: Cuttable> {
    /// A connection that bypasses the proxy.
    conn: Conn,
    proxy: Proxy,
    url: String,
    coalescer: Option<Coalescer<Conn>>,
    targets: i64,
    /// The number of cuts at a COMMIT.
    commits: u32,
    /// The state that every call left behind.
    told: Vec<(Way, Target, State)>,
}

impl<Conn: Cuttable> Judge<Conn> {
    fn target(&mut self, call: Call) -> Target {
        self.targets += 1;
        let target = Target(self.targets);
        self.conn.prepare(call, target);
        target
    }

    /// Makes one call and cuts it at this request. Returns whether the call got that far.
    fn play(&mut self, way: Way, request: u32, line: &mut Line) -> bool {
        let target = self.target(way.call);
        let before = self.conn.state(way.call, target);
        let cuts = self.proxy.cuts();
        let mut told = match way.call.is_coalesced() {
            true => self.coalesce(way, target, request),
            false => self.call(way, target, request),
        };
        let was_cut = self.proxy.cuts() > cuts;
        let last = self.proxy.last_request();
        let cut = String::from_utf8_lossy(&last);
        let at = format!("{way:?}, cut at request {request}, {cut:?}");
        if was_cut {
            *match &told {
                Ok(()) => &mut line.ok,
                Err(Error::OutcomeUnknown { .. }) => &mut line.unknown,
                Err(_) => &mut line.failed,
            } += 1;
        }
        if was_cut && !way.call.is_coalesced() {
            self.commits += u32::from(commits(&last));
            // The caller must hear of any other lost request, and none is sent again.
            if told.is_ok() && !is_housekeeping(&last) {
                line.find(format!("{at}: no error was reported"));
            }
        }
        if let Err(Error::OutcomeUnknown { .. }) = told
            && way.call.is_a_transaction(way.keyed)
            && !commits(&last)
        {
            line.find(format!("{at}: {told:?} before its commit"));
        }
        if way.keyed && !way.call.is_coalesced() {
            // The call is repeated until it reports its outcome, and then once more.
            let patience = Instant::now() + Duration::from_secs(60);
            while let Err(Error::OutcomeUnknown { .. } | Error::ConnectionLost { .. }) = told {
                let is_patient = Instant::now() < patience;
                assert!(is_patient, "{way:?} never reports its outcome");
                told = self.connect().call(way.call, target, true);
            }
            if told.is_ok() {
                told = self.connect().call(way.call, target, true);
            }
        }
        if !way.call.is_coalesced() {
            self.wait_for_the_server();
        }
        let after = before.after(way.call);
        let is = self.conn.state(way.call, target);
        line.reads += 1;
        let allowed: &[State] = match (&told, way.call) {
            (Ok(()), _) => &[after],
            (Err(_), Call::Coalesced | Call::CoalescedTogether) => &[],
            (Err(_), _) if way.keyed => &[],
            (Err(Error::OutcomeUnknown { .. }), _) => &[before, after],
            (Err(Error::ConnectionLost { .. }), _) => &[before],
            // Statements in a caller's closure report Diesel's errors.
            (Err(Error::Diesel(_)), Call::Transaction) => &[before],
            (Err(_), _) => &[],
        };
        if !allowed.contains(&is) {
            let states = format!("the state was {before:?} and is {is:?}");
            line.find(format!("{at} ({was_cut}): {told:?}; {states}"));
        }
        self.told.push((way, target, is));
        was_cut
    }

    fn connect(&self) -> Conn {
        Conn::establish(&self.url).expect("a connection through the proxy")
    }

    fn call(&mut self, way: Way, target: Target, request: u32) -> Result<(), Error> {
        let mut conn = self.connect();
        if way.warm {
            let other = self.target(way.call);
            conn.call(way.call, other, way.keyed)?;
        }
        self.proxy.cut_after(request, way.cut());
        let told = conn.call(way.call, target, way.keyed);
        self.proxy.cut_no_more(); // closing the connection is not part of the call
        told
    }

    fn coalesce(&mut self, way: Way, target: Target, request: u32) -> Result<(), Error> {
        let coalescer = self.coalescer.take().unwrap_or_else(|| {
            coalescer(&self.url, Duration::from_secs(60)).expect("a coalescer through the proxy")
        });
        let coalescer = self.coalescer.insert(coalescer).clone();
        let other = self.target(way.call);
        Conn::call_coalesced(&coalescer, way.call, other, way.keyed)?;
        self.proxy.cut_after(request, way.cut());
        let told = Conn::call_coalesced(&coalescer, way.call, target, way.keyed);
        self.proxy.cut_no_more();
        told
    }

    /// Waits until the server has closed all connections through the proxy. Then it has committed or rolled back all requests.
    fn wait_for_the_server(&mut self) {
        self.coalescer = None;
        until("connections that were cut are closed", || {
            self.conn.others().expect("the server answers") == 0
        });
    }

    /// Checks that no call had an effect after its end.
    fn look_again(&mut self, line: &mut Line) {
        self.wait_for_the_server();
        for (way, target, was) in std::mem::take(&mut self.told) {
            let is = self.conn.state(way.call, target);
            if is != was {
                line.find(format!(
                    "{way:?}: the state was {was:?} at its end and is {is:?} later"
                ));
            }
        }
    }
}

/// `views` of every row at the beginning, the amount that is added, and the total that is set.
const BASE: i64 = 1000;
const ADDED: i64 = 5;
const SET: i64 = 7777;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Call {
    /// A count on one row by its key. One statement, which commits by itself, if the shard is there.
    CountByKey,
    /// A count on two rows by a filter: statements that commit by themselves, or a transaction.
    CountByFilter,
    /// A count that inserts the row.
    OrInsert,
    /// The first count by a name.
    Named,
    /// A count that returns the row.
    GetResult,
    /// A transaction of the caller's with several counts.
    Transaction,
    SetTotal,
    Fold,
    /// A count on one row through the coalescer: one statement.
    Coalesced,
    /// Counts on two rows and a name, at once, through the coalescer: a transaction.
    CoalescedTogether,
}

impl Call {
    /// Whether it is always a transaction whose COMMIT is sent as text, so that only that can leave the outcome unknown.
    fn is_a_transaction(self, keyed: bool) -> bool {
        match self {
            Call::Transaction | Call::SetTotal | Call::Fold => true,
            Call::CountByFilter | Call::GetResult => keyed,
            _ => false,
        }
    }

    fn is_coalesced(self) -> bool {
        matches!(self, Call::Coalesced | Call::CoalescedTogether)
    }

    fn takes_a_key(self) -> bool {
        !matches!(self, Call::Transaction | Call::SetTotal | Call::Fold)
    }
}

/// The two rows and the name that one call uses.
#[derive(Debug, Clone, Copy)]
struct Target(i64);

impl Target {
    fn row(self) -> i64 {
        2 * self.0
    }

    fn other_row(self) -> i64 {
        2 * self.0 + 1
    }

    fn name(self) -> String {
        format!("cut {}", self.0)
    }

    /// The idempotency key or the token of a count.
    fn key(self, n: usize) -> String {
        format!("cut {}, {n}", self.0)
    }
}

/// The values that a call may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct State {
    row: Option<i64>,
    other_row: Option<i64>,
    named: i64,
    tokens: i64,
    /// The plain column of the row that is folded.
    base: Option<i64>,
}

impl State {
    fn after(mut self, call: Call) -> State {
        let add = |total: &mut Option<i64>| *total = Some(total.unwrap_or(0) + ADDED);
        match call {
            Call::CountByKey | Call::OrInsert | Call::GetResult | Call::Coalesced => {
                add(&mut self.row);
            }
            Call::CountByFilter => {
                add(&mut self.row);
                add(&mut self.other_row);
            }
            Call::Named => self.named += ADDED,
            Call::Transaction | Call::CoalescedTogether => {
                add(&mut self.row);
                add(&mut self.other_row);
                self.named += ADDED;
                self.tokens += i64::from(call == Call::Transaction);
            }
            Call::SetTotal => self.row = Some(SET),
            Call::Fold => self.base = self.row,
        }
        self
    }
}

/// Fails unless so many rows were counted.
fn exactly(there: usize, counted: usize) -> Result<(), Error> {
    let text = format!("{counted} rows counted of {there}");
    let error = diesel::result::Error::QueryBuilderError(text.into());
    (counted == there).then_some(()).ok_or(Error::Diesel(error))
}

on_each_connection! {
    /// A connection with the calls of this fault.
    trait Cuttable {
        /// Makes the call, with an idempotency key or without one.
        fn call(&mut self, call: Call, target: Target, keyed: bool) -> Result<(), Error> {
            let conn = self;
            let key = target.key(0);
            let by_key = || update(chaos_rows.find(target.row())).set(views.eq(views + ADDED));
            macro_rules! send {
                ($count:expr, $send:ident) => {
                    match keyed {
                        false => $count.$send(conn)?,
                        true => $count.idempotency_key(key).$send(conn)?,
                    }
                };
            }
            match (call, keyed) {
                (Call::CountByKey, _) => exactly(1, send!(by_key(), execute)),
                (Call::CountByFilter, _) => {
                    let rows = chaos_rows.filter(team.eq(target.0));
                    exactly(2, send!(update(rows).set(views.eq(views + ADDED)), execute))
                }
                (Call::OrInsert, _) => {
                    let row = (chaos_rows::id.eq(target.row()), views.eq(0), likes.eq(0));
                    exactly(1, send!(by_key().or_insert(row), execute))
                }
                (Call::Named, false) => {
                    Counter::named(target.name()).add(ADDED, conn)?;
                    Ok(())
                }
                (Call::Named, true) => {
                    let counter = Counter::named(target.name());
                    exactly(1, counter.idempotency_key(key).add(ADDED, conn)?)
                }
                (Call::GetResult, _) => {
                    let count = by_key().returning((id, views.total()));
                    let (_, total): (i64, i64) = send!(count, get_result);
                    exactly((BASE + ADDED) as usize, total as usize)
                }
                (Call::Transaction, _) => {
                    let counted: QueryResult<usize> = retry::transaction(conn, RetryPolicy::default(), |conn| {
                        diesel::insert_into(chaos_tokens::table)
                            .values(chaos_tokens::token.eq(&key))
                            .execute(conn)?;
                        let counted = by_key().execute(conn)?;
                        Counter::named(target.name()).add(ADDED, conn)?;
                        let other = update(chaos_rows.find(target.other_row()));
                        Ok(counted + other.set(views.eq(views + ADDED)).execute(conn)?)
                    });
                    exactly(2, counted?)
                }
                (Call::SetTotal, _) => {
                    exactly(1, set_total(chaos_rows.find(target.row()), views, SET).execute(conn)?)
                }
                (Call::Fold, _) => {
                    fold(chaos_rows.find(target.row())).run(conn)?;
                    Ok(())
                }
                (Call::Coalesced | Call::CoalescedTogether, _) => {
                    unreachable!("the coalescer makes these calls")
                }
            }
        }

        /// Makes the call through a coalescer.
        fn call_coalesced(
            coalescer: &Coalescer<Self>,
            call: Call,
            target: Target,
            keyed: bool,
        ) -> Result<(), Error> {
            let row = RowCounter::of(views, target.row());
            let other_row = RowCounter::of(views, target.other_row());
            let named = Counter::named(target.name());
            let add = |n: usize| match (n, keyed) {
                (0, false) => coalescer.add(&row, ADDED),
                (0, true) => coalescer.add(&row.idempotency_key(target.key(n)), ADDED),
                (1, false) => coalescer.add(&other_row, ADDED),
                (1, true) => coalescer.add(&other_row.idempotency_key(target.key(n)), ADDED),
                (_, false) => coalescer.add(&named, ADDED),
                (_, true) => coalescer.add(&named.idempotency_key(target.key(n)), ADDED),
            };
            if call == Call::Coalesced {
                return exactly(1, add(0)?);
            }
            thread::scope(|scope| {
                let added: Vec<_> = (0..3).map(|n| scope.spawn(move || exactly(1, add(n)?))).collect();
                let told: Vec<_> = added.into_iter().map(|added| added.join().expect("no panic")).collect();
                told.into_iter().collect()
            })
        }

        /// Inserts the rows that the call needs.
        fn prepare(&mut self, call: Call, target: Target) {
            if call == Call::OrInsert {
                return;
            }
            let rows = [(target.row(), Some(target.0)), (target.other_row(), Some(target.0))];
            self.insert_rows(&rows, BASE).expect("rows of a call");
            if call == Call::Fold {
                let counted = update(chaos_rows.find(target.row())).set(views.eq(views + 3));
                assert_eq!(counted.execute(self), Ok(1));
            }
        }

        fn state(&mut self, call: Call, target: Target) -> State {
            let mut total = |row: i64| {
                let read = chaos_rows.find(row).select((views.total(), views));
                read.first::<(i64, i64)>(self).optional().expect("a total")
            };
            let row = total(target.row());
            let other_row = total(target.other_row());
            let tokens = chaos_tokens::table.filter(chaos_tokens::token.eq(target.key(0)));
            State {
                row: row.map(|(total, _)| total),
                other_row: other_row.map(|(total, _)| total),
                named: Counter::named(target.name()).get(self).expect("a total"),
                tokens: tokens.count().get_result(self).expect("a number"),
                base: row.map(|(_, base)| base).filter(|_| call == Call::Fold),
            }
        }
    }
}
