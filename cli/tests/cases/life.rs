//! `status` and `resize`, named counters among them.

use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::Dialect;
use diesel_sharded::{Counter, MIGRATIONS};
use diesel_sharded_tests::schema::videos::dsl;

use super::{Script, assert_says, dialect, empty_database, json_of, run, session, shard, videos};

#[test]
fn status_shows_tables_and_named_counters() {
    let (database, mut conn) = videos(3, 2);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    conn.script("UPDATE videos SET views = 10 WHERE id = 3");
    conn.script("INSERT INTO videos_shards VALUES (2, 7, 100, 0)");
    Counter::named("page:/é").add(5, &mut conn).unwrap();

    let shown = run(&database, "status", 0);
    let videos: Vec<_> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        videos[..8],
        ["videos", "views", "3", "3", "7", "116", "106", "91.4%"],
        "{shown}"
    );
    assert_says(&shown, "Hottest keys of videos");
    assert_says(&shown, "Hottest named counters");
    assert_says(&shown, "page:/é");

    let json = json_of(&database, "status --json --hottest=1", 0);
    assert_eq!(json[0]["table"], "videos");
    assert_eq!(
        json[0]["shards"],
        serde_json::json!({"number": 7, "accuracy": "exact"})
    );
    assert_eq!(json[0]["fields"][0]["total"], 116);
    assert_eq!(json[0]["fields"][1]["unfolded"], 12);
    assert_eq!(json[0]["hottest"].as_array().unwrap().len(), 1);
    assert_eq!(json[0]["hottest"][0]["key"][0], 2);
    assert_eq!(json[0]["hottest"][0]["totals"][0], 102);
    assert_eq!(json[1]["hottest"][0]["key"][0], "page:/é");
    let one = run(&database, "status videos", 0);
    assert!(!one.contains("diesel_sharded_counters"), "{one}");
}

#[test]
fn the_library_counts_by_the_number_that_the_tool_has_set() {
    let (database, mut conn) = videos(1, 1);
    let steps = "
        0: setup
        0: resize videos views --to=3";
    session(&database, steps);
    let number = diesel_sharded::shard_counts::ShardCount::of(dsl::views);
    assert_eq!(number.get(&mut conn), Ok(3));
}

#[test]
fn named_counters_are_resized_folded_and_verified() {
    let (database, mut conn) = empty_database();
    let missing = "1: resize --counter 'a b' --to=3 => diesel_sharded::MIGRATIONS";
    session(&database, missing);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    for name in ["a b", "c"] {
        Counter::named(name).add(5, &mut conn).unwrap();
    }
    let steps = "
        1: resize --counter a --to=3 => there is no counter `a`
        1: resize --counter a_b --to=3 => there is no counter `a_b`
        0: resize --counter 'a b' --to=3 == a b: 128 shards before, now 3";
    session(&database, steps);
    assert_eq!(Counter::named("a b").shards(&mut conn), Ok(3));
    assert_eq!(Counter::named("a b").estimate(&mut conn), Ok(5));

    let steps = "
        0: fold diesel_sharded_counters '--after=a b' --dry-run => 1 row to fold (value +5)
        0: fold diesel_sharded_counters
        3: verify diesel_sharded_counters value --recount 'SELECT name, 7 FROM diesel_sharded_counters' => a b: total 5, recounted 7 (+2)
        0: backfill diesel_sharded_counters value --recount 'SELECT name, 7 FROM diesel_sharded_counters'";
    session(&database, steps);
    assert_eq!(Counter::named("a b").get(&mut conn), Ok(7));
    assert_eq!(Counter::named("c").estimate(&mut conn), Ok(7));
}

/// The triggers that an update of the base fires, and the checks that hold for the base alone, by name.
#[test]
fn triggers_and_checks_on_counted_tables_are_named() {
    let (database, mut conn) = empty_database();
    let dialect = dialect();
    conn.script(
        "CREATE TABLE posts (id BIGINT PRIMARY KEY, title VARCHAR(20) NOT NULL, edits INTEGER NOT NULL DEFAULT 0, \
             views BIGINT NOT NULL DEFAULT 0, likes INTEGER NOT NULL DEFAULT 0, \
             CONSTRAINT few_views CHECK (views < 1000), CONSTRAINT few_edits CHECK (edits < 1000))",
    );
    conn.script(match dialect {
        Dialect::Postgres => {
            "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.edits = NEW.edits + 1; RETURN NEW; END';
             CREATE TRIGGER touch BEFORE UPDATE ON posts FOR EACH ROW EXECUTE FUNCTION touch()"
        }
        Dialect::Mysql => {
            "CREATE TRIGGER touch BEFORE UPDATE ON posts FOR EACH ROW SET NEW.edits = NEW.edits + 1"
        }
        _ => {
            "CREATE TRIGGER touch AFTER UPDATE OF title, views ON posts \
             BEGIN UPDATE posts SET edits = edits + 1 WHERE id = NEW.id; END"
        }
    });
    if dialect == Dialect::Sqlite {
        conn.script(
            "CREATE TRIGGER retitled AFTER UPDATE OF title ON posts BEGIN SELECT 1; END; \
             CREATE TRIGGER added AFTER INSERT ON posts BEGIN SELECT 1; END",
        );
    }
    let notes = "0: generate posts views --print 2> An UPDATE of posts fires: touch. 2> CHECKs on counted columns of posts: few_views.";
    session(&database, notes);

    shard(&database, &mut conn, "posts", &["views"]);
    conn.script(
        "INSERT INTO posts (id, title) VALUES (1, 'a'); INSERT INTO posts_shards VALUES (1, 0, 5)",
    );
    let shown = run(&database, "status", 0);
    assert_says(&shown, "An UPDATE of posts fires: touch.");
    let json = json_of(&database, "status --json", 0);
    assert_eq!(json[0]["update_triggers"], serde_json::json!(["touch"]));
    assert_eq!(json[0]["checks"], serde_json::json!(["few_views"]));
    assert_eq!(json[0]["missing_triggers"], serde_json::Value::Null);
}
