//! `generate`: the library's own text, written, run as Diesel migrations, and refused.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use diesel::migration::MigrationSource;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use diesel_sharded::model::ShardedTable;
use diesel_sharded::prelude::*;
use diesel_sharded::{ShardsTable, update};
use diesel_sharded_tests::Database;
use diesel_sharded_tests::schema::{self, downloads, videos};

use super::Conn;
use super::{
    Script, assert_says, empty_database, migration, number, run, run_in, run_noting, session, shard,
};

type Backend = <Conn as Connection>::Backend;

/// The tables of the library's tests, without shards.
fn unsharded() -> (Database, Conn) {
    let (database, mut conn) = empty_database();
    schema::create(&mut conn);
    ShardsTable::of(videos::table).drop(&mut conn).unwrap();
    ShardsTable::of(downloads::table).drop(&mut conn).unwrap();
    (database, conn)
}

fn printed_by_the_library<T>(name: &str, table: T) -> String
where
    T: ShardedTable + QueryFragment<Backend>,
{
    let table = ShardsTable::of(table);
    let up = table.create_sql(&Backend::default()).unwrap();
    let down = table.drop_sql(&Backend::default()).unwrap();
    migration(&format!("shard_{name}"), &up, &down)
}

#[test]
fn the_text_is_the_librarys() {
    let (database, _conn) = unsharded();
    let printed = run(&database, "generate videos views likes --print", 0);
    assert_eq!(printed, printed_by_the_library("videos", videos::table));
    let printed = run(&database, "generate downloads number --print", 0);
    assert_eq!(
        printed,
        printed_by_the_library("downloads", downloads::table)
    );
}

#[test]
fn a_view_with_totals_is_the_librarys() {
    let (database, mut conn) = unsharded();
    let printed = run(&database, "generate videos views likes --view --print", 0);
    let backend = Backend::default();
    let table = ShardsTable::of(videos::table);
    let (view, other) = (table.view("videos_totals"), table.view("totals"));
    let [create, drop] = [table.create_sql(&backend), table.drop_sql(&backend)].map(Result::unwrap);
    let create_view = view.create_sql(&backend).unwrap();
    let drop_view = view.drop_sql(&backend).unwrap();
    let (up, down) = (
        format!("{create};\n{create_view}"),
        format!("{drop_view};\n{drop}"),
    );
    assert_eq!(printed, migration("shard_videos", &up, &down));
    let printed = run(&database, "generate videos views --view=totals --print", 0);
    assert_says(&printed, &other.drop_sql(&backend).unwrap());

    let project = tempfile::tempdir().unwrap();
    let migrations = project.path().join("migrations");
    fs::create_dir(&migrations).unwrap();
    generate(&database, project.path(), "--view", 0);
    let source = FileBasedMigrations::from_path(&migrations).unwrap();
    conn.run_pending_migrations(source.clone()).unwrap();
    update(videos::table.find(1))
        .set(videos::views.eq(videos::views + 1))
        .execute(&mut conn)
        .unwrap();
    let total = "(SELECT views FROM videos_totals WHERE id = 1)";
    assert_eq!(number(&mut conn, total), 101);
    generate(&database, project.path(), "--view --locked", 0);
    conn.revert_last_migration(source).unwrap();
    let bases = videos::table.find(1).select(videos::views);
    assert_eq!(bases.first::<i64>(&mut conn), Ok(101));
    let says = generate(&database, project.path(), "--view", 0);
    assert_says(&says, "has the same name");
}

/// Runs `generate` of the videos in a folder, which has to end with this code; what it prints and notes.
#[track_caller]
fn generate(database: &Database, folder: &Path, options: &str, code: i32) -> String {
    let line = format!("generate videos views likes {options}");
    run_in(folder, database, &line, code)
}

fn only_migration(folder: &Path) -> PathBuf {
    let mut migrations = fs::read_dir(folder).unwrap();
    let migration = migrations.next().unwrap().unwrap().path();
    assert!(migrations.next().is_none());
    migration
}

#[test]
fn a_migration_is_written_run_and_reverted_without_losing_a_count() {
    let (database, mut conn) = unsharded();
    let project = tempfile::tempdir().unwrap();
    let migrations = project.path().join("migrations");
    let below = project.path().join("src");
    fs::create_dir(&migrations).unwrap();
    fs::create_dir(&below).unwrap();

    let says = generate(&database, &below, "--locked", 3);
    assert_says(&says, "there is no migration");
    generate(&database, &below, "", 0); // finds the folder above
    let migration = only_migration(&migrations);
    assert!(migration.to_string_lossy().ends_with("_shard_videos"));

    let source = FileBasedMigrations::from_path(&migrations).unwrap();
    conn.run_pending_migrations(source.clone()).unwrap();
    for video in [1, 1, 2] {
        update(videos::table.find(video))
            .set((
                videos::views.eq(videos::views + 1),
                videos::likes.eq(videos::likes - 1),
            ))
            .execute(&mut conn)
            .unwrap();
    }
    let bases = videos::table
        .select((videos::views, videos::likes))
        .order(videos::id);
    assert_eq!(bases.first::<(i64, i32)>(&mut conn), Ok((100, 1)));
    let total = videos::table.find(1).select(videos::views.total());
    assert_eq!(total.first::<i64>(&mut conn), Ok(102));

    // Sharded now: no second migration, and the first one is up to date.
    let says = generate(&database, project.path(), "", 1);
    assert_says(&says, "sharded already");
    let says = generate(&database, project.path(), "--locked", 0);
    assert_says(&says, "is up to date");
    assert!(!says.contains("In Rust"), "{says}");
    let folder = migrations.display();
    let other = format!("generate videos views --locked --migration-dir '{folder}'");
    let (_, says) = run_noting(&database, &other, 1);
    assert_says(&says, "fields views, likes");

    conn.revert_last_migration(source).unwrap();
    assert_eq!(
        bases.load::<(i64, i32)>(&mut conn),
        Ok(vec![(102, -1), (201, 1), (300, 3)])
    );

    let up = migration.join("up.sql");
    let text = fs::read_to_string(&up).unwrap();
    fs::write(&up, text.replacen("BIGINT", "INTEGER", 1)).unwrap();
    let says = generate(&database, project.path(), "--locked", 3);
    assert_says(&says, "up.sql is not what would be written now");
}

#[test]
fn names_and_folders_are_those_that_are_asked_for() {
    let (database, mut conn) = unsharded();
    let project = tempfile::tempdir().unwrap();
    let options = "--migration-dir=db/steps '--shards-table=parts \"of\" `it`'";
    generate(&database, project.path(), options, 0);
    let migration = only_migration(&project.path().join("db/steps"));
    conn.script(&fs::read_to_string(migration.join("up.sql")).unwrap());
    let status = run(&database, "status --json", 0);
    assert!(status.contains(r#""parts \"of\" `it`""#), "{status}");
    conn.script(&fs::read_to_string(migration.join("down.sql")).unwrap());
}

#[test]
fn the_folder_is_the_one_of_diesel_toml() {
    let (database, _conn) = unsharded();
    let project = tempfile::tempdir().unwrap();
    let config = project.path().join("diesel.toml");
    fs::create_dir(project.path().join("src")).unwrap();
    fs::write(&config, "[migrations_directory]\ndir = \"steps\"\n").unwrap();
    generate(&database, &project.path().join("src"), "", 0);
    only_migration(&project.path().join("steps"));
    fs::write(&config, "[migrations_directory]\ndir = 1\n").unwrap();
    let says = generate(&database, project.path(), "", 1);
    assert_says(&says, "diesel.toml: ");
}

/// The schema of the tables themselves, by which each of them can be named too.
fn own_schema(database: &Database) -> &str {
    let url = database.url();
    match url.split_once("://") {
        Some(("postgres" | "postgresql", _)) => "public",
        Some(_) => url.rsplit('/').next().unwrap(),
        None => "main",
    }
}

#[test]
fn a_name_with_its_schema_leads_to_its_table() {
    let (database, mut conn) = empty_database();
    conn.script(
        "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, m BIGINT NOT NULL);
         CREATE TABLE u (id BIGINT NOT NULL PRIMARY KEY, t_id BIGINT NOT NULL);
         INSERT INTO t VALUES (1, 10);
         INSERT INTO t VALUES (2, 20)",
    );
    let schema = own_schema(&database);
    let name = format!("{schema}.t");
    shard(&database, &mut conn, &name, &["m", "--view=t_totals"]);
    // The last one names the same table by its plain name.
    let steps = format!(
        "sql: INSERT INTO t_shards (id, shard, m) VALUES (1, 0, 5)
         0: status {name} => {name} => 35
         0: generate --counts {schema}.u.t_id {name} m --print => {schema}
         0: fold {name} => 1 row folded
         0: verify {name} m --recount 'SELECT id, m FROM t'
         0: status t => 35"
    );
    session(&database, &steps);
    let total = "(SELECT m FROM t_totals WHERE id = 1)";
    assert_eq!(number(&mut conn, total), 15);
}

#[test]
fn without_a_foreign_key_it_is_found_by_its_name() {
    let backend = Backend::default();
    let table = ShardsTable::of(videos::table);
    for (option, table) in [
        ("--no-foreign-key", table.without_foreign_key()),
        ("--no-triggers", table.without_triggers()),
    ] {
        let (database, mut conn) = unsharded();
        let line = format!("generate videos views likes {option} --print");
        let [up, down] = [table.create_sql(&backend), table.drop_sql(&backend)].map(Result::unwrap);
        assert_eq!(
            run(&database, &line, 0),
            migration("shard_videos", &up, &down)
        );
        table.create(&mut conn).unwrap();
        let counted = update(videos::table.find(1))
            .set(videos::views.eq(videos::views + 1))
            .execute(&mut conn);
        assert_eq!(counted, Ok(1));
        let steps = "
            0: fold videos => views
            0: remove-orphans videos == videos: removed 0 shards without a row";
        session(&database, steps);
    }
}

/// Migrations of one second: each has a version of its own, or Diesel would run the first of them alone.
#[test]
fn versions_of_one_second_differ() {
    let (database, _conn) = unsharded();
    let project = tempfile::tempdir().unwrap();
    let folder = project.path().join("migrations");
    for what in ["videos views", "downloads number"].repeat(3) {
        let line = format!("generate {what} --migration-dir '{}'", folder.display());
        run(&database, &line, 0);
    }
    let migrations = FileBasedMigrations::from_path(&folder).unwrap();
    let migrations = MigrationSource::<Backend>::migrations(&migrations).unwrap();
    let versions = migrations.iter().map(|m| m.name().version().to_string());
    let versions: BTreeSet<_> = versions.collect();
    assert_eq!(versions.len(), 6, "{versions:?}");
    let folder = folder.display();
    let newest = format!("generate videos views --locked --migration-dir '{folder}'");
    run(&database, &newest, 0);
}
