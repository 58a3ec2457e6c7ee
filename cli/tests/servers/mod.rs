//! What only servers have: row locks that others hold, and schemas.

pub mod advise;
mod grants;

use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::backend::Dialect;
use diesel_sharded_tests::TestConnection;

use super::Conn;
use super::cases::{self, Script, assert_says, end, spawn, videos};

#[test]
fn a_fold_waits_for_nobody_and_names_what_is_busy() {
    let (database, mut conn) = videos(3, 2);
    let mut holder = Conn::connect(&database);
    holder
        .transaction(|holder| {
            holder.script("UPDATE videos_shards SET likes = likes WHERE id = 2 AND shard = 1");
            // Of the busy one the shard that nobody holds.
            let folded =
                "3: fold videos => 3 rows folded (views +5, likes +10) 2> row 2 all the time, fold it again later";
            cases::session(&database, folded);
            QueryResult::Ok(())
        })
        .unwrap();
    assert_eq!(cases::totals(&mut conn), [(1, 2, 2), (2, 2, 1), (3, 2, 2)]);
    cases::run(&database, "fold videos", 0);
    assert_eq!(cases::totals(&mut conn), [(1, 2, 2), (2, 2, 2), (3, 2, 2)]);
}

/// A lock on a whole table, which a fold waits for: until it is released, or until its own timeout.
#[test]
fn a_fold_waits_for_a_table_that_is_locked() {
    let (database, mut conn) = videos(3, 2);
    let mut holder = Conn::connect(&database);
    let (lock, release) = match cases::dialect() {
        Dialect::Postgres => (
            "BEGIN; LOCK TABLE videos_shards IN ACCESS EXCLUSIVE MODE",
            "COMMIT",
        ),
        _ => ("LOCK TABLES videos_shards WRITE", "UNLOCK TABLES"),
    };
    holder.script(lock);
    let mut fold = spawn(&database, "fold videos");
    thread::sleep(Duration::from_millis(1500)); // longer than any pause between attempts
    assert_eq!(fold.try_wait().unwrap(), None);
    holder.script(release);
    let ended = end(fold);
    assert_eq!(ended.0, Some(0), "{ended:?}");
    assert_eq!(cases::totals(&mut conn), [(1, 2, 2), (2, 2, 2), (3, 2, 2)]);

    if cases::dialect() == Dialect::Postgres {
        conn.script(
            "UPDATE videos_shards SET views = 1;
             DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = ''20ms''', current_database()); END $$",
        );
        holder.script(lock);
        cases::session(&database, "1: fold videos => lock timeout");
    }
}

/// A schema to which no plain name leads; MySQL's are databases.
struct Schema {
    name: String,
    conn: Conn,
}

impl Drop for Schema {
    fn drop(&mut self) {
        let _ = self
            .conn
            .batch_execute(&format!("DROP SCHEMA {}", self.name)); // PostgreSQL's goes with its database
    }
}

#[test]
fn every_command_takes_a_table_inside_a_schema() {
    let (database, conn) = cases::empty_database();
    let mut schema = Schema {
        name: format!("analytics_{}", std::process::id()),
        conn,
    };
    let name = schema.name.clone();
    let conn = &mut schema.conn;
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    conn.script(&format!(
        "CREATE SCHEMA {name};
         CREATE TABLE {name}.stats (id BIGINT NOT NULL PRIMARY KEY, hits BIGINT NOT NULL DEFAULT 0);
         CREATE TABLE {name}.events (id BIGINT NOT NULL PRIMARY KEY, stat_id BIGINT NOT NULL);
         INSERT INTO {name}.stats VALUES (1, 10), (2, 20)"
    ));
    let stats = &format!("{name}.stats");
    cases::refused(
        &database,
        &format!("{name}.stat hits => there is no table `{name}.stat`"),
    );
    cases::shard(&database, conn, stats, &["hits"]);
    conn.script(&format!(
        "INSERT INTO {name}.stats_shards (id, shard, hits) VALUES (1, 0, 5), (1, 7, 0)"
    ));
    let recount = format!("--recount 'SELECT id, 16 FROM {stats}'");
    let counts = format!("--counts {name}.events.stat_id");
    for (command, options, code, says) in [
        ("generate", "hits --locked --migration-dir=nowhere", 3, ""),
        ("generate", "--function --print", 0, &*name),
        ("generate", &format!("hits {counts} --print"), 0, &name),
        ("status", "", 0, stats),
        ("fold", "--dry-run", 0, "1 row to fold (hits +5)"),
        ("resize", "hits --to=9", 0, "now 9"),
        ("resize", "hits --to=4", 0, "1 empty shard removed"),
        (
            "fold",
            "--keep-shards=0",
            0,
            "0 rows folded; 1 empty shard removed",
        ),
        ("verify", &format!("hits {recount}"), 3, "2 differ"),
        ("backfill", &format!("hits {recount}"), 0, "2 repaired"),
        ("remove-orphans", "", 0, "removed 0 shards"),
    ] {
        let line = format!("{command} {stats} {options}");
        assert_says(&cases::run(&database, &line, code), says);
    }
}
