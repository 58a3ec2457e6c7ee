//! What a counter cache does at its edges, on each database that has them: the total is that of the rows, or the statement is refused,
//! or the guide says that they differ.

use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::ShardsTable;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::TestConnection;
use diesel_sharded_tests::schema::videos;

use super::{Number, cache};

const GUIDE: &str = include_str!("../../../../src/guide/counter_caches.md");

#[derive(Debug, Clone, Copy, PartialEq)]
enum Word {
    /// Each total is the number of its rows.
    Exact,
    /// A statement, or `create`, failed, and nothing was changed.
    Refused,
    /// They differ, and the guide has this in its table.
    Documented(&'static str),
}

use Word::{Documented, Exact, Refused};

/// The words of PostgreSQL, MySQL and SQLite; `None` where there is no such statement.
type Words = [Option<Word>; 3];

struct Edge {
    case: &'static str,
    parent: &'static str,
    child: &'static str,
    /// Those of a second session begin with `2: `.
    statements: &'static [&'static str],
    words: Words,
}

const PARENT: &str = "CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0, likes INTEGER NOT NULL DEFAULT 0)";
const PARTITIONED_PARENT: &str = "CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0, likes INTEGER NOT NULL DEFAULT 0) \
    PARTITION BY RANGE (id); CREATE TABLE videos_all PARTITION OF videos DEFAULT";

const PLAIN: &str = "CREATE TABLE comments (id BIGINT PRIMARY KEY, video_id BIGINT)";
const DEFERRED: &str = "CREATE TABLE comments (id BIGINT PRIMARY KEY, video_id BIGINT, \
    FOREIGN KEY (video_id) REFERENCES videos (id) DEFERRABLE INITIALLY DEFERRED)";
const CASCADE: &str = "CREATE TABLE comments (id BIGINT PRIMARY KEY, video_id BIGINT, \
    FOREIGN KEY (video_id) REFERENCES videos (id) ON UPDATE CASCADE ON DELETE CASCADE)";
const SET_NULL: &str = "CREATE TABLE comments (id BIGINT PRIMARY KEY, video_id BIGINT, \
    FOREIGN KEY (video_id) REFERENCES videos (id) ON UPDATE SET NULL ON DELETE SET NULL)";
const PARTITIONED: &str = "CREATE TABLE comments (id BIGINT NOT NULL, video_id BIGINT) PARTITION BY LIST (id);
    CREATE TABLE comments_1 PARTITION OF comments FOR VALUES IN (1); CREATE TABLE comments_rest PARTITION OF comments DEFAULT";
const PARTITIONED_ON_MYSQL: &str = "CREATE TABLE comments (id BIGINT PRIMARY KEY, video_id BIGINT) \
    PARTITION BY RANGE (id) (PARTITION first VALUES LESS THAN (2), PARTITION rest VALUES LESS THAN MAXVALUE)";

// The first words of rows of the guide's table.
const PARTITION_GONE: &str = "A partition is dropped, detached or truncated";
const PARTITION_WRITTEN: &str =
    "Rows of a partition, or of a table that `INHERITS`, are written under its own name";
const PARENT_LATER: &str = "A parent comes after its rows, or is replaced beside them";
const KEY_LEFT: &str = "A parent's key changes, and its rows do not follow";
const OLD_SNAPSHOT: &str = "A parent is partitioned, and younger than the snapshot";
const TEMPORARY: &str = "A temporary table has the name of the parent or of the shards table";
const TRUNCATED: &str = "`TRUNCATE` of the rows' table";
const TRUNCATED_BESIDE: &str = "`TRUNCATE` beside `drifts`";

/// SQLite's documented way to alter a table.
const REBUILD: &str = "PRAGMA foreign_keys = OFF;
    BEGIN;
    CREATE TABLE new_videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0, likes INTEGER NOT NULL DEFAULT 0, length INTEGER);
    INSERT INTO new_videos SELECT id, views, likes, NULL FROM videos;
    DROP TABLE videos;
    ALTER TABLE new_videos RENAME TO videos;
    COMMIT";

const EDGES: &[Edge] = &[
    Edge {
        case: "a deferred foreign key, the child first",
        parent: PARENT,
        child: DEFERRED,
        statements: &[
            "BEGIN",
            "INSERT INTO comments VALUES (10, 9)",
            "INSERT INTO videos (id) VALUES (9)",
            "COMMIT",
        ],
        words: [
            Some(Documented(PARENT_LATER)),
            None,
            Some(Documented(PARENT_LATER)),
        ],
    },
    Edge {
        case: "a deferred foreign key, the parent deleted and inserted again",
        parent: PARENT,
        child: DEFERRED,
        statements: &[
            "BEGIN",
            "DELETE FROM videos WHERE id = 3",
            "INSERT INTO videos (id) VALUES (3)",
            "COMMIT",
        ],
        words: [
            Some(Documented(PARENT_LATER)),
            None,
            Some(Documented(PARENT_LATER)),
        ],
    },
    Edge {
        case: "no foreign key, the child first",
        parent: PARENT,
        child: PLAIN,
        statements: &[
            "INSERT INTO comments VALUES (10, 9)",
            "INSERT INTO videos (id) VALUES (9)",
        ],
        words: [
            Some(Documented(PARENT_LATER)),
            Some(Documented(PARENT_LATER)),
            Some(Documented(PARENT_LATER)),
        ],
    },
    Edge {
        case: "a partition dropped",
        parent: PARENT,
        child: PARTITIONED,
        statements: &["DROP TABLE comments_1"],
        words: [Some(Documented(PARTITION_GONE)), None, None],
    },
    Edge {
        case: "a partition truncated",
        parent: PARENT,
        child: PARTITIONED,
        statements: &["TRUNCATE comments_1"],
        words: [Some(Documented(PARTITION_GONE)), None, None],
    },
    Edge {
        case: "a partition detached",
        parent: PARENT,
        child: PARTITIONED,
        statements: &["ALTER TABLE comments DETACH PARTITION comments_1"],
        words: [Some(Documented(PARTITION_GONE)), None, None],
    },
    Edge {
        case: "a partition dropped, on MySQL",
        parent: PARENT,
        child: PARTITIONED_ON_MYSQL,
        statements: &["ALTER TABLE comments DROP PARTITION first"],
        words: [None, Some(Documented(PARTITION_GONE)), None],
    },
    Edge {
        case: "a partition truncated, on MySQL",
        parent: PARENT,
        child: PARTITIONED_ON_MYSQL,
        statements: &["ALTER TABLE comments TRUNCATE PARTITION first"],
        words: [None, Some(Documented(PARTITION_GONE)), None],
    },
    Edge {
        case: "rows of a partition",
        parent: PARENT,
        child: PARTITIONED,
        statements: &["INSERT INTO comments_rest VALUES (10, 1)"],
        words: [Some(Documented(PARTITION_WRITTEN)), None, None],
    },
    Edge {
        case: "rows of a table that inherits",
        parent: PARENT,
        child: "CREATE TABLE comments (id BIGINT, video_id BIGINT); CREATE TABLE old_comments () INHERITS (comments)",
        statements: &["INSERT INTO old_comments VALUES (10, 1)"],
        words: [Some(Documented(PARTITION_WRITTEN)), None, None],
    },
    Edge {
        case: "a cache on a partition",
        parent: PARENT,
        child: "CREATE TABLE all_comments (id BIGINT, video_id BIGINT) PARTITION BY LIST (id);
            CREATE TABLE comments PARTITION OF all_comments DEFAULT",
        statements: &[],
        words: [Some(Refused), None, None],
    },
    Edge {
        case: "a cache on a table that inherits",
        parent: PARENT,
        child: "CREATE TABLE all_comments (id BIGINT, video_id BIGINT); CREATE TABLE comments () INHERITS (all_comments)",
        statements: &[],
        words: [Some(Refused), None, None],
    },
    Edge {
        case: "a younger parent under REPEATABLE READ",
        parent: PARENT,
        child: CASCADE,
        statements: &[
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "SELECT 1 FROM videos",
            "2: INSERT INTO videos (id) VALUES (9)",
            "INSERT INTO comments VALUES (10, 9)",
            "COMMIT",
        ],
        words: [Some(Refused), None, None],
    },
    Edge {
        case: "a younger parent under REPEATABLE READ, on MySQL",
        parent: PARENT,
        child: CASCADE,
        statements: &[
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "BEGIN",
            "SELECT 1 FROM videos",
            "2: INSERT INTO videos (id) VALUES (9)",
            "INSERT INTO comments VALUES (10, 9)",
            "COMMIT",
        ],
        words: [None, Some(Exact), None],
    },
    Edge {
        case: "a younger, partitioned parent under REPEATABLE READ",
        parent: PARTITIONED_PARENT,
        child: CASCADE,
        statements: &[
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "SELECT 1 FROM videos",
            "2: INSERT INTO videos (id) VALUES (9)",
            "INSERT INTO comments VALUES (10, 9)",
            "COMMIT",
        ],
        words: [Some(Documented(OLD_SNAPSHOT)), None, None],
    },
    Edge {
        case: "a younger, partitioned parent under READ COMMITTED",
        parent: PARTITIONED_PARENT,
        child: CASCADE,
        statements: &[
            "BEGIN",
            "SELECT 1 FROM videos",
            "2: INSERT INTO videos (id) VALUES (9)",
            "INSERT INTO comments VALUES (10, 9)",
            "COMMIT",
        ],
        words: [Some(Exact), None, None],
    },
    Edge {
        case: "a parent's key with a cascade",
        parent: PARENT,
        child: CASCADE,
        statements: &["UPDATE videos SET id = 9 WHERE id = 3"],
        words: [Some(Exact), Some(Exact), Some(Exact)],
    },
    Edge {
        case: "a parent's key without a cascade",
        parent: PARENT,
        child: PLAIN,
        statements: &["UPDATE videos SET id = 9 WHERE id = 3"],
        words: [
            Some(Exact),
            Some(Documented(KEY_LEFT)),
            Some(Documented(KEY_LEFT)),
        ],
    },
    Edge {
        case: "a parent's key with SET NULL",
        parent: PARENT,
        child: SET_NULL,
        statements: &["UPDATE videos SET id = 9 WHERE id = 3"],
        words: [
            Some(Exact),
            Some(Documented(KEY_LEFT)),
            Some(Documented(KEY_LEFT)),
        ],
    },
    Edge {
        case: "a parent's key that rows have already",
        parent: PARENT,
        child: PLAIN,
        statements: &[
            "INSERT INTO comments VALUES (10, 9)",
            "UPDATE videos SET id = 9 WHERE id = 2",
        ],
        words: [
            Some(Documented(PARENT_LATER)),
            Some(Documented(PARENT_LATER)),
            Some(Documented(PARENT_LATER)),
        ],
    },
    Edge {
        case: "UPDATE OR REPLACE of a parent with a cascade",
        parent: PARENT,
        child: CASCADE,
        statements: &["UPDATE OR REPLACE videos SET id = 3 WHERE id = 1"],
        words: [None, None, Some(Exact)],
    },
    Edge {
        case: "UPDATE OR REPLACE of a parent without one",
        parent: PARENT,
        child: PLAIN,
        statements: &["UPDATE OR REPLACE videos SET id = 3 WHERE id = 1"],
        words: [None, None, Some(Documented(PARENT_LATER))],
    },
    Edge {
        case: "REPLACE INTO the parent with a cascade",
        parent: PARENT,
        child: CASCADE,
        statements: &["REPLACE INTO videos (id) VALUES (3)"],
        words: [None, Some(Exact), Some(Exact)],
    },
    Edge {
        case: "REPLACE INTO the parent without one",
        parent: PARENT,
        child: PLAIN,
        statements: &["REPLACE INTO videos (id) VALUES (3)"],
        words: [
            None,
            Some(Documented(PARENT_LATER)),
            Some(Documented(PARENT_LATER)),
        ],
    },
    Edge {
        case: "INSERT OR REPLACE INTO the parent with a cascade",
        parent: PARENT,
        child: CASCADE,
        statements: &["INSERT OR REPLACE INTO videos (id) VALUES (3)"],
        words: [None, None, Some(Exact)],
    },
    Edge {
        case: "INSERT OR REPLACE INTO the parent without one",
        parent: PARENT,
        child: PLAIN,
        statements: &["INSERT OR REPLACE INTO videos (id) VALUES (3)"],
        words: [None, None, Some(Documented(PARENT_LATER))],
    },
    Edge {
        case: "foreign_key_checks = 0, the child first",
        parent: PARENT,
        child: CASCADE,
        statements: &[
            "SET foreign_key_checks = 0",
            "INSERT INTO comments VALUES (10, 9)",
            "INSERT INTO videos (id) VALUES (9)",
        ],
        words: [None, Some(Documented(PARENT_LATER)), None],
    },
    Edge {
        case: "foreign_key_checks = 0, the parent deleted and inserted again",
        parent: PARENT,
        child: CASCADE,
        statements: &[
            "SET foreign_key_checks = 0",
            "DELETE FROM videos WHERE id = 3",
            "INSERT INTO videos (id) VALUES (3)",
        ],
        words: [None, Some(Exact), None],
    },
    Edge {
        case: "foreign_keys = OFF, the parent deleted and inserted again",
        parent: PARENT,
        child: CASCADE,
        statements: &[
            "PRAGMA foreign_keys = OFF",
            "DELETE FROM videos WHERE id = 3",
            "INSERT INTO videos (id) VALUES (3)",
        ],
        words: [None, None, Some(Documented(PARENT_LATER))],
    },
    Edge {
        case: "a temporary table of the shards table's name",
        parent: PARENT,
        child: PLAIN,
        statements: &[
            "CREATE TEMPORARY TABLE videos_shards (id BIGINT, shard INTEGER, likes INTEGER, PRIMARY KEY (id, shard))",
            "INSERT INTO comments VALUES (10, 1)",
            "DROP TABLE videos_shards",
        ],
        words: [Some(Exact), Some(Documented(TEMPORARY)), None],
    },
    Edge {
        case: "a temporary table of the shards table's name, on SQLite",
        parent: PARENT,
        child: PLAIN,
        statements: &[
            "CREATE TEMPORARY TABLE videos_shards (id BIGINT, shard INTEGER, likes INTEGER, PRIMARY KEY (id, shard))",
            "INSERT INTO comments VALUES (10, 1)",
            "DROP TABLE temp.videos_shards",
        ],
        words: [None, None, Some(Exact)],
    },
    Edge {
        case: "a temporary table of the parent's name",
        parent: PARENT,
        child: PLAIN,
        statements: &[
            "CREATE TEMPORARY TABLE videos (id BIGINT PRIMARY KEY)",
            "INSERT INTO comments VALUES (10, 1)",
            "DROP TABLE videos",
        ],
        words: [Some(Exact), Some(Documented(TEMPORARY)), None],
    },
    Edge {
        case: "TRUNCATE",
        parent: PARENT,
        child: PLAIN,
        statements: &["TRUNCATE TABLE comments"],
        words: [Some(Exact), Some(Documented(TRUNCATED)), None],
    },
    Edge {
        case: "TRUNCATE beside `drifts`",
        parent: PARENT,
        child: PLAIN,
        statements: &["2: BEGIN", "2: TRUNCATE comments", "drifts"],
        words: [Some(Documented(TRUNCATED_BESIDE)), None, None],
    },
    Edge {
        case: "a rebuild of the parent",
        parent: PARENT,
        child: CASCADE,
        statements: &[REBUILD],
        words: [None, None, Some(Refused)],
    },
    Edge {
        case: "a rebuild of the parent with legacy_alter_table",
        parent: PARENT,
        child: CASCADE,
        statements: &[
            "PRAGMA legacy_alter_table = ON",
            REBUILD,
            "INSERT INTO comments VALUES (10, 1)",
        ],
        words: [None, None, Some(Exact)],
    },
];

/// Runs a case on one database: what it came to, and what was seen.
macro_rules! come_to {
    ($conn:ty, $edge:expr) => {{
        let edge: &Edge = $edge;
        let database = <$conn>::database();
        let conn = &mut <$conn>::connect(&database);
        let mut second = <$conn>::connect(&database);
        let _ = conn.batch_execute("PRAGMA foreign_keys = ON"); // there is none on servers
        for sql in [
            edge.parent,
            "INSERT INTO videos (id) VALUES (1), (2), (3)",
            edge.child,
        ] {
            conn.batch_execute(sql).unwrap();
        }
        ShardsTable::of(videos::table).create(conn).unwrap();
        let created = cache().create(conn);
        conn.batch_execute("INSERT INTO comments VALUES (1, 3), (2, 3), (3, 1)")
            .unwrap();
        let totals = |conn: &mut $conn| {
            let totals = videos::table.select((videos::id, videos::likes.total()));
            totals.order(videos::id).load::<(i64, i32)>(conn).unwrap()
        };
        let rows = |conn: &mut $conn| {
            let ids = videos::table.select(videos::id).order(videos::id);
            let ids = ids.load::<i64>(conn).unwrap();
            let count = |id| {
                let sql = "SELECT COUNT(*) AS number FROM comments WHERE video_id = ";
                let rows: Number = diesel::sql_query(format!("{sql}{id}"))
                    .get_result(conn)
                    .unwrap();
                (id, i32::try_from(rows.number).unwrap())
            };
            ids.into_iter().map(count).collect::<Vec<_>>()
        };
        let before = totals(conn);
        let counted = if created.is_ok() {
            [1, 0, 2]
        } else {
            [0, 0, 0]
        };
        assert_eq!(
            before,
            [1, 2, 3].into_iter().zip(counted).collect::<Vec<_>>(),
            "{}",
            edge.case
        );
        let (mut drifts, mut done) = (vec![], created);
        for statement in edge.statements {
            done = done.and_then(|()| match statement.strip_prefix("2: ") {
                Some(statement) => second.batch_execute(statement),
                None if *statement == "drifts" => thread::scope(|scope| {
                    let found = scope.spawn(|| cache().verify().drifts(conn));
                    loop {
                        let waiting = diesel::sql_query(
                            "SELECT COUNT(*) AS number FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
                        );
                        if waiting.get_result::<Number>(&mut second)?.number > 0 {
                            break;
                        }
                        thread::sleep(Duration::from_millis(5));
                    }
                    second.batch_execute("COMMIT")?;
                    drifts = found.join().unwrap()?;
                    Ok(())
                }),
                None => conn.batch_execute(statement),
            });
        }
        match done {
            Err(error) => {
                let _ = conn.batch_execute("ROLLBACK");
                let after = totals(conn);
                let kept = before.iter().all(|total| after.contains(total));
                (
                    kept.then_some(Refused),
                    format!("{error}; {before:?}, {after:?}"),
                )
            }
            Ok(()) => {
                let (totals, rows) = (totals(conn), rows(conn));
                let equal = totals == rows && drifts.is_empty();
                let seen = format!("{totals:?}, {rows:?}, {drifts:?}");
                (Some(if equal { Exact } else { Documented("") }), seen)
            }
        }
    }};
}

/// Compares all cases of one database with their words.
fn check(database: usize, come_to: impl Fn(&Edge) -> (Option<Word>, String)) {
    let mut wrong = vec![];
    for edge in EDGES {
        let Some(word) = edge.words[database] else {
            continue;
        };
        let (is, seen) = come_to(edge);
        let as_said = match word {
            Documented(row) => is == Some(Documented("")) && GUIDE.contains(&format!("\n| {row}")),
            word => is == Some(word),
        };
        if !as_said {
            wrong.push(format!(
                "{}: {is:?} in place of {word:?}: {seen}",
                edge.case
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn edges_on_postgres() {
    check(0, |edge| come_to!(PgConnection, edge));
}

#[test]
fn edges_on_mysql() {
    let database = MysqlConnection::database();
    let is_mariadb = MysqlConnection::connect(&database)
        .version()
        .contains("MariaDB");
    check(1, |edge| match edge.case {
        // MySQL 9.7 updates the row in place, and its shards stay. Earlier ones replace it.
        "REPLACE INTO the parent without one" if !is_mariadb => {
            match come_to!(MysqlConnection, edge) {
                (Some(Exact), seen) => (Some(Documented("")), seen),
                other => other,
            }
        }
        _ => come_to!(MysqlConnection, edge),
    });
}

#[test]
fn edges_on_sqlite() {
    check(2, |edge| come_to!(SqliteConnection, edge));
}
