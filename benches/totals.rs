//! The cost of reading totals, compared with the plain column: one row, a page of 50, and the top ten of 100,000 parents.
//!
//!     cargo bench -p diesel_sharded_benches --bench totals
//!
//! Each parent has 16 shards. Prints the times, and each database's plans for the page and the top ten.

use std::cell::RefCell;

use diesel::connection::SimpleConnection;
use diesel::debug_query;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_sharded::prelude::*;
use diesel_sharded_benches::side_by_side;
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

/// A page of one column of `videos`, by key.
macro_rules! page {
    ($column:expr, $size:expr) => {
        videos
            .filter(id.between(5000, 4999 + $size))
            .select((id, $column))
    };
}
macro_rules! top {
    ($column:expr) => {
        videos.select((id, $column)).order($column.desc()).limit(10)
    };
}

macro_rules! measure {
    ($name:literal, $backend:ty, $connection:ty, $numbers:expr, $analyze:expr, $explain:literal, $line:ty) => {{
        let database = <$connection>::database();
        let conn = RefCell::new(<$connection>::connect(&database));
        schema::create(&mut *conn.borrow_mut());
        let fill = format!(
            "DELETE FROM videos; \
             INSERT INTO videos (id, slug, title, views) SELECT n, n, 'x', n % 1000 FROM ({numbers}) AS numbers; \
             INSERT INTO videos_shards (id, shard, views) SELECT v.id, s.n, v.id % 7 FROM videos v, ({numbers}) AS s WHERE s.n <= 16; \
             {}",
            $analyze,
            numbers = $numbers,
        );
        for statement in fill.split("; ") {
            conn.borrow_mut().batch_execute(statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
        }
        macro_rules! row {
            ($what:literal, $repeat:literal, $plain:expr, $total:expr) => {
                let [plain, total] = side_by_side(
                    11,
                    [
                        &mut || (0..$repeat).for_each(|_| { $plain.load::<(i64, i64)>(&mut *conn.borrow_mut()).unwrap(); }),
                        &mut || (0..$repeat).for_each(|_| { $total.load::<(i64, i64)>(&mut *conn.borrow_mut()).unwrap(); }),
                    ],
                );
                let ratio = total.as_secs_f64() / plain.as_secs_f64();
                println!("| {} | {} | {:?} | {:?} | {ratio:.1} |", $name, $what, plain / $repeat, total / $repeat);
            };
        }
        row!("one row", 200, page!(views, 1), page!(views.total(), 1));
        row!("page of 50", 50, page!(views, 50), page!(views.total(), 50));
        row!("top 10 of 100,000", 1, top!(views), top!(views.total()));
        let plan = |query: String| {
            let query = query.split(" -- binds").next().unwrap_or_default();
            let query = query.replace("$1", "5000").replace("$2", "5049").replace("$3", "10").replacen('?', "5000", 1).replacen('?', "5049", 1);
            let explain = diesel::sql_query(format!("{} {query}", $explain));
            let lines: Vec<$line> = explain.load(&mut *conn.borrow_mut()).unwrap();
            lines.into_iter().map(|line| format!("    {}", line.line)).collect::<Vec<_>>().join("\n")
        };
        format!(
            "{}, page of 50:\n{}\n{}, top 10:\n{}",
            $name,
            plan(debug_query::<$backend, _>(&page!(views.total(), 50)).to_string()),
            $name,
            plan(debug_query::<$backend, _>(&top!(views.total())).to_string().replace("$1", "10").replace('?', "10")),
        )
    }};
}

const POSTGRES_NUMBERS: &str = "SELECT generate_series(1, 100000) AS n";
const MYSQL_NUMBERS: &str = "SELECT seq AS n FROM seq_1_to_100000";
const SQLITE_NUMBERS: &str = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000) SELECT n FROM numbers";
const POSTGRES_ANALYZE: &str = "VACUUM ANALYZE videos; VACUUM ANALYZE videos_shards";
const MYSQL_ANALYZE: &str = "ANALYZE TABLE videos, videos_shards";

fn main() {
    println!("100,000 parents, 16 shards each; medians of 11\n");
    println!("| database | read | plain column | total | ratio |\n|---|---|---|---|---|");
    let plans = [
        measure!(
            "PostgreSQL",
            diesel::pg::Pg,
            PgConnection,
            POSTGRES_NUMBERS,
            POSTGRES_ANALYZE,
            "EXPLAIN (COSTS OFF)",
            PostgresLine
        ),
        measure!(
            "MySQL/MariaDB",
            diesel::mysql::Mysql,
            MysqlConnection,
            MYSQL_NUMBERS,
            MYSQL_ANALYZE,
            "EXPLAIN FORMAT=JSON",
            MysqlLine
        ),
        measure!(
            "SQLite",
            diesel::sqlite::Sqlite,
            SqliteConnection,
            SQLITE_NUMBERS,
            "ANALYZE",
            "EXPLAIN QUERY PLAN",
            SqliteLine
        ),
    ];
    println!("\n{}", plans.join("\n"));
}
