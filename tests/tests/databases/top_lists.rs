//! The first rows by total: the plans for 100,000 parents, the settings of a session, and awaited queries.

use diesel::connection::SimpleConnection;
use diesel::debug_query;
use diesel::prelude::*;
use diesel::query_builder::AsQuery;
use diesel::sql_types::Text;
use diesel_sharded::prelude::*;
use diesel_sharded::top;
use diesel_sharded_tests::awaited::wait;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, schema};

/// Declares a line of a plan; each database names that column differently.
macro_rules! plan_line {
    ($name:ident, $column:literal) => {
        #[derive(QueryableByName)]
        struct $name {
            #[diesel(sql_type = Text, column_name = $column)]
            line: String,
        }
    };
}
plan_line!(PostgresLine, "QUERY PLAN");
plan_line!(MysqlLine, "EXPLAIN");
plan_line!(SqliteLine, "detail");

/// 100,000 videos, of which one in ten has a shard and one in a hundred more of them, with an index on the base.
fn fill(conn: &mut impl SimpleConnection, numbers: &str, analyze: &str) {
    let sql = format!(
        "DELETE FROM videos; \
         INSERT INTO videos (id, slug, title, views) SELECT n, n, 'x', (n * 7919) % 1000003 FROM ({numbers}) AS numbers; \
         INSERT INTO videos_shards (id, shard, views) SELECT v.id, s.n, (v.id * s.n) % 9973 \
             FROM videos v, (SELECT id AS n FROM videos WHERE id <= 20) AS s WHERE v.id % 10 = 3 AND (s.n = 1 OR v.id % 100 = 13); \
         CREATE INDEX videos_views ON videos (views); {analyze}"
    );
    for statement in sql.split("; ") {
        conn.batch_execute(statement)
            .unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
}

/// The plan of the first ten rows, and the check that they are these.
macro_rules! plan {
    ($conn:expr, $backend:ty, $explain:literal, $line:ty) => {{
        let first = top(videos, views, 10).select((id, views));
        let sorted = videos
            .select((id, views.total()))
            .order((views.total().desc(), id.desc()))
            .limit(10);
        let rows: QueryResult<Vec<(i64, i64)>> = first.clone().load($conn);
        assert_eq!(rows, sorted.load($conn));
        let text = debug_query::<$backend, _>(&first.as_query()).to_string();
        let text = text.split(" -- binds").next().unwrap_or_default();
        let text = text
            .replace("OFFSET $3", "OFFSET 0")
            .replace("OFFSET ?", "OFFSET 0");
        let text = text
            .replace(['?'], "10")
            .replace("$1", "10")
            .replace("$2", "10");
        let explain = diesel::sql_query(format!("{} {text}", $explain));
        let lines: Vec<$line> = explain.load($conn).unwrap();
        let lines: Vec<_> = lines.into_iter().map(|line| line.line).collect();
        lines.join("\n")
    }};
}

#[test]
fn postgres_reads_the_first_bases_by_their_index() {
    let (_database, conn) = &mut schema::database::<PgConnection>();
    let numbers = "SELECT generate_series(1, 100000) AS n";
    fill(
        conn,
        numbers,
        "VACUUM ANALYZE videos; VACUUM ANALYZE videos_shards",
    );
    let plan = plan!(conn, diesel::pg::Pg, "EXPLAIN (COSTS OFF)", PostgresLine);
    assert!(
        plan.contains("Backward using videos_views on videos"),
        "{plan}"
    );
    assert!(plan.contains("Anti Join"), "{plan}");
}

#[test]
fn mysql_reads_the_first_bases_by_their_index() {
    let (_database, conn) = &mut schema::database::<MysqlConnection>();
    let numbers = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000) \
                   SELECT a.n + 1000 * (b.n - 1) AS n FROM numbers a, numbers b WHERE b.n <= 100";
    fill(conn, numbers, "ANALYZE TABLE videos, videos_shards");
    let plan = plan!(conn, diesel::mysql::Mysql, "EXPLAIN FORMAT=JSON", MysqlLine);
    assert!(plan.contains(r#""key": "videos_views""#), "{plan}");
}

#[test]
fn sqlite_reads_the_first_bases_by_their_index() {
    let (_database, conn) = &mut schema::database::<SqliteConnection>();
    let numbers = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000) SELECT n FROM numbers";
    fill(conn, numbers, "ANALYZE");
    let plan = plan!(
        conn,
        diesel::sqlite::Sqlite,
        "EXPLAIN QUERY PLAN",
        SqliteLine
    );
    assert!(
        plan.contains("SCAN videos USING INDEX videos_views"),
        "{plan}"
    );
}

#[test]
fn no_setting_of_a_session_cuts_the_list() {
    let (_database, conn) = &mut schema::database::<MysqlConnection>();
    conn.batch_execute("SET SESSION sql_select_limit = 1")
        .unwrap();
    let all = top(videos, views, 10).select(id);
    assert_eq!(all.load(conn), Ok(vec![3_i64, 2, 1]));
}

mod awaited {
    use diesel::prelude::*;
    use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
    use diesel_sharded::top;
    use diesel_sharded_tests::schema::videos::dsl::*;
    use diesel_sharded_tests::schema::{Video, videos as table};

    /// On a task of its own, as only a `Send` future can be.
    pub async fn rows(url: String) -> QueryResult<Vec<(i64, i64)>> {
        let task = tokio::spawn(async move {
            let conn = &mut AsyncPgConnection::establish(&url).await.unwrap();
            let first = top(videos, views, 10).select(Video::as_select());
            assert_eq!(first.first(conn).await?.id, 3);
            let rows = top(videos.filter(id.lt(3)), table::views, 10).select((id, views));
            rows.load(conn).await
        });
        task.await.unwrap()
    }
}

#[test]
fn a_list_is_awaited() {
    let database = PgConnection::database();
    schema::create(&mut PgConnection::connect(&database));
    assert_eq!(
        wait(awaited::rows(database.url().to_owned())),
        Ok(vec![(2, 200), (1, 100)])
    );
}
