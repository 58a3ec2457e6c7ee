//! A proxy cuts the connection of a call at each of its requests in turn: before the server sees it, or before its answer comes.
//!
//! A call is made again and again, on rows of its own, and cut one request later each time, until it comes through. With a
//! connection that is new (each statement is prepared first, by a request of its own) and with one that made the same call before.
//! So BEGIN, every statement and COMMIT are met, each on both sides.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{Counter, Error, RowCounter, fold, set_total, update};
use diesel_sharded_tests::proxy::{Cut, Proxy};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::{Extent, Fault};
use crate::backend::{Backend, ChaosConnection};
use crate::place::Place;
use crate::report::Line;
use crate::schema::chaos_rows::dsl::*;
use crate::schema::{chaos_rows, chaos_tokens};
use crate::sql_store::coalescer;
use crate::with_connection;

pub const FAULT: Fault = Fault {
    name: "connection-cut",
    about: "a proxy cuts the connection at every request of a call; with an idempotency key exactly once, else never twice",
    backends: &Backend::SERVERS,
    rounds: (1000, 60),
    run,
};

/// `views` of every row at the beginning, what is added and what is set.
const BASE: i64 = 1000;
const ADDED: i64 = 5;
const SET: i64 = 7777;

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    /// One row, by its key: one statement that commits by itself, if its shard is there.
    CountByKey,
    /// Two rows, by a filter: a transaction of the library's.
    CountByFilter,
    /// The row is inserted.
    OrInsert,
    /// The first count by a name.
    Named,
    /// The row is wanted back.
    GetResult,
    /// A transaction of the caller's.
    Transaction,
    SetTotal,
    Fold,
    /// One row, by the coalescer: one statement.
    Coalesced,
    /// Two rows and a name, at once, by the coalescer: a transaction.
    CoalescedTogether,
}

impl Call {
    const ALL: [Call; 10] = [
        Call::CountByKey,
        Call::CountByFilter,
        Call::OrInsert,
        Call::Named,
        Call::GetResult,
        Call::Transaction,
        Call::SetTotal,
        Call::Fold,
        Call::Coalesced,
        Call::CoalescedTogether,
    ];

    /// A transaction always, so that only its COMMIT can leave the outcome open.
    fn is_a_transaction(self) -> bool {
        matches!(
            self,
            Call::CountByFilter | Call::GetResult | Call::Transaction | Call::SetTotal | Call::Fold
        )
    }

    fn is_coalesced(self) -> bool {
        matches!(self, Call::Coalesced | Call::CoalescedTogether)
    }

    fn takes_a_key(self) -> bool {
        !matches!(self, Call::Transaction | Call::SetTotal | Call::Fold)
    }
}

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
        for call in Call::ALL {
            for keyed in [false, true] {
                for warm in [true, false] {
                    for after_it_was_sent in [false, true] {
                        let way = Way {
                            call,
                            keyed,
                            warm,
                            after_it_was_sent,
                        };
                        // A coalescer keeps its connection as long as it is not cut.
                        let is_one = !keyed || call.takes_a_key();
                        if is_one && (warm || !call.is_coalesced()) {
                            ways.push(way);
                        }
                    }
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

/// What one call is about: two rows and a name of its own.
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

    /// Of a count, or its token.
    fn key(self, n: usize) -> String {
        format!("cut {}, {n}", self.0)
    }
}

/// Everything that a call may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct State {
    row: Option<i64>,
    other_row: Option<i64>,
    named: i64,
    tokens: i64,
    /// The column itself of the row that is folded.
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

/// What the calls are on each connection type.
trait Cuttable: ChaosConnection {
    /// Makes the call, with an idempotency key or without one.
    fn call(&mut self, call: Call, target: Target, keyed: bool) -> Result<(), Error>;

    /// Makes the call by a coalescer.
    fn call_coalesced(
        coalescer: &Coalescer<Self>,
        call: Call,
        target: Target,
        keyed: bool,
    ) -> Result<(), Error>;

    /// Inserts what the call needs.
    fn prepare(&mut self, call: Call, target: Target);

    fn state(&mut self, call: Call, target: Target) -> State;
}

/// One row was counted, or the library is wrong.
fn one(counted: usize) -> Result<(), Error> {
    exactly(1, counted)
}

fn exactly(there: usize, counted: usize) -> Result<(), Error> {
    match counted == there {
        true => Ok(()),
        false => Err(Error::Diesel(diesel::result::Error::QueryBuilderError(
            format!("{counted} rows counted of {there}").into(),
        ))),
    }
}

macro_rules! cuttable {
    ($($Conn:ty),+) => {$(
        impl Cuttable for $Conn {
            fn call(&mut self, call: Call, target: Target, keyed: bool) -> Result<(), Error> {
                let conn = self;
                let key = target.key(0);
                let by_key = || update(chaos_rows.find(target.row())).set(views.eq(views + ADDED));
                match (call, keyed) {
                    (Call::CountByKey, false) => one(by_key().execute(conn)?),
                    (Call::CountByKey, true) => one(by_key().idempotency_key(key).execute(conn)?),
                    (Call::CountByFilter, _) => {
                        let count = update(chaos_rows.filter(team.eq(target.0))).set(views.eq(views + ADDED));
                        exactly(2, match keyed {
                            false => count.execute(conn)?,
                            true => count.idempotency_key(key).execute(conn)?,
                        })
                    }
                    (Call::OrInsert, _) => {
                        let row = (chaos_rows::id.eq(target.row()), views.eq(0), likes.eq(0));
                        let count = by_key().or_insert(row);
                        one(match keyed {
                            false => count.execute(conn)?,
                            true => count.idempotency_key(key).execute(conn)?,
                        })
                    }
                    (Call::Named, false) => {
                        Counter::named(target.name()).add(ADDED, conn)?;
                        Ok(())
                    }
                    (Call::Named, true) => {
                        one(Counter::named(target.name()).idempotency_key(key).add(ADDED, conn)?)
                    }
                    (Call::GetResult, _) => {
                        let count = by_key().returning((id, views.total()));
                        let read: (i64, i64) = match keyed {
                            false => count.get_result(conn)?,
                            true => count.idempotency_key(key).get_result(conn)?,
                        };
                        exactly((BASE + ADDED) as usize, read.1 as usize)
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
                        one(set_total(chaos_rows.find(target.row()), views, SET).execute(conn)?)
                    }
                    (Call::Fold, _) => {
                        fold(chaos_rows.find(target.row())).run(conn)?;
                        Ok(())
                    }
                    (Call::Coalesced | Call::CoalescedTogether, _) => {
                        unreachable!("it is the coalescer that makes them")
                    }
                }
            }

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
                    return one(add(0)?);
                }
                thread::scope(|scope| {
                    let added: Vec<_> = (0..3).map(|n| scope.spawn(move || one(add(n)?))).collect();
                    let told: Vec<_> = added.into_iter().map(|added| added.join().expect("no panic")).collect();
                    told.into_iter().collect()
                })
            }

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
    )+};
}

cuttable!(PgConnection, MysqlConnection, SqliteConnection);

fn run(extent: &Extent, backend: Backend) -> Line {
    with_connection!(backend, Conn => run_on::<Conn>(extent, backend))
}

fn run_on<Conn: Cuttable + LoadConnection + Send>(extent: &Extent, backend: Backend) -> Line
where
    Conn::Backend: diesel_sharded::backend::BackendOf<Conn>,
{
    let mut line = Line::new(FAULT.name, backend);
    let place = Place::new(backend).unwrap_or_else(|missing| panic!("{missing}"));
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
    ways.shuffle(&mut SmallRng::seed_from_u64(extent.seed));
    let mut ways = ways.into_iter().cycle();
    while extent.goes_on(line.rounds) {
        let way = ways.next().expect("a circle");
        let mut request = 0;
        while judge.play(way, request, &mut line) {
            request += 1;
            line.rounds += 1;
            *cut_at.entry(way.call).or_default() += 1;
            if line.rounds.is_multiple_of(100) {
                line.progress(extent);
            }
        }
    }
    judge.look_again(&mut line);
    if judge.commits == 0 && !extent.short {
        line.find("no COMMIT was cut".into());
    }
    let cut_at = cut_at
        .iter()
        .map(|(call, cuts)| format!("{cuts} of {call:?}"));
    let cut_at = cut_at.collect::<Vec<_>>().join(", ");
    line.remarks
        .push(format!("cuts: {cut_at}; {} at a COMMIT", judge.commits));
    line.finish()
}

/// Whether a request is a COMMIT, or what surrounds it on MySQL: a request that is not answered, so that its loss shows at
/// the COMMIT behind it, and those by which Diesel allows it to be sent as text.
fn commits(request: &[u8]) -> bool {
    request.windows(6).any(|text| text == b"COMMIT") || is_housekeeping(request)
}

/// Whether it is one of MySQL's on which nothing depends any more where it is the last: the server does not answer it, it ends what
/// allowed Diesel to send the COMMIT before, or it ends a guard.
fn is_housekeeping(request: &[u8]) -> bool {
    const ENDS_A_GUARD: &[u8] = b"SET autocommit = 1";
    const COM_STMT_CLOSE: u8 = 0x19;
    const COM_SET_OPTION: u8 = 0x1b;
    let mysql = request.get(4);
    request.ends_with(ENDS_A_GUARD)
        || mysql.is_some_and(|command| [COM_STMT_CLOSE, COM_SET_OPTION].contains(command))
}

struct Judge<Conn: Cuttable> {
    /// Not by the proxy.
    conn: Conn,
    proxy: Proxy,
    url: String,
    coalescer: Option<Coalescer<Conn>>,
    targets: i64,
    /// How many cuts were at a COMMIT.
    commits: u32,
    /// What every call has left behind.
    told: Vec<(Way, Target, State)>,
}

impl<Conn: Cuttable + LoadConnection + Send> Judge<Conn>
where
    Conn::Backend: diesel_sharded::backend::BackendOf<Conn>,
{
    fn target(&mut self, call: Call) -> Target {
        self.targets += 1;
        let target = Target(self.targets);
        self.conn.prepare(call, target);
        target
    }

    /// Makes one call, cut at its request of this number; gives whether it came to that.
    fn play(&mut self, way: Way, request: u32, line: &mut Line) -> bool {
        let target = self.target(way.call);
        let before = self.conn.state(way.call, target);
        let cuts = self.proxy.cuts();
        let mut told = match way.call.is_coalesced() {
            true => self.coalesce(way, target, request),
            false => self.call(way, target, request),
        };
        let was_cut = self.proxy.cuts() > cuts;
        if was_cut {
            *match &told {
                Ok(()) => &mut line.ok,
                Err(Error::OutcomeUnknown { .. }) => &mut line.unknown,
                Err(_) => &mut line.failed,
            } += 1;
        }
        if was_cut && !way.call.is_coalesced() {
            let request_cut = self.proxy.last_request();
            self.commits += u32::from(commits(&request_cut));
            // Nothing else may be lost unheard, and nothing is sent again.
            if told.is_ok() && !is_housekeeping(&request_cut) {
                let cut = String::from_utf8_lossy(&request_cut).into_owned();
                line.find(format!(
                    "{way:?}, cut at request {request}, {cut:?}: nobody was told"
                ));
            }
        }
        if let Err(Error::OutcomeUnknown { .. }) = told
            && way.call.is_a_transaction()
            && !commits(&self.proxy.last_request())
        {
            let cut = String::from_utf8_lossy(&self.proxy.last_request()).into_owned();
            line.find(format!(
                "{way:?}, cut at request {request}, {cut:?}: {told:?} before its commit"
            ));
        }
        if way.keyed && !way.call.is_coalesced() {
            // It is asked until it is told, and then once more.
            let patience = Instant::now() + Duration::from_secs(60);
            while let Err(Error::OutcomeUnknown { .. } | Error::ConnectionLost { .. }) = told {
                assert!(Instant::now() < patience, "{way:?} is never told");
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
            // What a caller's own statements meet in his closure he is told as Diesel tells it.
            (Err(Error::Diesel(_)), Call::Transaction) => &[before],
            (Err(_), _) => &[],
        };
        if !allowed.contains(&is) {
            line.find(format!(
                "{way:?}, cut at request {request} ({was_cut}): {told:?}; it was {before:?} and is {is:?}"
            ));
        }
        self.told.push((way, target, is));
        was_cut
    }

    fn connect(&self) -> Conn {
        Conn::establish(&self.url).expect("a connection by the proxy")
    }

    fn call(&mut self, way: Way, target: Target, request: u32) -> Result<(), Error> {
        let mut conn = self.connect();
        if way.warm {
            let other = self.target(way.call);
            conn.call(way.call, other, way.keyed)?;
        }
        self.proxy.cut_after(request, way.cut());
        let told = conn.call(way.call, target, way.keyed);
        self.proxy.cut_no_more(); // its farewell is not of the call
        told
    }

    fn coalesce(&mut self, way: Way, target: Target, request: u32) -> Result<(), Error> {
        let coalescer = self.coalescer.take().unwrap_or_else(|| {
            coalescer(&self.url, Duration::from_secs(60)).expect("a coalescer by the proxy")
        });
        let coalescer = self.coalescer.insert(coalescer).clone();
        let other = self.target(way.call);
        Conn::call_coalesced(&coalescer, way.call, other, way.keyed)?;
        self.proxy.cut_after(request, way.cut());
        let told = Conn::call_coalesced(&coalescer, way.call, target, way.keyed);
        self.proxy.cut_no_more();
        told
    }

    /// What was sent is done or taken back, once the server has no connection by the proxy any more.
    fn wait_for_the_server(&mut self) {
        self.coalescer = None;
        let patience = Instant::now() + Duration::from_secs(60);
        while self.conn.others().expect("the server answers") > 0 {
            assert!(Instant::now() < patience, "connections that were cut stay");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Nothing has changed behind anybody's back.
    fn look_again(&mut self, line: &mut Line) {
        self.wait_for_the_server();
        for (way, target, was) in std::mem::take(&mut self.told) {
            let is = self.conn.state(way.call, target);
            if is != was {
                line.find(format!(
                    "{way:?}: it was {was:?} at its end and is {is:?} later"
                ));
            }
        }
    }
}
