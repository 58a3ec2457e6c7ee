//! Each command as a role that has the privileges of its section in the guide, and as one that lacks a single one of them.

use std::error::Error as StdError;
use std::process::Command;

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::shard_counts::ShardCount;
use diesel_sharded::{Counter, MIGRATIONS, ShardsTable, update};
use diesel_sharded_tests::role::{self, Privilege, Role};
use diesel_sharded_tests::schema;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection};

use super::super::cases::{Script, assert_says};
use super::Conn;

type Result<T = ()> = std::result::Result<T, Box<dyn StdError + Send + Sync>>;

const RECOUNT: &str = "SELECT video_id, COUNT(*) FROM comments GROUP BY video_id";

/// A database with videos that are counted on shards, and the library's tables.
fn database() -> (Database, Conn) {
    let database = Conn::database();
    let mut conn = Conn::connect(&database);
    schema::create(&mut conn);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    (database, conn)
}

/// Five more views and a like more of each video, on a shard.
fn counted(conn: &mut Conn) -> Result {
    let more = (views.eq(views + 5), likes.eq(likes + 1));
    update(videos).set(more).execute(conn)?;
    Ok(())
}

/// Runs the tool; gives what it prints, or what it says where it does not end with this code.
fn run(url: &str, arguments: &[&str], code: i32) -> Result<String> {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_diesel-sharded"));
    tool.current_dir(std::env::temp_dir()).args(arguments);
    let output = tool.env("DATABASE_URL", url).output()?;
    match output.status.code() == Some(code) {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(String::from_utf8(output.stderr)?.into()),
    }
}

/// The same, with numbers of shards that `resize` has set.
fn counted_and_resized(conn: &mut Conn) -> Result {
    counted(conn)?;
    ShardCount::of(views).resize(4, conn)?;
    ShardCount::of(likes).resize(4, conn)?;
    Ok(())
}

/// MySQL and MariaDB let a role see those tables alone on which it has a privilege.
const REFUSALS: &[&str] = &["denied", "that this role may see", "may not see its shards"];

fn needs(sections: &[&str], prepare: fn(&mut Conn) -> Result, operation: fn(&str) -> Result) {
    role::needs(sections, REFUSALS, database, prepare, operation);
}

#[test]
fn status() {
    needs(&["The tool: status"], counted_and_resized, |url| {
        let status = run(url, &["status", "videos"], 0)?;
        assert_says(&status, "615");
        Ok(())
    });
}

#[test]
fn fold() {
    needs(&["The tool: fold"], counted_and_resized, |url| {
        let folded = run(url, &["fold", "videos"], 0)?;
        assert_says(&folded, "3 rows folded (views +15");
        Ok(())
    });
}

/// Videos are the only table that is counted on shards, and there is a named counter.
fn counted_by_name(conn: &mut Conn) -> Result {
    ShardsTable::of(schema::watchlists::table).drop(conn)?;
    ShardsTable::of(schema::downloads::table).drop(conn)?;
    ShardsTable::of(schema::measures::table).drop(conn)?;
    counted_and_resized(conn)?;
    Counter::named("signups").add(7, conn)?;
    Ok(())
}

/// A pass over all tables, as a timer runs it. MySQL and MariaDB hide named counters that the role may not fold.
#[test]
fn fold_of_all_tables() {
    let sections = ["The tool: fold of all tables", "The tool: fold"];
    let refusals = [REFUSALS, &["left out"]].concat();
    role::needs(&sections, &refusals, database, counted_by_name, |url| {
        let folded = run(url, &["fold"], 0)?;
        assert_says(&folded, "3 rows folded (views +15");
        match folded.contains("1 row folded (value +7)") {
            true => Ok(()),
            false => Err(format!("the named counters are left out: {folded}").into()),
        }
    });
}

/// PostgreSQL refuses the named counters. MySQL and MariaDB hide them, and the pass leaves them out.
#[test]
fn fold_of_all_tables_but_one() {
    let (database, mut conn) = database();
    counted_by_name(&mut conn).unwrap();
    let privileges = Privilege::of_sections(&["The tool: fold"], &conn.version());
    let role = Role::with(&database, &privileges);
    let folded = run(&role.url(), &["fold"], 0);
    if conn.version().contains("PostgreSQL") {
        let refused = folded.unwrap_err().to_string();
        assert_says(&refused, "ON diesel_sharded_counter");
    } else {
        let folded = folded.unwrap();
        assert_says(&folded, "3 rows folded (views +15");
        assert!(!folded.contains("diesel_sharded_counters"), "{folded}");
    }
}

/// PostgreSQL refuses a role that may not read the numbers of shards. MySQL and MariaDB hide their table from it: the tool shows
/// none, and a fold keeps all shards.
#[test]
fn numbers_that_may_not_be_read() {
    let (database, mut conn) = database();
    counted_and_resized(&mut conn).unwrap();
    conn.script("INSERT INTO videos_shards (id, shard) VALUES (1, 9)");
    let mut privileges = Privilege::of_sections(&["The tool: fold"], &conn.version());
    privileges.retain(|privilege| !privilege.to_string().contains("shard_numbers"));
    let role = Role::with(&database, &privileges);
    let status = run(&role.url(), &["status", "videos"], 0);
    let folded = run(&role.url(), &["fold", "videos"], 0);
    if conn.version().contains("PostgreSQL") {
        for refused in [status, folded] {
            let refused = refused.unwrap_err().to_string();
            assert_says(&refused, "permission denied");
        }
    } else {
        let (status, folded) = (status.unwrap(), folded.unwrap());
        assert_says(&status, " - ");
        assert_says(&folded, "; 0 empty shards removed");
    }
    let folded = run(database.url(), &["fold", "videos"], 0).unwrap();
    assert_says(&folded, "; 1 empty shard removed");
}

/// The GRANTs that it prints are those that counting and folding lack.
#[test]
fn doctor() {
    let (database, mut conn) = database();
    let mut read = Privilege::of_sections(&["The tool: status"], &conn.version());
    read.retain(|privilege| privilege.to_string().ends_with(" ON videos_shards"));
    let role = Role::with(&database, &read);
    let lacking = |code| -> Vec<String> {
        let json = run(&role.url(), &["doctor", "videos", "--json"], code).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let found = json.as_array().unwrap().iter();
        let found = found.filter(|f| f["check"] == "privileges");
        found
            .map(|f| f["remedy"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    conn.script(&format!(
        "GRANT SELECT (id, views, likes) ON videos TO {}",
        role.name()
    ));
    let grants = lacking(3);
    assert!(grants[0].contains("GRANT INSERT, UPDATE ON "), "{grants:?}");
    conn.script(&grants[0]);
    let grants = lacking(0);
    assert_eq!(grants[0], "");
    assert!(grants[1].contains("GRANT UPDATE ("), "{grants:?}");
    assert!(grants[1].contains("GRANT DELETE ON "), "{grants:?}");
    conn.script(&grants[1]);
    assert_eq!(lacking(0), ["", ""]);
    counted(&mut conn).unwrap();
    run(&role.url(), &["fold", "videos", "--keep-shards=0"], 0).unwrap();
}

#[test]
fn verify() {
    needs(&["The tool: verify"], counted, |url| {
        let arguments = ["verify", "videos", "likes", "--recount", RECOUNT];
        let verified = run(url, &arguments, 3)?;
        assert_says(&verified, "3 rows compared, 3 differ");
        Ok(())
    });
}

#[test]
fn backfill() {
    needs(&["The tool: backfill"], counted, |url| {
        let arguments = ["backfill", "videos", "likes", "--recount", RECOUNT];
        let repaired = run(url, &arguments, 0)?;
        assert_says(&repaired, "3 repaired");
        Ok(())
    });
}

/// The privilege that is lacking is named, and the statement that grants it is enough.
#[test]
fn a_privilege_that_is_lacking_is_named_and_granted() {
    let (database, mut conn) = database();
    counted(&mut conn).unwrap();
    let backfill = ["backfill", "videos", "likes", "--recount", RECOUNT];
    let all = Privilege::of_sections(&["The tool: backfill"], &conn.version());
    for lacking in ["UPDATE (likes) ON videos", "SELECT ON comments"] {
        let others = all.iter().filter(|p| p.to_string() != lacking).cloned();
        let role = Role::with(&database, &others.collect::<Vec<_>>());
        let refused = run(&role.url(), &backfill, 0).unwrap_err().to_string();
        let named = format!("error: this role may not {lacking}: ");
        let (_, rest) = refused
            .split_once(&named)
            .unwrap_or_else(|| panic!("{refused}"));
        assert!(!rest.contains("go on"), "{rest}");
        let (grant, _) = rest.split_once('\n').unwrap();
        conn.script(grant);
        run(&role.url(), &[&backfill[..], &["--dry-run"]].concat(), 3).unwrap();
    }
    let repaired = Role::with(&database, &all);
    run(&repaired.url(), &backfill, 0).unwrap();

    let of_fold = Privilege::of_sections(&["The tool: fold"], &conn.version());
    let lacking = "UPDATE (views) ON videos";
    let others = of_fold.iter().filter(|p| p.to_string() != lacking).cloned();
    let role = Role::with(&database, &others.collect::<Vec<_>>());
    let refused = run(&role.url(), &["fold", "videos"], 0)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(lacking) && refused.contains("GRANT UPDATE"),
        "{refused}"
    );
}

/// Whatever a fold lacks is named at once.
#[test]
fn all_privileges_that_are_lacking_are_named_at_once() {
    let (database, mut conn) = database();
    counted_and_resized(&mut conn).unwrap();
    let privileges = Privilege::of_sections(&["The tool: verify"], &conn.version());
    let numbers = "GRANT SELECT ON diesel_sharded_shard_numbers TO";
    let role = Role::with(&database, &privileges);
    conn.script(&format!("{numbers} {}", role.name()));
    let refused = run(&role.url(), &["fold", "videos"], 0);
    let refused = refused.unwrap_err().to_string();
    let lacking = "error: this role may not UPDATE (views, likes) ON videos and UPDATE, DELETE ON videos_shards: GRANT ";
    let grants = refused
        .strip_prefix(lacking)
        .unwrap_or_else(|| panic!("{refused}"));
    let (grants, _) = grants.split_once('\n').unwrap();
    for grant in format!("GRANT {grants}").split("; ") {
        conn.script(grant);
    }
    run(&role.url(), &["fold", "videos"], 0).unwrap();
}

/// Each privilege that `setup` lacks is named, and what grants it is printed, until it has them all; also where another role has made
/// the record of migrations.
#[test]
fn setup() {
    for is_recorded in [false, true] {
        let database = Conn::database();
        let mut conn = Conn::connect(&database);
        schema::create(&mut conn);
        if is_recorded {
            conn.applied_migrations().unwrap();
        }
        let mut privileges = Privilege::of_sections(&["The tool: verify"], &conn.version());
        privileges.retain(|privilege| privilege.to_string() == "SELECT ON comments");
        let role = Role::with(&database, &privileges);
        let mut granted = 0;
        while let Err(refused) = run(&role.url(), &["setup"], 0) {
            let refused = refused.to_string();
            let named = refused
                .strip_prefix("error: this role may not ")
                .unwrap_or_else(|| panic!("{refused}"));
            let (grant, _) = named.split_once(": ").unwrap().1.split_once('\n').unwrap();
            conn.script(grant);
            granted += 1;
            assert!(granted < 5, "{refused}");
        }
        assert!(granted > 0);
        assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
    }
}

/// Looks that change nothing name what they lack, too; in whatever language the server answers.
#[test]
fn a_privilege_to_look_is_named_and_granted() {
    let (database, mut conn) = database();
    counted_and_resized(&mut conn).unwrap();
    let postgres = conn.version().contains("PostgreSQL");
    let backfill = ["backfill", "videos", "likes", "--recount", RECOUNT];
    for (arguments, sections, lacking) in [
        (
            &["status", "videos"][..],
            "The tool: status",
            "SELECT ON videos_shards",
        ),
        (
            &["status", "videos"],
            "The tool: status",
            "SELECT ON videos",
        ),
        (
            &["fold", "videos", "--dry-run"],
            "The tool: fold",
            "SELECT ON videos_shards",
        ),
        (
            &["fold", "videos"],
            "The tool: fold",
            "UPDATE (views) ON videos",
        ),
        (&backfill, "The tool: backfill", "UPDATE (likes) ON videos"),
        (&backfill, "The tool: backfill", "SELECT ON comments"),
        (
            &["status", "videos"],
            "The tool: status",
            "SELECT ON diesel_sharded_shard_numbers",
        ),
        (
            &["fold", "videos"],
            "The tool: fold",
            "SELECT ON diesel_sharded_shard_numbers",
        ),
    ] {
        // MySQL and MariaDB hide a table on which a role has no privilege at all.
        let hides = !lacking.starts_with("UPDATE") && !lacking.ends_with("comments");
        if hides && !postgres {
            continue;
        }
        let mut privileges = Privilege::of_section(sections, &conn.version());
        privileges.retain(|privilege| privilege.to_string() != lacking);
        let role = Role::with(&database, &privileges);
        for language in ["C", "de_DE.UTF-8"] {
            if postgres {
                conn.script(&format!(
                    "ALTER ROLE {} SET lc_messages = '{language}'",
                    role.name()
                ));
            }
            let refused = run(&role.url(), arguments, 0).unwrap_err().to_string();
            let named = format!("error: this role may not {lacking}: GRANT ");
            assert!(refused.starts_with(&named), "{arguments:?}: {refused}");
            assert!(
                !postgres || refused.contains("keine Berechtigung") == (language != "C"),
                "{refused}"
            );
        }
        let refused = run(&role.url(), arguments, 0).unwrap_err().to_string();
        let (_, grant) = refused.split_once(": GRANT ").unwrap();
        let (grant, _) = grant.split_once('\n').unwrap();
        conn.script(&format!("GRANT {grant}"));
        let dry_run = (arguments == backfill).then_some("--dry-run");
        let again: Vec<_> = arguments.iter().copied().chain(dry_run).collect();
        run(&role.url(), &again, if dry_run.is_some() { 3 } else { 0 }).unwrap();
    }
}

#[test]
fn a_privilege_to_resize_and_to_remove_is_named_and_granted() {
    let (database, mut conn) = database();
    counted(&mut conn).unwrap();
    // A shard without its row, past the foreign key.
    let off = match conn.version().contains("PostgreSQL") {
        true => "SET session_replication_role = replica",
        false => "SET foreign_key_checks = OFF",
    };
    conn.script(off);
    conn.script("INSERT INTO videos_shards (id, shard) VALUES (99, 0)");
    let all = ["The tool: resize", "The tool: fold"];
    let all = Privilege::of_sections(&all, &conn.version());
    for (arguments, lacking) in [
        (
            &["resize", "videos", "views", "--to=3"][..],
            "INSERT ON diesel_sharded_shard_numbers",
        ),
        (&["remove-orphans", "videos"], "DELETE ON videos_shards"),
    ] {
        let others = all.iter().filter(|p| p.to_string() != lacking).cloned();
        let role = Role::with(&database, &others.collect::<Vec<_>>());
        let refused = run(&role.url(), arguments, 0).unwrap_err().to_string();
        let named = format!("error: this role may not {lacking}: ");
        let grant = refused.strip_prefix(&named).expect(&refused);
        let (grant, _) = grant.split_once('\n').unwrap();
        conn.script(grant);
        run(&role.url(), arguments, 0).unwrap();
    }
}

/// Another failure of a role that lacks nothing, or only what it does not need here, is not explained by privileges.
#[test]
fn an_error_of_another_cause_is_not_a_privilege() {
    let (database, mut conn) = database();
    counted(&mut conn).unwrap();
    let privileges = Privilege::of_section("The tool: verify", &conn.version());
    let role = Role::with(&database, &privileges);
    let recount = "SELECT comments, nothing FROM comments";
    let verify = ["verify", "videos", "likes", "--recount", recount];
    let says = run(&role.url(), &verify, 0).unwrap_err().to_string();
    assert_says(&says, "the recount cannot be run");
    assert!(!says.contains("GRANT"), "{says}");
}

#[test]
fn resize() {
    let sections = ["The tool: resize", "The tool: fold"];
    needs(&sections, counted, |url| {
        for number in ["2", "3"] {
            let resized = run(url, &["resize", "videos", "views", "--to", number], 0)?;
            assert_says(&resized, &format!("now {number}"));
        }
        Ok(())
    });
}

#[test]
fn generate() {
    let (database, mut conn) = database();
    ShardsTable::of(videos).drop(&mut conn).unwrap();
    let arguments = ["generate", "videos", "views", "--print"];
    let of_verify = Privilege::of_sections(&["The tool: verify"], &conn.version());
    let may_read = |table: &str| {
        let read = format!("SELECT ON {table}");
        let mut privileges = of_verify.clone();
        privileges.retain(|privilege| privilege.to_string() == read);
        Role::with(&database, &privileges)
    };
    let printed = run(&may_read("comments").url(), &arguments, 0);
    if conn.version().contains("PostgreSQL") {
        assert!(printed.unwrap().contains("CREATE TABLE"));
    } else {
        let refused = printed.unwrap_err().to_string();
        assert_says(&refused, "that this role may see");
        let printed = run(&may_read("videos").url(), &arguments, 0).unwrap();
        assert_says(&printed, "CREATE TABLE");
    }
}
