//! The tool with the settings of the reference page on surroundings: what it does, or is refused, is what the table says.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;
use diesel_sharded_tests::schema;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::postgres::cases::{ended, on};

const PAGE: &str = include_str!("../../../src/reference/surroundings.md");

/// Comments are 0, 0 and 2; likes are as many by then.
const RECOUNT: &str = "SELECT video_id, COUNT(*) FROM comments GROUP BY video_id";

/// The settings of PostgreSQL's table, and whether a fold holds with them.
fn settings() -> Vec<(&'static str, bool)> {
    let (_, section) = PAGE.split_once("\n# PostgreSQL\n").expect("a section");
    let (section, _) = section.split_once("\n# ").expect("another section");
    let rows = section
        .lines()
        .filter_map(|row| row.strip_prefix("| `SET "));
    let settings: Vec<_> = rows
        .map(|row| row.split_once('`').expect("a statement"))
        .map(|(setting, cells)| (setting, cells.contains("| none |")))
        .collect();
    assert!(settings.len() > 5);
    settings
}

#[test]
fn settings_of_the_database() {
    for (setting, holds) in settings() {
        let (database, mut conn) = schema::database_with_counters::<PgConnection>();
        conn.batch_execute("UPDATE videos SET likes = CASE id WHEN 3 THEN 2 ELSE 0 END")
            .unwrap();
        let counted = update(videos).set(views.eq(views + 5)).execute(&mut conn);
        assert_eq!(counted, Ok(3));
        conn.batch_execute(&format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {}', current_database()); END $$",
            setting.replace('\'', "''")
        ))
        .unwrap();
        for (line, writes) in [
            (
                &*format!("verify videos likes --recount '{RECOUNT}'"),
                false,
            ),
            ("resize videos views --to 4", true),
            ("fold videos --keep-shards=0", true),
        ] {
            let (code, printed, noted) = ended(on(&database, line).output().unwrap());
            let (told, ended_well) = (printed + &noted, code == Some(0));
            assert_eq!(ended_well, holds || !writes, "{setting}, {line}: {told}");
            assert!(
                ended_well || told.contains("read-only"),
                "{setting}: {told}"
            );
        }
        let totals: Vec<(i64, i64)> = videos
            .select((views, views.total()))
            .order(id)
            .load(&mut conn)
            .unwrap();
        let base = |total| if holds { total } else { total - 5 };
        assert_eq!(
            totals,
            [105, 205, 305].map(|total| (base(total), total)),
            "{setting}"
        );
    }
}
