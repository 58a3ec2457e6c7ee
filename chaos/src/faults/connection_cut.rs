//! A proxy cuts the connection of a call at each of its requests in turn: before the request reaches the server, or before the answer
//! reaches the client.
//!
//! Each kind of call is repeated on rows of its own, and cut one request later each time, until it completes. It is made on a new
//! connection, where a request of its own prepares each statement, and on a connection that made the same call before. So the cuts
//! hit BEGIN, every statement and COMMIT, each before and after it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use diesel_sharded::Error;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded_tests::proxy::{Cut, Proxy};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::Fault;
use crate::backend::{Backend, ChaosConnection};
use crate::operation::{Answer, Begin, By, Count, Counter, Folded, On, Operation};
use crate::place::{PATIENT, Place};
use crate::report::Line;
use crate::sql_store::coalescer;
use crate::{until, with_connection};

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
                // The coalescer's pool keeps its connection as long as it is not cut.
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

fn run_on<Conn: ChaosConnection>(line: &mut Line) {
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

struct Judge<Conn: ChaosConnection> {
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

impl<Conn: ChaosConnection> Judge<Conn> {
    fn target(&mut self, call: Call) -> Target {
        self.targets += 1;
        let target = Target(self.targets);
        if call != Call::OrInsert {
            let rows = [target.row(), target.other_row()].map(|row| (row, Some(target.0)));
            self.conn.insert_rows(&rows, BASE).expect("rows of a call");
        }
        if call == Call::Fold {
            let count = Operation::count(On::Row(target.row()), By::Update, 3);
            assert_eq!(self.conn.run(&count).ok(), Some(Answer::Rows(1)));
        }
        target
    }

    /// Makes one call and cuts it at this request. Returns whether the call got that far.
    fn play(&mut self, way: Way, request: u32, line: &mut Line) -> bool {
        let target = self.target(way.call);
        let before = State::of(&mut self.conn, way.call, target);
        let operations = way.call.on(target, way.keyed);
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
        if way.keyed {
            // The call is repeated until it reports its outcome, and then once more.
            let patience = Instant::now() + Duration::from_secs(60);
            while let Err(Error::OutcomeUnknown { .. } | Error::ConnectionLost { .. }) = told {
                let is_patient = Instant::now() < patience;
                assert!(is_patient, "{way:?} never reports its outcome");
                told = call(&mut self.connect(), &operations);
            }
            if told.is_ok() {
                told = call(&mut self.connect(), &operations);
            }
        }
        if !way.call.is_coalesced() {
            self.wait_for_the_server();
        }
        let after = before.clone().after(way.call, target, way.keyed);
        let is = State::of(&mut self.conn, way.call, target);
        line.reads += 1;
        let allowed: &[&State] = match (&told, way.call) {
            (Ok(()), _) => &[&after],
            (Err(_), Call::Coalesced | Call::CoalescedTogether) => &[],
            (Err(_), _) if way.keyed => &[],
            (Err(Error::OutcomeUnknown { .. }), _) => &[&before, &after],
            (Err(Error::ConnectionLost { .. }), _) => &[&before],
            // Statements in a caller's closure report Diesel's errors.
            (Err(Error::Diesel(_)), Call::Transaction) => &[&before],
            (Err(_), _) => &[],
        };
        if !allowed.contains(&&is) {
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
            call(&mut conn, &way.call.on(other, way.keyed))?;
        }
        self.proxy.cut_after(request, way.cut());
        let told = call(&mut conn, &way.call.on(target, way.keyed));
        self.proxy.cut_no_more(); // closing the connection is not part of the call
        told
    }

    fn coalesce(&mut self, way: Way, target: Target, request: u32) -> Result<(), Error> {
        let coalescer = self.coalescer.take().unwrap_or_else(|| {
            coalescer(&self.url, PATIENT).expect("a coalescer through the proxy")
        });
        let coalescer = self.coalescer.insert(coalescer).clone();
        let other = self.target(way.call);
        call_coalesced(&coalescer, &way.call.on(other, way.keyed))?;
        self.proxy.cut_after(request, way.cut());
        let told = call_coalesced(&coalescer, &way.call.on(target, way.keyed));
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
            let is = State::of(&mut self.conn, way.call, target);
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
    /// A count on one row through the coalescer.
    Coalesced,
    /// Counts on two rows and a name, at once, through the coalescer: a transaction for each table.
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
        !self.is_coalesced() && !matches!(self, Call::Transaction | Call::SetTotal | Call::Fold)
    }

    /// Its operations: one, or several at once.
    fn on(self, target: Target, keyed: bool) -> Vec<Operation> {
        let row = || On::Row(target.row());
        let counts = match self {
            Call::CountByKey => vec![(row(), By::Update)],
            Call::CountByFilter => {
                let rows = vec![target.row(), target.other_row()];
                let team = target.0;
                vec![(On::Team { team, rows }, By::Update)]
            }
            Call::OrInsert => vec![(row(), By::OrInsert)],
            Call::Named => vec![(On::Named(target.name()), By::Counter)],
            Call::GetResult => vec![(row(), By::Returning)],
            Call::Coalesced => vec![(row(), By::Coalescer)],
            Call::CoalescedTogether => {
                let other = On::Row(target.other_row());
                let on = [row(), other, On::Named(target.name())];
                on.map(|on| (on, By::Coalescer)).to_vec()
            }
            Call::Transaction => {
                let counters = [
                    Counter::Views(target.row()),
                    Counter::Named(target.name()),
                    Counter::Views(target.other_row()),
                ];
                return vec![Operation::Transaction {
                    token: target.key(0),
                    counts: counters.map(|counter| (counter, ADDED)).to_vec(),
                    begin: Begin::Plainly,
                    reads_first: false,
                }];
            }
            Call::SetTotal => {
                let row = target.row();
                return vec![Operation::SetTotal { row, total: SET }];
            }
            Call::Fold => {
                let what = Folded::Row(target.row());
                return vec![Operation::Fold { what, keep: 16 }];
            }
        };
        let counts = counts.into_iter().enumerate().map(|(n, (on, by))| {
            Operation::Count(Count {
                on,
                by,
                n: ADDED,
                likes: None,
                request: keyed.then(|| target.key(n)),
            })
        });
        counts.collect()
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

    /// The beginning of its keys and tokens.
    fn prefix(self) -> String {
        format!("cut {}, ", self.0)
    }

    fn key(self, n: usize) -> String {
        format!("{}{n}", self.prefix())
    }
}

/// The values that a call may change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct State {
    totals: BTreeMap<Counter, i64>,
    tokens: BTreeSet<String>,
    /// The plain column of the row that is folded.
    base: Option<i64>,
}

impl State {
    fn of<Conn: ChaosConnection>(conn: &mut Conn, call: Call, target: Target) -> Self {
        let rows = Operation::ReadRows {
            first: target.row(),
            last: target.other_row(),
        };
        let name = target.name();
        let totals = [rows, Operation::ReadNamed { name }].map(|read| match conn.run(&read) {
            Ok(Answer::Totals(totals)) => totals,
            answer => panic!("{read:?}: {answer:?}"),
        });
        let is_counted = |(counter, _): &(Counter, i64)| !matches!(counter, Counter::Likes(_));
        let base = format!("(SELECT views FROM chaos_rows WHERE id = {})", target.row());
        State {
            totals: totals.concat().into_iter().filter(is_counted).collect(),
            tokens: conn
                .tokens(&target.prefix())
                .expect("tokens")
                .into_iter()
                .collect(),
            base: (call == Call::Fold).then(|| conn.number(&base).expect("a number")),
        }
    }

    fn after(mut self, call: Call, target: Target, keyed: bool) -> Self {
        for operation in call.on(target, keyed) {
            for (counter, n) in operation.adds() {
                *self.totals.entry(counter).or_default() += n;
            }
            self.totals.extend(operation.sets());
            self.tokens.extend(operation.token().map(str::to_owned));
        }
        if call == Call::Fold {
            self.base = self.totals.get(&Counter::Views(target.row())).copied();
        }
        self
    }
}

/// Fails unless the operation met all its rows.
fn all_met(operation: &Operation, answer: Answer) -> Result<(), Error> {
    let all = operation.rows().map(Answer::Rows);
    if all.is_none_or(|all| all == answer) {
        return Ok(());
    }
    let text = format!("{operation:?}: {answer:?}");
    Err(Error::Diesel(diesel::result::Error::QueryBuilderError(
        text.into(),
    )))
}

/// Makes a call on a connection.
fn call<Conn: ChaosConnection>(conn: &mut Conn, operations: &[Operation]) -> Result<(), Error> {
    let mut operations = operations.iter();
    operations.try_for_each(|operation| all_met(operation, conn.run(operation)?))
}

/// Makes a call through a coalescer, all its counts at once.
fn call_coalesced<Conn: ChaosConnection>(
    coalescer: &Coalescer<Conn>,
    operations: &[Operation],
) -> Result<(), Error> {
    thread::scope(|scope| {
        let counts = operations.iter().filter_map(|operation| match operation {
            Operation::Count(count) => Some((operation, count)),
            _ => None,
        });
        let added = counts.map(|(operation, count)| {
            scope.spawn(move || all_met(operation, Conn::coalesce(coalescer, count)?))
        });
        let added: Vec<_> = added.collect();
        let told = added
            .into_iter()
            .map(|added| added.join().expect("no panic"));
        told.collect::<Vec<_>>().into_iter().collect()
    })
}
