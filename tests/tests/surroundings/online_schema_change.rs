//! `pt-online-schema-change` copies the counted table and swaps the copy in while others count and fold: no increment is lost or doubled.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::{fold, update};
use diesel_sharded_tests::schema::{self, videos::dsl::*};
use diesel_sharded_tests::{Stop, TestConnection, count, mysql_client, number};

/// Adds a column with the method that the reference names.
fn add_column(url: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let (settings, database) = mysql_client(url);
    let file = folder.path().join("settings");
    fs::write(&file, settings).expect("settings");
    let table = format!("F={},D={database},t=videos", file.display());
    let ran = Command::new("pt-online-schema-change")
        .args(["--alter", "ADD COLUMN note INTEGER", "--execute"])
        .args(["--alter-foreign-keys-method", "rebuild_constraints"])
        .args([
            "--max-load",
            "",
            "--critical-load",
            "",
            "--chunk-size",
            "100",
        ])
        .arg(table)
        .output()
        .expect("scripts/test.sh --all installs percona-toolkit");
    assert!(ran.status.success(), "{ran:?}");
}

#[test]
fn nothing_is_lost_while_the_parent_is_copied() {
    type Conn = MysqlConnection;
    let (database, mut conn) = schema::database::<Conn>();
    conn.batch_execute(
        "INSERT INTO videos (id, slug, title, views, likes) SELECT seq, CONCAT('slug ', seq), 'title', 0, 0 FROM seq_100_to_5000",
    )
    .unwrap();
    let total = "CAST((SELECT SUM(views) FROM videos) + (SELECT COALESCE(SUM(views), 0) FROM videos_shards) AS SIGNED)";
    let before = number!(total, &mut conn);
    let (counted, next) = (AtomicI64::new(0), AtomicI64::new(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                let conn = &mut Conn::connect(&database);
                while !is_over.load(Ordering::Relaxed) {
                    let key = 100 + next.fetch_add(7, Ordering::Relaxed) % 4_900;
                    let counting = update(videos.find(key)).set(views.eq(views + 1));
                    // While the names are swapped the server may find no such table. What fails has not counted.
                    if let Ok(rows) = counting.execute(conn) {
                        counted.fetch_add(rows as i64, Ordering::Relaxed);
                    }
                }
            });
        }
        scope.spawn(|| {
            let conn = &mut Conn::connect(&database);
            while !is_over.load(Ordering::Relaxed) {
                let _ = fold(videos).run(conn); // it may meet the swap too
            }
        });
        add_column(database.url());
    });
    let counted = counted.into_inner();
    assert!(counted > 0);
    assert_eq!(number!(total, &mut conn) - before, counted);
    assert_eq!(count!(videos.find(2), views.eq(views + 1), &mut conn), 1);
    conn.batch_execute("DELETE FROM videos WHERE id = 2")
        .unwrap();
    let orphans = "COUNT(*) FROM videos_shards WHERE id = 2";
    assert_eq!(number!(orphans, &mut conn), 0); // the copy has the foreign key
}
