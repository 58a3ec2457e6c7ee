//! Each command as a role that has the privileges of its section in the guide, and as one that lacks a single one of them.

use std::error::Error as StdError;

use diesel::prelude::*;
use diesel_sharded::shard_counts::ShardCount;
use diesel_sharded::{Counter, ShardsTable, update};
use diesel_sharded_tests::role::{self, Privilege, Role};
use diesel_sharded_tests::schema;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection};

use super::Conn;
use super::cases::{Script, assert_says, at, ended};

type Result<T = ()> = std::result::Result<T, Box<dyn StdError + Send + Sync>>;

/// The command line that recounts the likes.
fn likes_by(command: &str) -> String {
    let recount = "SELECT video_id, COUNT(*) FROM comments GROUP BY video_id";
    format!("{command} videos likes --recount '{recount}'")
}

/// A database with videos that are counted on shards, and the library's tables.
fn database() -> (Database, Conn) {
    schema::database_with_counters()
}

/// Five more views and a like more of each video, on a shard.
fn counted(conn: &mut Conn) -> Result {
    let more = (views.eq(views + 5), likes.eq(likes + 1));
    update(videos).set(more).execute(conn)?;
    Ok(())
}

/// Runs the tool; gives what it prints, or what it says where it does not end with this code.
fn run(url: &str, line: &str, code: i32) -> Result<String> {
    let output = at(url, &std::env::temp_dir(), line).output()?;
    match ended(output) {
        (ended, printed, _) if ended == Some(code) => Ok(printed),
        (.., noted) => Err(noted.into()),
    }
}

/// Runs the tool, which is refused; what it says.
#[track_caller]
fn refused(role: &Role<'_>, line: &str) -> String {
    run(&role.url(), line, 0).unwrap_err().to_string()
}

/// The statements that it names for what the role lacks.
#[track_caller]
fn grants(refused: &str, lacking: &str) -> String {
    let named = format!("error: this role may not {lacking}: ");
    let grants = refused.strip_prefix(&named);
    let grants = grants.unwrap_or_else(|| panic!("{lacking}: {refused}"));
    grants.split_once('\n').unwrap().0.to_owned()
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
        let status = run(url, "status videos", 0)?;
        assert_says(&status, "615");
        Ok(())
    });
}

#[test]
fn fold() {
    needs(&["The tool: fold"], counted_and_resized, |url| {
        let folded = run(url, "fold videos", 0)?;
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
        let folded = run(url, "fold", 0)?;
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
    let folded = run(&role.url(), "fold", 0);
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
    let status = run(&role.url(), "status videos", 0);
    let folded = run(&role.url(), "fold videos", 0);
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
    let folded = run(database.url(), "fold videos", 0).unwrap();
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
        let json = run(&role.url(), "doctor videos --json", code).unwrap();
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
    run(&role.url(), "fold videos --keep-shards=0", 0).unwrap();
}

#[test]
fn verify() {
    needs(&["The tool: verify"], counted, |url| {
        let verified = run(url, &likes_by("verify"), 3)?;
        assert_says(&verified, "3 rows compared, 3 differ");
        Ok(())
    });
}

#[test]
fn backfill() {
    needs(&["The tool: backfill"], counted, |url| {
        let repaired = run(url, &likes_by("backfill"), 0)?;
        assert_says(&repaired, "3 repaired");
        Ok(())
    });
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
    let lacking = "UPDATE (views, likes) ON videos and UPDATE, DELETE ON videos_shards";
    for grant in grants(&refused(&role, "fold videos"), lacking).split("; ") {
        conn.script(grant);
    }
    run(&role.url(), "fold videos", 0).unwrap();
}

/// A role that may create nothing hears what the database says, and nothing is there.
#[test]
fn setup() {
    let (database, mut conn) = schema::database::<Conn>();
    let mut privileges = Privilege::of_section("The tool: verify", &conn.version());
    privileges.retain(|privilege| privilege.to_string() == "SELECT ON comments");
    let role = Role::with(&database, &privileges);
    assert_says(&refused(&role, "setup"), "denied");
    assert!(Counter::named("a").get(&mut conn).is_err());
}

/// The privilege that is lacking is named, and the statement that grants it is enough; in whatever language the server answers.
#[test]
fn a_privilege_that_is_lacking_is_named_and_granted() {
    let (database, mut conn) = database();
    counted_and_resized(&mut conn).unwrap();
    let postgres = conn.version().contains("PostgreSQL");
    let backfill = &*likes_by("backfill");
    let numbers = "SELECT ON diesel_sharded_shard_numbers";
    let (resize, remove_orphans) = ("resize videos views --to=3", "remove-orphans videos");
    for (line, section, lacking) in [
        ("status videos", "status", "SELECT ON videos_shards"),
        ("status videos", "status", "SELECT ON videos"),
        ("fold videos --dry-run", "fold", "SELECT ON videos_shards"),
        ("fold videos", "fold", "UPDATE (views) ON videos"),
        (backfill, "backfill", "UPDATE (likes) ON videos"),
        ("status videos", "status", numbers),
        ("fold videos", "fold", numbers),
        (resize, "resize", "INSERT ON diesel_sharded_shard_numbers"),
        (remove_orphans, "fold", "DELETE ON videos_shards"),
    ] {
        // MySQL and MariaDB hide a table on which a role has no privilege at all.
        if lacking.starts_with("SELECT") && !postgres {
            continue;
        }
        if line == remove_orphans {
            // A shard without its row, past the foreign key.
            conn.script(match postgres {
                true => "SET session_replication_role = replica",
                false => "SET foreign_key_checks = OFF",
            });
            conn.script("INSERT INTO videos_shards (id, shard) VALUES (99, 0)");
        }
        let sections = [&*format!("The tool: {section}"), "The tool: fold"];
        let sections = match section {
            "resize" => &sections[..], // which folds
            _ => &sections[..1],
        };
        let mut privileges = Privilege::of_sections(sections, &conn.version());
        privileges.retain(|privilege| privilege.to_string() != lacking);
        let role = Role::with(&database, &privileges);
        let mut says = String::new();
        for language in ["C", "de_DE.UTF-8"] {
            if postgres {
                let role = role.name();
                conn.script(&format!("ALTER ROLE {role} SET lc_messages = '{language}'"));
            }
            says = refused(&role, line);
            assert!(grants(&says, lacking).starts_with("GRANT "), "{says}");
            let is_german = says.contains("keine Berechtigung");
            assert!(!postgres || is_german == (language != "C"), "{says}");
        }
        assert!(line != backfill || !says.contains("go on"), "{says}");
        conn.script(&grants(&says, lacking));
        match line == backfill {
            true => run(&role.url(), &format!("{line} --dry-run"), 3),
            false => run(&role.url(), line, 0),
        }
        .unwrap();
    }
}

/// Another failure of a role that lacks nothing, or only what it does not need here, is not explained by privileges.
#[test]
fn an_error_of_another_cause_is_not_a_privilege() {
    let (database, mut conn) = database();
    counted(&mut conn).unwrap();
    let privileges = Privilege::of_section("The tool: verify", &conn.version());
    let role = Role::with(&database, &privileges);
    let verify = "verify videos likes --recount 'SELECT comments, nothing FROM comments'";
    let says = refused(&role, verify);
    assert_says(&says, "the recount cannot be run");
    assert!(!says.contains("GRANT"), "{says}");
}

#[test]
fn resize() {
    let sections = ["The tool: resize", "The tool: fold"];
    needs(&sections, counted, |url| {
        for number in ["2", "3"] {
            let resized = run(url, &format!("resize videos views --to {number}"), 0)?;
            assert_says(&resized, &format!("now {number}"));
        }
        Ok(())
    });
}

#[test]
fn generate() {
    let (database, mut conn) = database();
    ShardsTable::of(videos).drop(&mut conn).unwrap();
    let generate = "generate videos views --print";
    let of_verify = Privilege::of_sections(&["The tool: verify"], &conn.version());
    let may_read = |table: &str| {
        let read = format!("SELECT ON {table}");
        let mut privileges = of_verify.clone();
        privileges.retain(|privilege| privilege.to_string() == read);
        Role::with(&database, &privileges)
    };
    let printed = run(&may_read("comments").url(), generate, 0);
    if conn.version().contains("PostgreSQL") {
        assert!(printed.unwrap().contains("CREATE TABLE"));
    } else {
        let refused = printed.unwrap_err().to_string();
        assert_says(&refused, "that this role may see");
        let printed = run(&may_read("videos").url(), generate, 0).unwrap();
        assert_says(&printed, "CREATE TABLE");
    }
}
