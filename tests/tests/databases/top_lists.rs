//! The plans of top lists and of totals for 100,000 parents, and the first rows by total under a setting of a session.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_sharded::prelude::*;
use diesel_sharded::{top, verify};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, counted_table, sent};

/// 100,000 videos, of which one in ten has a shard and one in a hundred more of them, with an index on the base.
const FILL: &str = "DELETE FROM videos; \
    INSERT INTO videos (id, slug, title, views) SELECT n, n, 'x', (n * 7919) % 1000003 FROM (NUMBERS) AS numbers; \
    INSERT INTO videos_shards (id, shard, views) SELECT v.id, s.n, (v.id * s.n) % 9973 \
        FROM videos v, (SELECT id AS n FROM videos WHERE id <= 20) AS s WHERE v.id % 10 = 3 AND (s.n = 1 OR v.id % 100 = 13); \
    CREATE INDEX videos_views ON videos (views); \
    CREATE TABLE posts (id BIGINT PRIMARY KEY, hot DOUBLE PRECISION NOT NULL); \
    INSERT INTO posts SELECT n, (n * 7919) % 1000003 FROM (NUMBERS) AS numbers; \
    CREATE INDEX posts_hot ON posts (hot)";

counted_table! {
    pub Post of posts (id) {
        id -> BigInt = i64,
        #[sharded] hot -> Double = f64,
    }
}

/// The text of a query whose binds are numbers, with these in their places.
fn with_values(query: impl ToString) -> String {
    let query = query.to_string();
    let (text, binds) = query.split_once(" -- binds: ").unwrap();
    let values: Vec<_> = binds.trim_matches(['[', ']']).split(", ").collect();
    let mut text = text.to_owned();
    for (number, value) in values.iter().enumerate().rev() {
        text = text.replace(&format!("${}", number + 1), value);
    }
    values
        .iter()
        .fold(text, |text, value| text.replacen('?', value, 1))
}

/// Returns the query for a plan that MySQL itself has left in a variable: an `EXPLAIN` that it prepares has no result.
fn explained_by_mysql(conn: &mut impl SimpleConnection, query: &str) -> String {
    let explain =
        format!("SET explain_json_format_version = 1; EXPLAIN FORMAT=JSON INTO @plan {query}");
    conn.batch_execute(&explain).unwrap();
    "SELECT @plan AS `EXPLAIN`".to_owned()
}

/// The first ten rows are those of a sort of all totals, the next ten begin after them, and the plans say how they are found. Totals of a row and of a
/// page, by themselves and as `verify` reads them, scan no table. The order of scores that fade is that of an index.
macro_rules! rows_are_found_by_indexes {
    ($($name:ident: $conn:ty {
        numbers: $numbers:literal,
        analyze: [$($analyze:literal),+],
        explain: $explain:literal gives $column:literal,
        plan: [$($part:literal),+],
        after: $after:literal,
        scans: [$($scan:literal),+],
        hot: $hot:literal,
    })+) => {$(
        #[test]
        fn $name() {
            #[derive(QueryableByName)]
            struct Line {
                #[diesel(sql_type = Text, column_name = $column)]
                line: String,
            }

            let [conn] = &mut *Fixture::<$conn, _>::with_tables();
            for statement in FILL.replace("NUMBERS", $numbers).split("; ").chain([$($analyze),+]) {
                conn.run(statement);
            }
            let first = top(videos, views, 10).select((id, views));
            let rows: QueryResult<Vec<(i64, i64)>> = first.clone().load(conn);
            let sorted = videos.select((id, views.total())).order((views.total().desc(), id.desc()));
            assert_eq!(rows, sorted.limit(10).load(conn));
            let (key, total) = rows.unwrap()[9];
            let next = top(videos, views, 10).after((total, key)).select((id, views));
            assert_eq!(next.clone().load::<(i64, i64)>(conn), sorted.limit(10).offset(10).load(conn));
            macro_rules! plan_of {
                (|$with:ident| $query:expr) => { plan_of!("videos_shards", |$with| $query) };
                ($table:literal, |$with:ident| $query:expr) => {{
                    let (_, sent) = sent(conn, |$with| $query.unwrap());
                    let totals: Vec<_> = sent.iter().filter(|text| text.contains($table)).collect();
                    assert_eq!(totals.len(), 1, "{sent:?}");
                    let query = with_values(totals[0]);
                    let explain = match conn.version().contains("MariaDB") || !$explain.ends_with("JSON") {
                        true => format!("{} {query}", $explain),
                        false => explained_by_mysql(conn, &query),
                    };
                    let plan: Vec<Line> = diesel::sql_query(explain).load(conn).unwrap();
                    let plan: Vec<_> = plan.into_iter().map(|line| line.line).collect();
                    plan.join("\n")
                }};
            }
            let (first, after) = (plan_of!(|conn| first.load::<(i64, i64)>(conn)), plan_of!(|conn| next.load::<(i64, i64)>(conn)));
            for plan in [&first, &after] {
                $(assert!(plan.contains($part), "{plan}");)+
            }
            assert!(after.contains($after), "{after}");
            let page = videos.filter(id.between(50_000, 50_049));
            for plan in [
                plan_of!(|conn| videos.find(50_003).select(views.total()).first::<i64>(conn)),
                plan_of!(|conn| page.select((id, views.total())).load::<(i64, i64)>(conn)),
                plan_of!(|conn| verify(page, views, page.select((id, views))).drifts(conn)),
            ] {
                $(assert!(!plan.contains($scan), "{plan}");)+
            }
            let hottest = posts::table.select(posts::id).order(posts::hot.estimate().desc()).limit(10);
            let plan = plan_of!("posts", |conn| hottest.load::<i64>(conn));
            assert!(plan.contains($hot), "{plan}");
        }
    )+};
}

rows_are_found_by_indexes! {
    on_postgres: PgConnection {
        numbers: "SELECT generate_series(1, 100000) AS n",
        analyze: ["VACUUM ANALYZE videos", "VACUUM ANALYZE videos_shards"],
        explain: "EXPLAIN (COSTS OFF)" gives "QUERY PLAN",
        plan: ["Backward using videos_views on videos", "Anti Join"],
        after: "Index Cond: ((views <= ",
        scans: ["Seq Scan"],
        hot: "Backward using posts_hot on posts",
    }
    on_mysql: MysqlConnection {
        numbers: "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000) \
                  SELECT a.n + 1000 * (b.n - 1) AS n FROM numbers a, numbers b WHERE b.n <= 100",
        analyze: ["ANALYZE TABLE videos, videos_shards"],
        explain: "EXPLAIN FORMAT=JSON" gives "EXPLAIN",
        plan: [r#""key": "videos_views""#],
        after: r#""access_type": "range""#,
        scans: [r#""access_type": "ALL""#, r#""access_type": "index""#],
        hot: r#""key": "posts_hot""#,
    }
    on_sqlite: SqliteConnection {
        numbers: "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000) SELECT n FROM numbers",
        analyze: ["ANALYZE"],
        explain: "EXPLAIN QUERY PLAN" gives "detail",
        plan: ["videos USING INDEX videos_views"],
        after: "SEARCH videos USING INDEX videos_views (views<?)",
        scans: ["SCAN videos"],
        hot: "INDEX posts_hot",
    }
}

#[test]
fn no_setting_of_a_session_cuts_the_list() {
    let [conn] = &mut *Fixture::<MysqlConnection, _>::with_tables();
    conn.run("SET SESSION sql_select_limit = 1");
    let all = top(videos, views, 10).select(id);
    assert_eq!(all.load(conn), Ok(vec![3_i64, 2, 1]));
}
