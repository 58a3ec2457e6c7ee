//! Operation × statement × fault: what became of each, and of its connection.

use std::collections::BTreeMap;

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::mysql::Mysql;
use diesel::prelude::*;
use diesel_sharded::Error;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded_tests::awaited::Done;
use diesel_sharded_tests::interrupter::{Fault, Interrupter, Plan};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{schema, until};

use super::api::RowCounter;
use super::operations::{
    ALL, CALLERS, LIKES, Operation, SLOW, VIEWS, arrange, ask, is, is_callers, totals,
};
use super::{Conn, IS_ASYNC};

const TABLES: &[&str] = &[
    "videos",
    "videos_shards",
    "measures",
    "measures_shards",
    "comments",
    "diesel_sharded_counters",
    "diesel_sharded_counter_shards",
    "diesel_sharded_shard_numbers",
    "diesel_sharded_idempotency_keys",
];

/// A fault, and how many statements after it are interrupted too.
const FAULTS: [(Fault, usize, &str); 12] = [
    (Fault::Interrupted, 0, "interrupted"),
    (Fault::Interrupted, 99, "interrupted, and all that follow"),
    (Fault::TimedOut, 0, "timed out"),
    (Fault::AfterItsWork, 0, "killed at its end"),
    (Fault::InTheMiddle, 1, "killed in the middle, and the next"),
    (Fault::CutBefore, 0, "cut before it"),
    (Fault::CutAfter, 0, "cut after it"),
    (Fault::Interrupted, 1, "interrupted, and the next"),
    (Fault::TimedOut, 1, "timed out, the next interrupted"),
    (Fault::AfterItsWork, 1, "killed at its end, and the next"),
    (Fault::InTheMiddle, 0, "killed in the middle"),
    (Fault::InTheMiddle, 99, "killed in the middle, and all that follow"),
];

/// How many of them there are without `INTERRUPTED_ALL`.
const USUAL: usize = 7;

struct Bench {
    /// Goes around the proxy.
    side: Conn,
    url: String,
    interrupter: Interrupter,
    video: i64,
    /// By operation, statement and its text: the outcome of each fault.
    outcomes: Vec<String>,
    wrong: Vec<String>,
}

impl Bench {
    /// The total that later increments change.
    fn later(&mut self) -> i64 {
        let total = RowCounter::of(views, 2).get(&mut self.side).done();
        total.unwrap().expect("the video is there")
    }

    fn totals(&mut self) -> i64 {
        totals(self.video, &mut self.side)
    }

    /// The fault befalls a statement of the operation. False if there is no such statement.
    fn run(&mut self, operation: &Operation, statement: usize, fault: &(Fault, usize, &str)) -> bool {
        let &(name, before, work) = operation;
        self.video += 1;
        arrange(name, before, self.video, &mut self.side);
        let before = self.totals();
        let mut conn = Conn::establish(&self.url).unwrap();
        let victim = match is::<Mysql>() {
            true => ask("SELECT CONNECTION_ID()", &mut conn),
            false => ask("SELECT pg_backend_pid()", &mut conn),
        };
        let victim = victim.unwrap();
        self.interrupter.arm(Plan { fault: fault.0, statement, then: fault.1, victim });
        let done = work(&mut conn, self.video);
        let hit = self.interrupter.disarm();
        let Some(text) = hit.first() else {
            return false;
        };
        let cell = format!("{name} | {statement} {} | {}", text.chars().take(60).collect::<String>(), fault.2);
        let mut wrong = vec![];
        type Manager = <Conn as Connection>::TransactionManager;
        let broken = Manager::is_broken_transaction_manager(&mut conn);
        let cut = matches!(fault.0, Fault::CutBefore | Fault::CutAfter);
        // diesel_async takes a transaction of its own for ended where its COMMIT was interrupted, and no increment can tell.
        let is_unknown = IS_ASYNC
            && is_callers(name)
            && !name.contains("by text")
            && hit.iter().any(|text| text == "COMMIT")
            && !broken;
        if !is_unknown {
            self.goes_on(&mut conn, broken, cut, &mut wrong);
        }
        drop(conn);
        self.wait_until_gone(victim);
        let added = self.totals() - before;
        let unknown = match done {
            Ok(acknowledged) => {
                if added != acknowledged {
                    wrong.push(format!("{acknowledged} acknowledged, {added} there"));
                }
                "counted".to_owned()
            }
            Err(error) => {
                let text = error.to_string();
                match Error::from(error) {
                    Error::ConnectionLost { .. } if added != 0 => {
                        wrong.push(format!("lost before the commit, {added} there"));
                    }
                    Error::OutcomeUnknown { .. } if is_a_transaction(name) && !hit.iter().any(|text| text.contains("COMMIT")) => {
                        wrong.push("unknown before a COMMIT".into());
                    }
                    _ => {}
                }
                let word = match added {
                    0 => "undone",
                    _ => "done",
                };
                format!("{word} ({})", text.chars().take(50).collect::<String>())
            }
        };
        // Sent again under its key it is there once.
        if unknown != "counted" {
            self.allowed(operation, before, added, &mut wrong);
        }
        let state = if cut { ", cut" } else if broken { ", broken" } else { "" };
        self.outcomes.push(format!("{cell} | {unknown}{state}"));
        self.wrong.extend(wrong.into_iter().map(|wrong| format!("{cell} | {unknown}{state}: {wrong}")));
        true
    }

    /// An operation that failed did nothing, or all of its work.
    fn allowed(&mut self, operation: &Operation, before: i64, added: i64, wrong: &mut Vec<String>) {
        let &(name, _, work) = operation;
        if name.starts_with("keyed") {
            let mut conn = Conn::establish(&self.url).unwrap();
            match work(&mut conn, self.video) {
                Ok(whole) => {
                    let all = self.totals() - before;
                    if all != whole || (added != 0 && added != whole) {
                        wrong.push(format!("{added}, and {all} with its repeat of {whole}"));
                    }
                }
                Err(error) => wrong.push(format!("its repeat: {error}")),
            }
            return;
        }
        let whole: &[i64] = match name {
            "named, set" => &[7],
            "set_total" => &[50 - VIEWS],
            "reset" => &[-VIEWS - LIKES],
            "repair" => &[-1],
            _ if name.contains("goes on") => &[2 * CALLERS, 2 * CALLERS + 1],
            "retry::transaction" => &[CALLERS + 1],
            _ if is_callers(name) => &[CALLERS + 1],
            _ => &[1],
        };
        if added != 0 && !whole.contains(&added) {
            wrong.push(format!("{added} was added"));
        }
    }

    /// A later increment is committed, or refused.
    fn goes_on(&mut self, conn: &mut Conn, broken: bool, cut: bool, wrong: &mut Vec<String>) {
        if is::<Mysql>() && !broken && !cut {
            self.reads_a_snapshot(conn, wrong);
        }
        let was = self.later();
        let counted = RowCounter::of(views, 2).add(1, conn).done();
        let is = self.later();
        match &counted {
            Ok(_) if broken => wrong.push("a broken connection counts".into()),
            Ok(_) if is != was + 1 => wrong.push("a later count is acknowledged and lost".into()),
            Err(_) if is != was => wrong.push("a later count is refused and there".into()),
            Err(error) if !broken && !cut => wrong.push(format!("not broken: {error}")),
            _ => {}
        }
        if counted.is_ok() {
            self.is_clean(conn, wrong);
        }
    }

    /// No isolation level is left for the caller's next transaction.
    fn reads_a_snapshot(&mut self, conn: &mut Conn, wrong: &mut Vec<String>) {
        let refused_inside = "/*M!100000 DO 0 */ /*!50720 SET @@transaction_read_only = @@session.transaction_read_only */";
        let is_inside = conn.batch_execute(refused_inside).is_err();
        if is_inside || ask("SELECT 0 /*M!100000 + @@in_transaction */", conn) == Ok(1) {
            return; // the next increment tells
        }
        let read = "SELECT likes FROM videos WHERE id = 3";
        conn.batch_execute("START TRANSACTION WITH CONSISTENT SNAPSHOT").unwrap();
        self.side.batch_execute("UPDATE videos SET likes = likes + 1 WHERE id = 3").unwrap();
        if ask(read, conn) == ask(read, &mut self.side) {
            wrong.push("an isolation level stays".into());
        }
        conn.batch_execute("ROLLBACK").unwrap();
    }

    /// Nothing of the operation's is left on its connection.
    fn is_clean(&mut self, conn: &mut Conn, wrong: &mut Vec<String>) {
        let locks = match is::<Mysql>() {
            true => "SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1",
            false => "SET lock_timeout = '1s'",
        };
        self.side.batch_execute(locks).unwrap();
        let video = self.video;
        for free in [
            format!("UPDATE videos SET title = 'x' WHERE id = {video}"),
            format!("UPDATE videos_shards SET likes = likes WHERE id = {video}"),
        ] {
            if let Err(error) = self.side.batch_execute(&free) {
                wrong.push(format!("locks stay: {error}"));
            }
        }
        let settings = match is::<Mysql>() {
            true => "SELECT @@autocommit = 1 /*M!100000 AND @@session.tx_isolation = @@global.tx_isolation */",
            false => "SELECT CASE WHEN current_setting('transaction_isolation') = 'read committed' THEN 1 ELSE 0 END",
        };
        match ask(settings, conn) {
            Ok(1) => {}
            other => wrong.push(format!("a setting stays: {other:?}")),
        }
    }

    /// The server may work on after a cut.
    fn wait_until_gone(&mut self, victim: i64) {
        let there = match is::<Mysql>() {
            true => format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {victim}"),
            false => format!("SELECT COUNT(*) FROM pg_stat_activity WHERE pid = {victim}"),
        };
        until("the connection is gone", || ask(&there, &mut self.side) == Ok(0));
    }
}

/// Whether nothing but its COMMIT can leave its outcome unknown. The library does not know of a transaction by text, and some with a key
/// are one statement.
fn is_a_transaction(name: &str) -> bool {
    is_callers(name) && !name.contains("by text") || ["retry::transaction", "set_total", "fold"].contains(&name)
}

/// Runs each statement of the operations whose names have one of these parts into each fault. `INTERRUPTED_ONLY` names others, and
/// `INTERRUPTED_ALL` adds faults.
pub fn fill(only: &str) {
    RetryPolicy::new().with_attempts(3).set_global();
    let (database, side) = schema::database_with_counters::<Conn>();
    let (interrupter, url) = Interrupter::before(database.url(), TABLES);
    let mut bench = Bench {
        side,
        url,
        interrupter,
        video: 1000,
        outcomes: vec![],
        wrong: vec![],
    };
    let only = std::env::var("INTERRUPTED_ONLY").unwrap_or(only.to_owned());
    let faults = match std::env::var_os("INTERRUPTED_ALL") {
        Some(_) => &FAULTS[..],
        None => &FAULTS[..USUAL],
    };
    let slow = if is::<Mysql>() { SLOW } else { &[] };
    for operation in ALL.iter().chain(slow).filter(|(name, ..)| only.split('|').any(|only| name.contains(only))) {
        for fault in faults {
            if fault.0 == Fault::AfterItsWork && !is::<Mysql>() {
                continue; // PostgreSQL interrupts nothing that is done
            }
            // A caller's own BEGIN is another's statement.
            let mut statement = 1 + usize::from(is_callers(operation.0) && fault.0 == Fault::AfterItsWork);
            while bench.run(operation, statement, fault) {
                statement += 1;
                assert!(statement < 200, "{operation:?} does not end");
            }
        }
    }
    for outcome in &bench.outcomes {
        println!("{outcome}");
    }
    let mut words = BTreeMap::<&str, usize>::new();
    for outcome in &bench.outcomes {
        let word = outcome.rsplit(" | ").next().unwrap_or_default();
        *words.entry(word).or_default() += 1;
    }
    println!("{} cells: {words:?}", bench.outcomes.len());
    assert!(bench.outcomes.len() > 10);
    assert!(bench.wrong.is_empty(), "{} are wrong:\n{}", bench.wrong.len(), bench.wrong.join("\n"));
}
