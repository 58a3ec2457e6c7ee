//! Operation × statement × fault: what became of each, and of its connection.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{MIGRATIONS, ShardsTable};
use diesel_sharded_tests::interrupter::{Fault, Interrupter, Plan};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, measures};
use diesel_sharded_tests::{Database, TestConnection};

use super::operations::{self, ALL, Before, CALLERS, Operation, SLOW, number};
use super::{Conn, Direct, IS_MYSQL};

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
    side: Direct,
    url: String,
    interrupter: Interrupter,
    video: i64,
    /// By operation, statement and its text: the outcome of each fault.
    outcomes: Vec<String>,
    wrong: Vec<String>,
}

fn bench(database: &Database) -> Bench {
    let mut side = Direct::establish(database.url()).unwrap();
    schema::create(&mut side);
    side.run_pending_migrations(MIGRATIONS).unwrap();
    let (interrupter, url) = Interrupter::before(database.url(), TABLES);
    Bench {
        side,
        url,
        interrupter,
        video: 1000,
        outcomes: vec![],
        wrong: vec![],
    }
}

fn ask(side: &mut Direct, sql: &str) -> QueryResult<i64> {
    diesel::select(diesel::dsl::sql::<BigInt>(&format!("CAST(({sql}) AS {INTEGER})")))
        .get_result(side)
}

const INTEGER: &str = if IS_MYSQL { "SIGNED" } else { "BIGINT" };

impl Bench {
    /// What the operation finds.
    fn arrange(&mut self, name: &str, before: Before) {
        self.video += 1;
        let (video, side) = (self.video, &mut self.side);
        if before != Before::Nothing {
            side.batch_execute(&format!(
                "INSERT INTO videos (id, slug, title, views, likes) VALUES ({video}, 'slug {video}', 'new', 10, 1)"
            ))
            .unwrap();
        }
        if before == Before::Shards {
            side.batch_execute(&format!(
                "INSERT INTO videos_shards (id, shard, views) VALUES ({video}, 0, 1), ({video}, 1, 1), ({video}, 2, 1), ({video}, 3, 1)"
            ))
            .unwrap();
        }
        if name.contains("shards table") {
            let _ = side.batch_execute("DROP TABLE measures_shards"); // it may not be there
            if before != Before::Nothing {
                ShardsTable::of(measures::table).create(side).unwrap();
                let shard = "INSERT INTO measures_shards (id, shard, f) VALUES (1, 0, 5)";
                side.batch_execute(shard).unwrap();
            }
        }
        if name.contains("counter cache") {
            let comments = schema::comments::video_id;
            let cache = diesel_sharded::CounterCache::of(likes).counts(comments);
            cache.drop(side).unwrap();
            if before == Before::Shards {
                cache.create(side).unwrap();
            }
        }
    }

    /// The total that later counts change.
    fn later(&mut self) -> i64 {
        let total = videos.find(2).select(views.total());
        total.first(&mut self.side).unwrap()
    }

    /// All totals that operations change.
    fn totals(&mut self) -> i64 {
        let total = videos.find(self.video).select((views.total(), likes.total()));
        let total: Option<(i64, i32)> = total.first(&mut self.side).optional().unwrap();
        let (all_views, all_likes) = total.unwrap_or_default();
        let name = operations::counter(self.video).name().to_owned();
        let named = diesel_sharded::Counter::named(name).get(&mut self.side).unwrap();
        let base = ask(&mut self.side, "SELECT f FROM measures WHERE id = 1").unwrap();
        let shards = ask(&mut self.side, "SELECT COALESCE(SUM(f), 0) FROM measures_shards");
        all_views + i64::from(all_likes) + named + base + shards.unwrap_or(0)
    }

    /// The fault befalls a statement of the operation. False if there is no such statement.
    fn run(&mut self, operation: &Operation, statement: usize, fault: &(Fault, usize, &str)) -> bool {
        let &(name, before, work) = operation;
        self.arrange(name, before);
        let before = self.totals();
        let mut conn = Conn::establish(&self.url).unwrap();
        let victim = number(&mut conn);
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
        // diesel_async takes a transaction of its own for ended where its COMMIT was interrupted, and no count can tell.
        let is_unknown = TypeId::of::<Conn>() != TypeId::of::<Direct>()
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
                let word = match added {
                    0 => "undone",
                    _ => "done",
                };
                format!("{word} ({})", error.to_string().chars().take(50).collect::<String>())
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
            "set_total" => &[50 - operations::VIEWS],
            "reset" => &[-operations::VIEWS - operations::LIKES],
            "bounded" | "repair" => &[-1],
            _ if name.contains("goes on") => &[2 * CALLERS, 2 * CALLERS + 1],
            "in a transaction" | "in one by text" | "retry::transaction" => &[CALLERS + 1],
            _ if name.starts_with("in a transaction") || name.ends_with("in a transaction") => &[CALLERS + 1],
            _ => &[1],
        };
        if added != 0 && !whole.contains(&added) {
            wrong.push(format!("{added} was added"));
        }
    }

    /// A later count is committed, or refused.
    fn goes_on(&mut self, conn: &mut Conn, broken: bool, cut: bool, wrong: &mut Vec<String>) {
        let was = self.later();
        let counted = super::api::RowCounter::of(views, 2).add(1, conn);
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

    /// Nothing of the operation's is left on its connection.
    fn is_clean(&mut self, conn: &mut Conn, wrong: &mut Vec<String>) {
        let locks = match IS_MYSQL {
            true => "SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1",
            false => "SET lock_timeout = '1s'",
        };
        self.side.batch_execute(locks).unwrap();
        let (video, whole) = (self.video, "UPDATE videos SET title = 'x' WHERE id");
        let free = [
            format!("{whole} = {video}"),
            format!("UPDATE videos_shards SET likes = likes WHERE id = {video}"),
        ];
        for sql in free {
            if let Err(error) = self.side.batch_execute(&sql) {
                wrong.push(format!("locks stay: {error}"));
            }
        }
        let settings = match IS_MYSQL {
            true => "SELECT @@autocommit = 1 /*M!100000 AND @@session.tx_isolation = @@global.tx_isolation */",
            false => "SELECT CASE WHEN current_setting('transaction_isolation') = 'read committed' THEN 1 ELSE 0 END",
        };
        let settings = diesel::dsl::sql::<BigInt>(&format!("CAST(({settings}) AS {INTEGER})"));
        match diesel::RunQueryDsl::get_result::<i64>(diesel::select(settings), conn) {
            Ok(1) => {}
            other => wrong.push(format!("a setting stays: {other:?}")),
        }
    }

    /// The server may work on after a cut.
    fn wait_until_gone(&mut self, victim: i64) {
        let there = match IS_MYSQL {
            true => format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {victim}"),
            false => format!("SELECT COUNT(*) FROM pg_stat_activity WHERE pid = {victim}"),
        };
        let patience = Instant::now() + Duration::from_secs(60);
        while ask(&mut self.side, &there).unwrap() > 0 {
            assert!(Instant::now() < patience, "connection {victim} stays");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether the operation is in a transaction of its caller's.
fn is_callers(name: &str) -> bool {
    name.contains("in one") || name.contains("in a transaction")
}

/// Runs each statement of the operations whose names have one of these parts into each fault. `INTERRUPTED_ONLY` names others, and
/// `INTERRUPTED_ALL` adds faults.
pub fn fill(only: &str) {
    RetryPolicy::new().with_attempts(3).set_global();
    let database = Conn::database();
    let mut bench = bench(&database);
    let only = std::env::var("INTERRUPTED_ONLY").unwrap_or(only.to_owned());
    let faults = match std::env::var_os("INTERRUPTED_ALL") {
        Some(_) => &FAULTS[..],
        None => &FAULTS[..USUAL],
    };
    let slow = if IS_MYSQL { SLOW } else { &[] };
    for operation in ALL.iter().chain(slow).filter(|(name, ..)| only.split('|').any(|only| name.contains(only))) {
        for fault in faults {
            if fault.0 == Fault::AfterItsWork && !IS_MYSQL {
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
