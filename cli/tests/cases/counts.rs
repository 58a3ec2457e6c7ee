//! `generate --counts`: triggers that count, written, run as Diesel migrations, and refused.

use std::fs;

use diesel::prelude::*;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use diesel_sharded::backend::Dialect;
use diesel_sharded::counter_cache::literal;
use diesel_sharded::prelude::*;
use diesel_sharded::{CounterCache, ShardsTable};
use diesel_sharded_tests::Database;
use diesel_sharded_tests::schema::{self, comments, videos};

use super::Conn;
use super::doctor::levels;
use super::{
    Script, assert_says, at, dialect, empty_database, ended, migration, refused, run, run_noting,
    session,
};

type Backend = <Conn as Connection>::Backend;

fn database() -> (Database, Conn) {
    let (database, mut conn) = empty_database();
    schema::create(&mut conn);
    (database, conn)
}

const COUNTS: &str = "generate --counts comments.video_id videos likes";

#[test]
fn the_text_is_the_librarys() {
    let (database, _conn) = database();
    let cache = CounterCache::of(videos::likes).counts(comments::video_id);
    let up = cache.create_sql(&Backend::default()).unwrap();
    let down = cache.drop_sql(&Backend::default()).unwrap();
    let (printed, notes) = run_noting(&database, &format!("{COUNTS} --print"), 0);
    assert_eq!(printed, migration("count_videos_likes", &up, &down));
    assert_says(
        &notes,
        "diesel-sharded backfill videos likes --recount 'SELECT ",
    );

    let cache = CounterCache::of(videos::views)
        .counts(comments::video_id)
        .sums(comments::id)
        .filter(comments::id.gt(literal(5_i64)))
        .shards(3);
    let up = cache.create_sql(&Backend::default()).unwrap();
    let down = cache.drop_sql(&Backend::default()).unwrap();
    let quote = if up.contains('`') { '`' } else { '"' };
    // Diesel puts parentheses around a comparison.
    let condition = format!("({quote}comments{quote}.{quote}id{quote} > 5)");
    let line =
        "generate videos views --counts=comments.video_id --sums=id --shards=3 --print --where";
    let printed = run(&database, &format!("{line} '{condition}'"), 0);
    assert_eq!(printed, migration("count_videos_views", &up, &down));
}

#[test]
fn a_migration_counts_and_is_filled_by_the_note() {
    let (database, mut conn) = database();
    let conn = &mut conn;
    let project = tempfile::tempdir().unwrap();
    let folder = project.path().join("migrations");
    let generate = |option: &str| {
        let line = format!("{COUNTS} --migration-dir=migrations {option}");
        let generate = at(database.url(), project.path(), &line).output();
        let (code, printed, noted) = ended(generate.unwrap());
        (code, printed + &noted)
    };
    let (code, says) = generate("");
    assert_eq!(code, Some(0), "{says}");
    let source = FileBasedMigrations::from_path(&folder).unwrap();
    conn.run_pending_migrations(source.clone()).unwrap();
    let (code, _) = generate("--locked");
    assert_eq!(code, Some(0));
    let (code, refused) = generate("");
    assert_eq!(code, Some(1), "{refused}");
    assert_says(
        &refused,
        "videos.likes has a counter cache already, `comments_video_id_videos_likes`",
    );

    // The note is a shell's line.
    let recount = says.split_once("--recount '").unwrap().1;
    let recount = recount.split_once("'\n").unwrap().0;
    run(
        &database,
        &format!("backfill videos likes --recount '{recount}'"),
        0,
    );
    conn.script("INSERT INTO comments VALUES (10, 1), (11, 3)");
    let totals = |conn: &mut Conn| {
        let totals = videos::table.select(videos::likes.total());
        totals.order(videos::id).load::<i32>(conn).unwrap()
    };
    assert_eq!(totals(conn), [1, 0, 3]);
    conn.revert_last_migration(source).unwrap();
    conn.script("DELETE FROM comments");
    assert_eq!(totals(conn), [1, 0, 3]);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

/// `doctor` and `status` tell a trigger that is missing.
#[test]
fn a_cache_that_lacks_a_trigger() {
    let (database, mut conn) = database();
    CounterCache::of(videos::likes)
        .counts(comments::video_id)
        .create(&mut conn)
        .unwrap();
    assert_eq!(levels(&database, "counter caches", 0), ["ok"]);
    run(&database, "status", 0);
    let drop = "DROP TRIGGER comments_video_id_videos_likes_delete";
    let drop = match dialect() {
        Dialect::Postgres => format!("{drop} ON comments"),
        _ => drop.to_owned(),
    };
    conn.script(&drop);
    let steps = "
        3: doctor => problem  counter caches: => lacks comments_video_id_videos_likes_delete
        3: status => lacks comments_video_id_videos_likes_delete";
    session(&database, steps);
}

#[test]
fn a_function_for_triggers() {
    let (database, _conn) = database();
    let table = ShardsTable::of(videos::table);
    let Ok(up) = table.add_function_sql(&Backend::default()) else {
        refused(&database, "--function videos => no stored functions");
        return;
    };
    let down = table.drop_function_sql(&Backend::default()).unwrap();
    let printed = run(&database, "generate --function videos --print", 0);
    assert_eq!(printed, migration("function_videos_shards", &up, &down));
}

#[test]
fn what_cannot_count_is_refused() {
    let (database, mut conn) = database();
    conn.script("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(10), n BIGINT NOT NULL)");
    let lines = "
        videos likes views --counts=comments.video_id => one column
        t n --counts=comments.video_id => not sharded
        videos title --counts=comments.video_id => no sharded field
        videos likes --counts=video_id => TABLE.COLUMN
        videos likes --counts=nothing.video_id => no table `nothing`
        videos likes --counts=comments.video => no column `video`
        videos likes --counts=t.name => `videos.id` has
        downloads number --counts=comments.video_id => in this order: version, day
        videos likes --counts=comments.video_id --sums=words => no column `words`
        videos likes --counts=t.n --sums=name => whose sums `videos.likes` cannot hold";
    refused(&database, lines);
    for option in ["--view", "--view=totals"] {
        let (_, says) = run_noting(&database, &format!("{COUNTS} {option}"), 2);
        assert_says(&says, "cannot be used with");
    }
}
