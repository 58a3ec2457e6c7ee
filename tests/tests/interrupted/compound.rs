//! MariaDB's compound statement of an increment with a key, killed between any two of its statements and in each that may wait, with and
//! without a binary log. Nothing depends on luck: it sleeps where it is to be killed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::{Error, MIGRATIONS};
use diesel_sharded_tests::awaited::Done;
use diesel_sharded_tests::fixture::Run;
use diesel_sharded_tests::interrupter::Interrupter;
use diesel_sharded_tests::own_server::OwnServer;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Server, Stop, number, schema};

use super::Conn;
use super::api::{RowCounter, update};

/// How many victims there are at once.
const THREADS: usize = 4;

/// How the statement and its undo begin.
const STATEMENT: &str = "BEGIN NOT ATOMIC SET";
const UNDO: &str = "/*M!100000 BEGIN NOT ATOMIC IF";

/// How many semicolons of the undo something may be killed after.
const UNDO_STEPS: usize = 4;

/// How often each is killed. `INTERRUPTED_ROUNDS` sets it.
fn rounds() -> usize {
    std::env::var("INTERRUPTED_ROUNDS").map_or(16, |rounds| rounds.parse().unwrap())
}

/// Where the statement is killed.
#[derive(Clone, Copy)]
enum Place {
    /// After this many of its semicolons.
    Behind(usize),
    /// The same where the shard is missing, so that its handler runs.
    WithoutShard(usize),
    /// At its begin, inside a transaction that the caller began by text.
    Inside,
    /// In the statement that writes this table.
    In(&'static str),
}

struct Bench {
    /// Goes around the proxy.
    side: MysqlConnection,
    killer: Mutex<MysqlConnection>,
    url: String,
    interrupter: Interrupter,
    video: i64,
    round: usize,
    wrong: Vec<String>,
}

impl Bench {
    fn new(url: &str, own: i64) -> Self {
        let mut side = MysqlConnection::establish(url).unwrap();
        side.run(&format!(
            "INSERT INTO videos (id, slug, title, views, likes) VALUES ({own}, '{own}', '', 0, 0)"
        ));
        let killer = Mutex::new(MysqlConnection::establish(url).unwrap());
        let (interrupter, url) = Interrupter::before(url, &[]);
        let (round, wrong) = (0, vec![]);
        Bench { side, killer, url, interrupter, video: own, round, wrong }
    }

    fn total(&mut self) -> i64 {
        let shards = format!("COALESCE(SUM(views), 0) FROM videos_shards WHERE id = {}", self.video);
        number!(&shards, &mut self.side)
    }

    fn arrange(&mut self, place: Place) {
        let own = self.video;
        self.side.run(&match place {
            Place::WithoutShard(_) => format!("DELETE FROM videos_shards WHERE id = {own}"),
            _ => format!("INSERT IGNORE INTO videos_shards (id, shard) SELECT {own}, seq FROM seq_0_to_3"),
        });
    }

    /// Kills it there, and the undo after this many of its semicolons. What it was killed after, if that was reached.
    fn kill(&mut self, place: Place, undo: usize) -> Option<(String, &'static str)> {
        self.round += 1;
        self.arrange(place);
        let (own, before) = (self.video, self.total());
        let key = format!("{own} {}", self.round);
        let mut conn = Conn::establish(&self.url).unwrap();
        let victim = number!("CONNECTION_ID()", &mut conn);
        let semicolon = match place {
            Place::Behind(semicolon) | Place::WithoutShard(semicolon) => semicolon,
            Place::Inside => {
                conn.run(&format!("BEGIN; UPDATE videos SET title = '{key}' WHERE id = {own}"));
                0
            }
            Place::In(table) => {
                conn.run(&format!("SET @slow = '{table}'"));
                usize::MAX
            }
        };
        let mut slow = vec![(STATEMENT, semicolon), (UNDO, undo)];
        slow.truncate(1 + undo.min(1));
        self.interrupter.slow_down(slow);
        let done = AtomicBool::new(false);
        let (counted, kills) = thread::scope(|scope| {
            let killer = scope.spawn(|| kill_what_sleeps(&mut self.killer.lock().unwrap(), victim, &done));
            let _stop = Stop(&done);
            let change = update(videos.find(own)).set(views.eq(views + 1));
            let counted = change.idempotency_key(&key).execute(&mut conn).done();
            done.store(true, Ordering::Relaxed);
            (counted, killer.join().unwrap())
        });
        let slow = self.interrupter.disarm();
        let behind = slow.first().filter(|behind| !behind.is_empty());
        let place = match place {
            Place::Behind(_) => behind?.clone(),
            Place::WithoutShard(_) => format!("without shard, {}", behind?),
            Place::Inside => "inside a caller's".into(),
            Place::In(table) => format!("in {table}"),
        };
        if kills == 0 {
            return None;
        }
        let cell = format!("{place} | undo {undo} | {counted:?}");
        let mut wrong = vec![];
        if place.starts_with("inside") {
            // The caller's own work is still there, and its to commit.
            let title_is = format!("COUNT(*) FROM videos WHERE title = '{key}'");
            let is_there = [number!(&title_is, &mut conn), number!(&title_is, &mut self.side)];
            if is_there != [1, 0] {
                wrong.push(format!("{is_there:?} of the caller's work"));
            }
            conn.run("COMMIT");
        }
        self.check(conn, &key, before, &counted, &mut wrong);
        self.wrong.extend(wrong.into_iter().map(|wrong| format!("{cell}: {wrong}")));
        let outcome = match counted {
            Ok(_) => "counted",
            Err(error) if is_unknown(&error) => "unknown",
            Err(_) => "failed",
        };
        Some((place, outcome))
    }

    fn check(&mut self, mut conn: Conn, key: &str, before: i64, counted: &QueryResult<usize>, wrong: &mut Vec<String>) {
        let own = self.video;
        type Manager = <Conn as Connection>::TransactionManager;
        let is_broken = Manager::is_broken_transaction_manager(&mut conn);
        let keys = format!("COUNT(*) FROM diesel_sharded_idempotency_keys WHERE `key` = '{key}'");
        let added = self.total() - before;
        if number!(&keys, &mut self.side) != added {
            wrong.push(format!("{added} added, and the key is another's"));
        }
        match counted {
            Ok(acknowledged) if *acknowledged as i64 == added => {}
            Err(error) if added == 0 || is_unknown(error) => {}
            _ => wrong.push(format!("{added} there")),
        }
        if !is_broken {
            if number!("@@in_transaction", &mut conn) != 0 {
                wrong.push("a transaction stays open".into());
            }
            // A snapshot, unless the level of the increment's own transaction stays.
            conn.run("START TRANSACTION WITH CONSISTENT SNAPSHOT");
            self.side.run(&format!("UPDATE videos SET likes = likes + 1 WHERE id = {own}"));
            let read = format!("likes FROM videos WHERE id = {own}");
            if number!(&read, &mut conn) == number!(&read, &mut self.side) {
                wrong.push("an isolation level stays".into());
            }
            conn.run("ROLLBACK");
            let was = self.total();
            match RowCounter::of(views, own).add(1, &mut conn).done() {
                Ok(_) if self.total() == was + 1 => {}
                later => wrong.push(format!("a later count: {later:?}")),
            }
            self.side.run(&format!("UPDATE videos_shards SET views = views - 1 WHERE id = {own} AND views > 0 LIMIT 1"));
        }
        let repeat = update(videos.find(own)).set(views.eq(views + 1));
        drop(conn);
        let mut conn = Conn::establish(&self.url).unwrap();
        let repeated = repeat.idempotency_key(key).execute(&mut conn).done();
        if repeated != Ok(1) || self.total() != before + 1 {
            wrong.push(format!("its repeat: {repeated:?}, {} there", self.total() - before));
        }
    }
}

fn is_unknown(error: &diesel::result::Error) -> bool {
    let diesel::result::Error::QueryBuilderError(boxed) = error else {
        return false;
    };
    matches!(boxed.downcast_ref(), Some(Error::OutcomeUnknown { .. }))
}

/// Kills each statement of a connection that sleeps, until it is done. How many those were.
fn kill_what_sleeps(killer: &mut MysqlConnection, victim: i64, done: &AtomicBool) -> usize {
    let sleeping = format!(
        "COALESCE(MAX(query_id), 0) FROM information_schema.processlist WHERE id = {victim} AND state = 'User sleep'"
    );
    let (mut last, mut kills) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        let query = number!(&sleeping, killer);
        if query != last && query != 0 {
            let _ = killer.batch_execute(&format!("KILL QUERY ID {query}")); // it may be killed already
            (last, kills) = (query, kills + 1);
        }
        thread::sleep(Duration::from_millis(1));
    }
    kills
}

#[test]
fn a_compound_statement_is_killed_at_each_step() {
    let mut wrong = vec![];
    for (log, setting) in [("no binary log", "--skip-log-bin"), ("binary log", "--log-bin=binlog")] {
        let server = OwnServer::start_with(Server::Mysql, setting).expect("a server");
        let root = &mut MysqlConnection::establish(&format!("{}/mysql", server.address())).unwrap();
        if number!("VERSION() LIKE '%MariaDB%'", root) == 0 {
            return; // MySQL has no such statement
        }
        root.run("CREATE DATABASE compound");
        let url = format!("{}/compound", server.address());
        let conn = &mut MysqlConnection::establish(&url).unwrap();
        schema::create(conn);
        conn.run_pending_migrations(MIGRATIONS).unwrap();
        for (table, time) in [("diesel_sharded_idempotency_keys", "INSERT"), ("videos_shards", "UPDATE")] {
            conn.run(&format!(
                "CREATE TRIGGER slow_{time} BEFORE {time} ON {table} FOR EACH ROW \
                 BEGIN IF @slow = '{table}' THEN SET @slow = NULL; DO SLEEP(600); END IF; END"
            ));
        }
        let change = diesel_sharded::update(videos.find(1)).set(views.eq(views + 1));
        for key in ["first", "second"] {
            assert_eq!(change.clone().idempotency_key(key).execute(conn), Ok(1)); // from now on this process knows the statement
        }
        let cells = Mutex::new(BTreeMap::<String, BTreeMap<&str, usize>>::new());
        thread::scope(|scope| {
            let threads = [0; THREADS].iter().enumerate().map(|(thread, _)| {
                let mut bench = Bench::new(&url, 1000 + thread as i64);
                let cells = &cells;
                scope.spawn(move || {
                    let count = |(place, outcome)| *cells.lock().unwrap().entry(place).or_default().entry(outcome).or_default() += 1;
                    for round in (thread..rounds()).step_by(THREADS) {
                        let undo = round / THREADS % (UNDO_STEPS + 1);
                        let places = (0..14).flat_map(|n| [Place::Behind(n), Place::WithoutShard(n)]);
                        let others = [Place::Inside, Place::In("diesel_sharded_idempotency_keys"), Place::In("videos_shards")];
                        for place in places.chain(others) {
                            // Where the shard is missing, the undo follows what was not killed too.
                            let undo = if matches!(place, Place::WithoutShard(_)) { 0 } else { undo };
                            bench.kill(place, undo).into_iter().for_each(&count);
                        }
                    }
                    bench.wrong
                })
            });
            let threads: Vec<_> = threads.collect();
            for thread in threads {
                wrong.extend(thread.join().unwrap().into_iter().map(|text| format!("{log}: {text}")));
            }
        });
        let cells = cells.into_inner().unwrap();
        for (place, outcomes) in &cells {
            let number: usize = outcomes.values().sum();
            println!("{log} | {place}: {number} kills, {outcomes:?}");
            if number != rounds() {
                wrong.push(format!("{log}: {number} in {place}"));
            }
        }
        assert!(cells.len() > 14, "{cells:?}");
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
