//! `diesel migration run`, `revert`, `redo` and `diesel print-schema` with a migration of this tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection};

use super::{Conn, assert_says, ended};

/// The program, as `scripts/test.sh` installs it beside the folder of this build.
fn diesel() -> PathBuf {
    let build = Path::new(env!("CARGO_BIN_EXE_diesel-sharded"));
    let target = build.ancestors().nth(2).expect("a folder of builds");
    let diesel = target.join("diesel_cli/bin/diesel");
    assert!(
        diesel.exists(),
        "no diesel_cli is installed: run `scripts/test.sh --no-run`, or `cargo install diesel_cli --version 2.3.14 --locked --debug \
         --no-default-features --features sqlite-bundled,postgres,mysql --root {}`",
        target.join("diesel_cli").display()
    );
    diesel
}

/// A project with a table of videos, made by its first migration.
struct Project {
    folder: tempfile::TempDir,
    database: Database,
}

impl Project {
    fn new() -> Self {
        let project = Project {
            folder: tempfile::tempdir().unwrap(),
            database: Conn::database(),
        };
        let folder = project.folder.path();
        let first = folder.join("migrations/2020-01-01-000000_videos");
        fs::create_dir_all(&first).unwrap();
        let up = "CREATE TABLE videos (id BIGINT PRIMARY KEY NOT NULL, slug VARCHAR(100) NOT NULL, title VARCHAR(100) NOT NULL, \
                  views BIGINT NOT NULL DEFAULT 0, likes INTEGER NOT NULL DEFAULT 0, channel VARCHAR(100));
                  INSERT INTO videos (id, slug, title) VALUES (1, 'a', ''), (2, 'b', '');\n";
        fs::write(first.join("up.sql"), up).unwrap();
        fs::write(first.join("down.sql"), "DROP TABLE videos;\n").unwrap();
        // Each command writes the schema, with all tables.
        let config = "[print_schema]\nfile = \"schema.rs\"\n";
        fs::write(folder.join("diesel.toml"), config).unwrap();
        project
    }

    fn run(&self, program: &Path, line: &str) -> String {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .args(line.split(' '));
        command.env("DATABASE_URL", self.database.url());
        command.env_remove("MIGRATION_DIRECTORY");
        let output = command.output().unwrap();
        let (code, printed, says) = ended(output);
        assert_eq!(code, Some(0), "{line}: {printed}{says}");
        printed
    }

    fn schema(&self) -> String {
        fs::read_to_string(self.folder.path().join("schema.rs")).unwrap()
    }
}

#[test]
fn a_generated_migration_is_run_reverted_and_redone() {
    let (project, diesel) = (Project::new(), diesel());
    let (diesel, tool) = (&*diesel, Path::new(env!("CARGO_BIN_EXE_diesel-sharded")));
    let mut conn = Conn::connect(&project.database);
    project.run(diesel, "migration run");
    let without = project.schema();
    assert!(!without.contains("videos_shards"), "{without}");

    project.run(tool, "generate videos views likes --view");
    project.run(diesel, "migration run");
    let mut count = || {
        let counted = update(videos.find(1))
            .set((views.eq(views + 5), likes.eq(likes - 1)))
            .execute(&mut conn);
        assert_eq!(counted, Ok(1));
        let read = videos.select((views, likes, views.total(), likes.total()));
        read.order(id).load::<(i64, i32, i64, i32)>(&mut conn)
    };
    assert_eq!(count(), Ok(vec![(0, 0, 5, -1), (0, 0, 0, 0)]));
    // The file that each command writes, and the text that `diesel` prints.
    let printed = project.run(diesel, "print-schema");
    assert_eq!(printed, project.schema());
    let words: Vec<_> = printed.split_whitespace().collect();
    let words = words.join(" ");
    assert_says(&words, "videos_shards (id, shard) { id -> ");
    assert_says(&words, "joinable!(videos_shards -> videos (id))");

    // Down and up again: the bases take what the shards held.
    project.run(diesel, "migration redo");
    assert_eq!(count(), Ok(vec![(5, -1, 10, -2), (0, 0, 0, 0)]));
    project.run(diesel, "migration revert");
    assert_eq!(project.schema(), without);
    let bases = videos.select((views, likes)).order(id);
    assert_eq!(
        bases.load::<(i64, i32)>(&mut Conn::connect(&project.database)),
        Ok(vec![(10, -2), (0, 0)])
    );
    let pending = project.run(diesel, "migration list");
    assert!(
        pending.contains("[ ]") && pending.contains("_shard_videos"),
        "{pending}"
    );
    // It may be run once more, and all migrations be redone.
    project.run(diesel, "migration run");
    project.run(diesel, "migration redo --all");
    let rows: i64 = videos
        .count()
        .get_result(&mut Conn::connect(&project.database))
        .unwrap();
    assert_eq!(rows, 2);
}
