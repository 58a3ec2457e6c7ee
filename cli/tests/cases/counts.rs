//! `generate --counts`: triggers that count, written, run as Diesel migrations, and refused.

use std::fs;

use diesel::prelude::*;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use diesel_sharded::counter_cache::literal;
use diesel_sharded::prelude::*;
use diesel_sharded::{CounterCache, ShardsTable};
use diesel_sharded_tests::schema::{self, comments, videos};

use super::Conn;
use super::{Script, assert_says, migration, refused, run, run_in, run_noting};

type Backend = <Conn as Connection>::Backend;

const COUNTS: &str = "generate --counts comments.video_id videos likes";

#[test]
fn the_text_is_the_librarys() {
    let (database, _conn) = schema::database::<Conn>();
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
    let (database, mut conn) = schema::database::<Conn>();
    let conn = &mut conn;
    let project = tempfile::tempdir().unwrap();
    let folder = project.path().join("migrations");
    let generate = |option: &str, code| {
        let line = format!("{COUNTS} --migration-dir=migrations {option}");
        run_in(project.path(), &database, &line, code)
    };
    let says = generate("", 0);
    let source = FileBasedMigrations::from_path(&folder).unwrap();
    conn.run_pending_migrations(source.clone()).unwrap();
    generate("--locked", 0);
    let refused = generate("", 1);
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

#[test]
fn a_function_for_triggers() {
    let (database, _conn) = schema::database::<Conn>();
    let table = ShardsTable::of(videos::table);
    let Ok(up) = table.add_function_sql(&Backend::default()) else {
        refused(&database, "--function videos => no stored functions");
        return;
    };
    let down = table.drop_function_sql(&Backend::default()).unwrap();
    let printed = run(&database, "generate --function videos --print", 0);
    assert_eq!(printed, migration("function_videos_shards", &up, &down));
}
