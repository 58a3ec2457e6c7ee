//! Counter caches beside the ways of each database: search paths, row security and `TRUNCATE` on PostgreSQL, upserts and `REPLACE`.

#[path = "counter_caches/edges.rs"]
mod edges;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::CounterCache;
use diesel_sharded::counter_cache::EveryRow;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::role::{Privilege, Role};
use diesel_sharded_tests::schema::{self, comments, videos};
use diesel_sharded_tests::{Database, TestConnection};

fn cache() -> CounterCache<videos::likes, comments::table, EveryRow> {
    CounterCache::of(videos::likes).counts(comments::video_id)
}

/// Video 3 has two comments and 3 likes, the others have none and 1 and 2: all of them are set to the number of comments.
macro_rules! database {
    ($conn:ty) => {{
        let database = <$conn>::database();
        let mut conn = <$conn>::connect(&database);
        schema::create(&mut conn);
        cache().create(&mut conn).unwrap();
        cache().verify().repair(&mut conn).unwrap();
        assert_eq!(likes!(&mut conn), [0, 0, 2]);
        (database, conn)
    }};
}

macro_rules! likes {
    ($conn:expr) => {{
        let totals = videos::table.select(videos::likes.total());
        totals.order(videos::id).load::<i32>($conn).unwrap()
    }};
}

fn postgres() -> (Database, PgConnection) {
    database!(PgConnection)
}

fn role<'a>(database: &'a Database, conn: &mut PgConnection) -> (Role<'a>, PgConnection) {
    let privileges = Privilege::of_sections(&["Writing counted rows"], &conn.version());
    let role = Role::with(database, &privileges);
    let own = PgConnection::establish(&role.url()).unwrap();
    (role, own)
}

/// A session may lead its own statements to other tables, but not the triggers.
#[test]
fn no_search_path_and_no_temporary_table_misleads_a_trigger() {
    let (_database, mut conn) = postgres();
    let conn = &mut conn;
    conn.batch_execute(
        "CREATE SCHEMA hostile;
         CREATE TABLE hostile.videos (id BIGINT PRIMARY KEY);
         CREATE TABLE hostile.videos_shards (id BIGINT, shard INTEGER, likes INTEGER, PRIMARY KEY (id, shard));
         INSERT INTO hostile.videos VALUES (1), (2), (3);
         CREATE FUNCTION hostile.diverted(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
         CREATE OPERATOR hostile.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = hostile.diverted);
         CREATE TEMPORARY TABLE videos_shards (id BIGINT, shard INTEGER, likes INTEGER, PRIMARY KEY (id, shard));
         SET search_path = hostile, pg_catalog, public;
         INSERT INTO public.comments VALUES (10, 1), (11, 3);
         SET search_path = '';
         INSERT INTO public.comments VALUES (12, 1);
         UPDATE public.comments SET video_id = 2 WHERE id OPERATOR(pg_catalog.=) 10;
         SET search_path = public;
         DROP TABLE pg_temp.videos_shards",
    )
    .unwrap();
    assert_eq!(likes!(conn), [1, 1, 3]);
}

/// A role that sees no video may comment on all of them.
#[test]
fn row_security_hides_no_parent_from_a_trigger() {
    let (database, mut conn) = postgres();
    conn.batch_execute("ALTER TABLE videos ENABLE ROW LEVEL SECURITY; ALTER TABLE videos_shards ENABLE ROW LEVEL SECURITY")
        .unwrap();
    let (_role, mut own) = role(&database, &mut conn);
    own.batch_execute("INSERT INTO comments VALUES (10, 1), (11, 3)")
        .unwrap();
    assert_eq!(likes!(&mut conn), [1, 0, 3]);
}

/// An owner whose rows are hidden from itself gets an error: no comment comes without its count.
#[test]
fn row_security_of_the_owner_is_an_error() {
    let (database, mut admin) = {
        let database = PgConnection::database();
        let mut admin = PgConnection::connect(&database);
        schema::create(&mut admin);
        (database, admin)
    };
    let (role, mut own) = role(&database, &mut admin);
    let name = role.url();
    let name = name.split_once("://").unwrap().1.split([':', '@']).next();
    let name = name.unwrap();
    admin
        .batch_execute(&format!(
            "GRANT CREATE ON SCHEMA public TO {name}; ALTER TABLE videos OWNER TO {name};
             ALTER TABLE videos_shards OWNER TO {name}; ALTER TABLE comments OWNER TO {name}"
        ))
        .unwrap();
    cache().create(&mut own).unwrap();
    own.batch_execute("INSERT INTO comments VALUES (10, 1)")
        .unwrap();
    own.batch_execute(
        "ALTER TABLE videos ENABLE ROW LEVEL SECURITY; ALTER TABLE videos FORCE ROW LEVEL SECURITY",
    )
    .unwrap();
    let refused = own.batch_execute("INSERT INTO comments VALUES (11, 1)");
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("row-level security"), "{refused}");
    assert_eq!(likes!(&mut admin), [2, 2, 3]);
}

/// The function adds to shards that its caller may not write, so nobody else may make a trigger of it.
#[test]
fn the_function_serves_no_other_table() {
    let (database, mut conn) = postgres();
    let (_role, mut own) = role(&database, &mut conn);
    let refused = own.batch_execute(
        "CREATE TEMPORARY TABLE forged (video_id BIGINT);
         CREATE TRIGGER forged AFTER INSERT ON forged REFERENCING NEW TABLE AS sharded_new
             FOR EACH STATEMENT EXECUTE FUNCTION comments_video_id_videos_likes()",
    );
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("permission denied"), "{refused}");
}

#[test]
fn truncate_counts() {
    let (_database, mut conn) = postgres();
    let conn = &mut conn;
    conn.batch_execute("INSERT INTO comments VALUES (10, 1), (11, 3)")
        .unwrap();
    let undone: QueryResult<()> = conn.transaction(|conn| {
        conn.batch_execute("TRUNCATE comments")?;
        assert_eq!(likes!(conn), [0, 0, 0]);
        Err(diesel::result::Error::RollbackTransaction)
    });
    assert!(undone.is_err());
    assert_eq!(likes!(conn), [1, 0, 3]);
    conn.batch_execute("TRUNCATE comments").unwrap();
    assert_eq!(likes!(conn), [0, 0, 0]);
    // With its parents, and their shards.
    conn.batch_execute(
        "ALTER TABLE comments ADD FOREIGN KEY (video_id) REFERENCES videos;
         INSERT INTO comments VALUES (12, 2);
         TRUNCATE videos CASCADE",
    )
    .unwrap();
    assert_eq!(likes!(conn), [0; 0]);
}

/// Its snapshot may be older than rows that it removes.
#[test]
fn truncate_is_refused_above_read_committed() {
    let (_database, mut conn) = postgres();
    let refused = conn
        .build_transaction()
        .repeatable_read()
        .run(|conn| conn.batch_execute("TRUNCATE comments"));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("READ COMMITTED"), "{refused}");
    assert_eq!(likes!(&mut conn), [0, 0, 2]);
}

#[test]
fn upserts_and_copies_count_on_postgres() {
    let (_database, mut conn) = postgres();
    let conn = &mut conn;
    conn.batch_execute(
        "INSERT INTO comments VALUES (1, 1), (10, 2), (11, 2) ON CONFLICT (id) DO UPDATE SET video_id = excluded.video_id;
         INSERT INTO comments VALUES (1, 3), (12, 3) ON CONFLICT DO NOTHING",
    )
    .unwrap();
    assert_eq!(likes!(conn), [1, 2, 2]);
    diesel::copy_from(comments::table)
        .from_insertable([(comments::id.eq(20), comments::video_id.eq(1))])
        .execute(conn)
        .unwrap();
    assert_eq!(likes!(conn), [2, 2, 2]);
}

/// A statement writes one shard of each parent once, whatever the number of its rows.
#[test]
fn a_statement_counts_once_for_each_parent() {
    let (_database, mut conn) = postgres();
    let conn = &mut conn;
    conn.batch_execute("BEGIN").unwrap(); // numbers are reported between transactions
    conn.batch_execute(
        "INSERT INTO comments SELECT 100 + n, 1 + n % 2 FROM generate_series(1, 10000) AS n",
    )
    .unwrap();
    assert_eq!(likes!(conn), [5000, 5000, 2]);
    let before = written(conn);
    conn.batch_execute("DELETE FROM comments WHERE id > 100")
        .unwrap();
    assert_eq!(written(conn) - before, 2);
    assert_eq!(likes!(conn), [0, 0, 2]);
}

/// The rows that this session has written to the shards table and not reported yet.
fn written(conn: &mut PgConnection) -> i64 {
    let written = "SELECT n_tup_ins + n_tup_upd AS number FROM pg_stat_xact_user_tables WHERE relname = 'videos_shards'";
    let written: Number = diesel::sql_query(written).get_result(conn).unwrap();
    written.number
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    number: i64,
}

#[test]
fn upserts_and_replaced_rows_count_on_mysql() {
    let (_database, mut conn) = database!(MysqlConnection);
    let conn = &mut conn;
    for statement in [
        "INSERT INTO comments VALUES (1, 1), (10, 2), (11, 2) ON DUPLICATE KEY UPDATE video_id = VALUES(video_id)",
        "INSERT IGNORE INTO comments VALUES (1, 3), (12, 3)",
        "REPLACE INTO comments VALUES (10, 1), (13, 1)",
    ] {
        conn.batch_execute(statement).unwrap();
    }
    assert_eq!(likes!(conn), [3, 1, 2]);
    assert_eq!(cache().verify().drifts(conn), Ok(vec![]));
}

#[test]
fn upserts_and_replaced_rows_count_on_sqlite() {
    let (_database, mut conn) = database!(SqliteConnection);
    let conn = &mut conn;
    conn.batch_execute(
        "INSERT INTO comments VALUES (1, 1), (10, 2), (11, 2) ON CONFLICT (id) DO UPDATE SET video_id = excluded.video_id;
         INSERT OR IGNORE INTO comments VALUES (1, 3), (12, 3);
         PRAGMA recursive_triggers = ON;
         REPLACE INTO comments VALUES (10, 1), (13, 1)",
    )
    .unwrap();
    assert_eq!(likes!(conn), [3, 1, 2]);
    assert_eq!(cache().verify().drifts(conn), Ok(vec![]));
}

/// An overflow is an error also in statements that ignore or replace what conflicts.
#[test]
fn no_overflow_is_ignored_on_sqlite() {
    let (_database, mut conn) = database!(SqliteConnection);
    let conn = &mut conn;
    conn.batch_execute("INSERT OR REPLACE INTO videos_shards VALUES (1, 0, 0, 2147483647)")
        .unwrap();
    for or in ["", "OR IGNORE", "OR REPLACE"] {
        let insert = format!("INSERT {or} INTO comments VALUES (10, 1)");
        conn.batch_execute(&insert).unwrap_err();
    }
    let rows = comments::table.count().get_result::<i64>(conn);
    assert_eq!((rows, likes!(conn)), (Ok(2), vec![2147483647, 0, 2]));
}

/// The same on MySQL, whose `IGNORE` makes warnings of errors: the row does not come either.
#[test]
fn no_overflow_is_ignored_on_mysql() {
    let (_database, mut conn) = database!(MysqlConnection);
    let conn = &mut conn;
    conn.batch_execute("INSERT INTO videos_shards (id, shard, likes) SELECT 1, n, 2147483647 FROM (SELECT 0 AS n UNION ALL SELECT 1 \
        UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 \
        UNION ALL SELECT 8 UNION ALL SELECT 9 UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13 \
        UNION ALL SELECT 14 UNION ALL SELECT 15) AS numbers")
        .unwrap();
    for ignore in ["", "IGNORE"] {
        let _ = conn.batch_execute(&format!("INSERT {ignore} INTO comments VALUES (10, 1)"));
        let rows = comments::table.count().get_result::<i64>(conn);
        assert_eq!(rows, Ok(2), "{ignore}");
    }
}
