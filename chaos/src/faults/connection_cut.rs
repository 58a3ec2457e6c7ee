//! A proxy cuts the connection of a call at each of its requests in turn: before the request reaches the server, or before the answer
//! reaches the client.
//!
//! Each kind of call is repeated on rows of its own, and cut one request later each time, until it completes. It is made on a new
//! connection, where a request of its own prepares each statement, and on a connection that made the same call before. So the cuts
//! hit BEGIN, every statement and COMMIT, each before and after it is sent.

mod call;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use diesel_sharded::Error;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded_tests::proxy::{Cut, Proxy};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use self::call::{Call, Cuttable, State, Target};
use crate::backend::Backend;
use crate::extent::Extent;
use crate::fault::Fault;
use crate::place::Place;
use crate::report::Line;
use crate::sql_store::coalescer;
use crate::with_connection;

pub const FAULT: Fault = Fault {
    name: "connection-cut",
    about: "a proxy cuts the connection at every request of a call; with an idempotency key it counts exactly once, without one never twice",
    backends: &Backend::SERVERS,
    rounds: (1000, 60),
    run: |extent, backend, line| with_connection!(backend, Conn => run_on::<Conn>(extent, backend, line)),
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

fn run_on<Conn: Cuttable>(extent: &Extent, backend: Backend, line: &mut Line) {
    let place = Place::new(backend);
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
        while judge.play(way, request, line) {
            request += 1;
            line.rounds += 1;
            *cut_at.entry(way.call).or_default() += 1;
            if line.rounds.is_multiple_of(100) {
                line.progress(extent);
            }
        }
    }
    judge.look_again(line);
    if judge.commits == 0 && !extent.short {
        line.find("no COMMIT was cut".into());
    }
    let cut_at = cut_at
        .iter()
        .map(|(call, cuts)| format!("{cuts} of {call:?}"));
    let cut_at = cut_at.collect::<Vec<_>>().join(", ");
    line.remarks
        .push(format!("cuts: {cut_at}; {} at a COMMIT", judge.commits));
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
            // The caller must hear of any other lost request, and none is sent again.
            if told.is_ok() && !is_housekeeping(&request_cut) {
                let cut = String::from_utf8_lossy(&request_cut).into_owned();
                line.find(format!(
                    "{way:?}, cut at request {request}, {cut:?}: no error was reported"
                ));
            }
        }
        if let Err(Error::OutcomeUnknown { .. }) = told
            && way.call.is_a_transaction(way.keyed)
            && !commits(&self.proxy.last_request())
        {
            let cut = String::from_utf8_lossy(&self.proxy.last_request()).into_owned();
            line.find(format!(
                "{way:?}, cut at request {request}, {cut:?}: {told:?} before its commit"
            ));
        }
        if way.keyed && !way.call.is_coalesced() {
            // The call is repeated until it reports its outcome, and then once more.
            let patience = Instant::now() + Duration::from_secs(60);
            while let Err(Error::OutcomeUnknown { .. } | Error::ConnectionLost { .. }) = told {
                assert!(
                    Instant::now() < patience,
                    "{way:?} never reports its outcome"
                );
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
            line.find(format!(
                "{way:?}, cut at request {request} ({was_cut}): {told:?}; the state was {before:?} and is {is:?}"
            ));
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
        let patience = Instant::now() + Duration::from_secs(60);
        while self.conn.others().expect("the server answers") > 0 {
            assert!(
                Instant::now() < patience,
                "connections that were cut stay open"
            );
            thread::sleep(Duration::from_millis(1));
        }
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
