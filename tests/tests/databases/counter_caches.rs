//! Counter caches beside the ways of each database: search paths and row security on PostgreSQL, transactions that end while another's
//! statement runs, and the statements of `counter_caches/edges.txt`.

use std::thread;
use std::time::Duration;

#[path = "counter_caches/edges.rs"]
mod edges;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::counter_cache::EveryRow;
use diesel_sharded::prelude::*;
use diesel_sharded::{CounterCache, ShardsTable, fold};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::role::Role;
use diesel_sharded_tests::schema::{comments, videos};
use diesel_sharded_tests::{Database, TestConnection, number, until};

fn cache() -> CounterCache<videos::likes, comments::table, EveryRow> {
    CounterCache::of(videos::likes).counts(comments::video_id)
}

/// Video 3 has two comments and 3 likes, the others have none and 1 and 2: all of them are set to the number of comments.
macro_rules! counted {
    ($conn:ty) => {{
        let mut own = Fixture::<$conn, _>::with_tables();
        cache().create(&mut own[0]).unwrap();
        cache().verify().repair(&mut own[0]).unwrap();
        assert_eq!(likes!(&mut own[0]), [0, 0, 2]);
        own
    }};
}

macro_rules! likes {
    ($conn:expr) => {{
        let totals = videos::table.select(videos::likes.total());
        totals.order(videos::id).load::<i32>($conn).unwrap()
    }};
}

fn postgres<const N: usize>() -> Fixture<PgConnection, N> {
    counted!(PgConnection)
}

fn role<'a>(database: &'a Database, conn: &mut PgConnection) -> (Role<'a>, PgConnection) {
    Role::acting(&["Writing counted rows"], |_| false, database, conn)
}

/// A session may lead its own statements to other tables, but not the triggers.
#[test]
fn no_search_path_and_no_temporary_table_misleads_a_trigger() {
    let [conn] = &mut *postgres();
    conn.run(
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
    );
    assert_eq!(likes!(conn), [1, 1, 3]);
}

/// A role that sees no video may comment on all of them.
#[test]
fn row_security_hides_no_parent_from_a_trigger() {
    let own = &mut postgres();
    let (database, [conn]) = own.parts();
    conn.run("ALTER TABLE videos ENABLE ROW LEVEL SECURITY; ALTER TABLE videos_shards ENABLE ROW LEVEL SECURITY");
    let (_role, mut writer) = role(database, conn);
    writer.run("INSERT INTO comments VALUES (10, 1), (11, 3)");
    assert_eq!(likes!(conn), [1, 0, 3]);
}

/// As of a logical replica, or a restore with `--disable-triggers`.
#[test]
fn rows_that_fire_no_trigger_are_counted_by_a_repair() {
    let [conn] = &mut *postgres();
    conn.run(
        "SET session_replication_role = replica; INSERT INTO comments VALUES (10, 1); SET session_replication_role = DEFAULT",
    );
    assert_eq!(likes!(conn), [0, 0, 2]);
    cache().verify().repair(conn).unwrap();
    assert_eq!(likes!(conn), [1, 0, 2]);
}

/// An owner whose rows are hidden from itself gets an error: no comment comes without its increment.
#[test]
fn row_security_of_the_owner_is_an_error() {
    let own = &mut Fixture::<PgConnection, _>::with_tables();
    let (database, [admin]) = own.parts();
    let (role, mut owner) = role(database, admin);
    let name = role.name();
    admin.run(&format!(
        "GRANT CREATE ON SCHEMA public TO {name}; ALTER TABLE videos OWNER TO {name};
             ALTER TABLE videos_shards OWNER TO {name}; ALTER TABLE comments OWNER TO {name}"
    ));
    cache().create(&mut owner).unwrap();
    owner.run("INSERT INTO comments VALUES (10, 1)");
    owner.run(
        "ALTER TABLE videos ENABLE ROW LEVEL SECURITY; ALTER TABLE videos FORCE ROW LEVEL SECURITY",
    );
    // Video 2 has no shard that an increment would find without the video.
    let refused = owner.batch_execute("INSERT INTO comments VALUES (11, 2)");
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("row-level security"), "{refused}");
    assert_eq!(likes!(admin), [2, 2, 3]);
}

/// The function adds to shards that its caller may not write, so nobody else may make a trigger of it.
#[test]
fn the_function_serves_no_other_table() {
    let own = &mut postgres();
    let (database, [conn]) = own.parts();
    let (_role, mut writer) = role(database, conn);
    let refused = writer.batch_execute(
        "CREATE TEMPORARY TABLE forged (video_id BIGINT);
         CREATE TRIGGER forged AFTER INSERT ON forged REFERENCING NEW TABLE AS sharded_new
             FOR EACH STATEMENT EXECUTE FUNCTION comments_video_id_videos_likes()",
    );
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("permission denied"), "{refused}");
}

/// An overflow is an error also in statements that ignore or replace what conflicts.
#[test]
fn no_overflow_is_ignored_on_sqlite() {
    let [conn] = &mut *counted!(SqliteConnection);
    conn.run("INSERT OR REPLACE INTO videos_shards VALUES (1, 0, 0, 2147483647)");
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
    let [conn] = &mut *counted!(MysqlConnection);
    for shard in 0..16 {
        conn.run(&format!(
            "INSERT INTO videos_shards (id, shard, likes) VALUES (1, {shard}, 2147483647)"
        ));
    }
    for ignore in ["", "IGNORE"] {
        let _ = conn.batch_execute(&format!("INSERT {ignore} INTO comments VALUES (10, 1)"));
        let rows = comments::table.count().get_result::<i64>(conn);
        assert_eq!(rows, Ok(2), "{ignore}");
    }
}

const NO_FOREIGN_KEY: &str = "SELECT 1";
const FOREIGN_KEY: &str = "ALTER TABLE comments ADD FOREIGN KEY (video_id) REFERENCES videos (id) ON UPDATE CASCADE ON DELETE CASCADE";

/// Waits until a query, asked by another session, gives more than 0.
macro_rules! until {
    ($conn:expr, $query:expr) => {
        until($query, || {
            // InnoDB shows its transactions anew to one that has not looked for 100 ms.
            thread::sleep(Duration::from_millis(150));
            number!($query, $conn) > 0
        });
    };
}

/// The parent is committed while the statement that refers to it runs. The foreign key sees it, if there is one, and so does the
/// trigger, at any isolation.
#[test]
fn a_parent_that_is_committed_meanwhile_counts_on_mysql() {
    const STATEMENTS: [&str; 3] = [
        "INSERT INTO comments SELECT 10, 99 FROM videos WHERE id = 1 AND GET_LOCK('gate', 60)",
        "REPLACE INTO comments SELECT 1, 99 FROM videos WHERE id = 1 AND GET_LOCK('gate', 60)",
        "UPDATE comments SET video_id = 99 WHERE id = 1 AND (SELECT GET_LOCK('gate', 60) FROM videos AS v WHERE v.id = 1)",
    ];
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        for foreign_key in [FOREIGN_KEY, NO_FOREIGN_KEY] {
            for statement in STATEMENTS {
                let [conn, other] = &mut *counted!(MysqlConnection);
                conn.run(foreign_key);
                conn.run("DO GET_LOCK('gate', 0)");
                other.run(&format!(
                    "SET SESSION TRANSACTION ISOLATION LEVEL {isolation}"
                ));
                thread::scope(|scope| {
                    scope.spawn(|| other.run(statement));
                    until!(
                        conn,
                        "COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock' AND DB = DATABASE()"
                    );
                    conn.run("INSERT INTO videos (id, slug, title) VALUES (99, 'z', 'Z')");
                    conn.run("DO RELEASE_LOCK('gate')");
                });
                let of_99 = videos::table.find(99).select(videos::likes.total());
                let case = format!("{isolation} {foreign_key} {statement}");
                assert_eq!(of_99.first::<i32>(conn), Ok(1), "{case}");
                assert_eq!(cache().verify().drifts(conn), Ok(vec![]), "{case}");
            }
        }
    }
}

/// A transaction that has changed a row is open when the row's parent gets another key.
macro_rules! a_key_changes_beside {
    ($conn:ty, $waits:expr, $foreign_key:expr) => {{
        for statement in [
            "DELETE FROM comments WHERE id = 1",
            "UPDATE comments SET video_id = 2 WHERE id = 1",
            "UPDATE comments SET video_id = 3 WHERE id = 10",
            "INSERT INTO comments VALUES (11, 3)",
        ] {
            let [conn, other, look] = &mut *counted!($conn);
            conn.run($foreign_key);
            // The session has a shard of each: no foreign key of a new one holds their keys.
            conn.run("INSERT INTO comments VALUES (10, 1), (12, 3), (13, 2)");
            conn.run("BEGIN");
            conn.run(statement);
            thread::scope(|scope| {
                scope.spawn(|| other.run("UPDATE videos SET id = 9 WHERE id = 3"));
                until!(look, $waits);
                conn.run("COMMIT");
            });
            assert_eq!(cache().verify().drifts(conn), Ok(vec![]), "{statement}");
            let rows = comments::table.count().get_result::<i64>(conn).unwrap();
            let likes = likes!(conn).into_iter().map(i64::from).sum::<i64>();
            // Without a foreign key rows stay behind, of a parent that is gone.
            let follow = $foreign_key == FOREIGN_KEY;
            assert!(likes == rows || !follow, "{statement}");
        }
    }};
}

const WAITS_ON_POSTGRES: &str = "COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";

/// Without a foreign key the rows do not follow, and those that are not committed are as little counted at the new key.
#[test]
fn a_parents_key_changes_beside_open_transactions_on_postgres() {
    a_key_changes_beside!(PgConnection, WAITS_ON_POSTGRES, FOREIGN_KEY);
    a_key_changes_beside!(PgConnection, WAITS_ON_POSTGRES, NO_FOREIGN_KEY);
}

#[test]
fn a_parents_key_changes_beside_open_transactions_on_mysql() {
    a_key_changes_beside!(
        MysqlConnection,
        "COUNT(*) FROM information_schema.INNODB_TRX JOIN information_schema.PROCESSLIST ON ID = trx_mysql_thread_id \
         WHERE trx_state = 'LOCK WAIT' AND DB = DATABASE()",
        FOREIGN_KEY
    );
}

diesel_sharded_tests::counted_table! {
    Gauge of gauges (id) {
        id -> BigInt = i64,
        #[sharded] large -> BigInt = i64,
        #[sharded] real -> Double = f64,
    }
}

/// 2⁵³ + 1 is no double.
macro_rules! function {
    ($conn:ty, $double:literal, $call:literal, $takes_fractions:literal) => {{
        let [conn] = &mut *Fixture::<$conn, _>::empty();
        conn.run(concat!(
            "CREATE TABLE gauges (id BIGINT PRIMARY KEY, large BIGINT NOT NULL DEFAULT 0, `real` ", $double, " NOT NULL DEFAULT 0)"
        ).replace('`', if $call == "CALL" { "`" } else { "\"" }).as_str());
        conn.run("INSERT INTO gauges (id) VALUES (1)");
        let table = ShardsTable::of(gauges::table);
        table.create(conn).unwrap();
        let backend = <$conn as Connection>::Backend::default();
        conn.run(&table.add_function_sql(&backend).unwrap());
        let mut call = |call: &str| conn.batch_execute(&format!("{} gauges_shards_add{call}", $call));
        call("(1, 9007199254740993, 0)").unwrap();
        call("(1, -1, 0.25)").unwrap();
        call("(1, 0, 1e300)").unwrap();
        call("(1, 0, -1e300)").unwrap();
        call("(1, 9007199254740993, 0.5)").unwrap();
        call("(2, 1, 1)").unwrap(); // no such row
        call("(1, 1, 1, 1)").unwrap_err();
        assert_eq!(call("(1, 0.4, 0)").is_ok(), $takes_fractions); // rounds it to 0
        let totals = gauges::table.select((gauges::large.total(), gauges::real.total()));
        let (large, real) = totals.first::<(i64, f64)>(conn).unwrap();
        assert_eq!(large, 2 * 9_007_199_254_740_993 - 1);
        assert!((0.0..=0.75).contains(&real), "{real}"); // 1e300 takes the digits of what was before
        conn.run(&table.drop_function_sql(&backend).unwrap());
        conn.batch_execute(concat!($call, " gauges_shards_add(1, 1, 1)")).unwrap_err();
    }};
}

#[test]
fn the_function_adds_in_the_fields_own_types() {
    function!(PgConnection, "DOUBLE PRECISION", "SELECT", false);
    function!(MysqlConnection, "DOUBLE", "CALL", true);
}

#[test]
fn named_fields_are_added_on_postgres() {
    let [conn] = &mut *postgres();
    let table = ShardsTable::of(videos::table);
    let function = table.add_function_sql(&diesel::pg::Pg).unwrap();
    conn.run(&function);
    conn.run(
        "SELECT videos_shards_add(1, likes => 5), videos_shards_add(2, likes => -1, views => 2)",
    );
    assert_eq!(likes!(conn), [5, -1, 2]);
}

/// Leaving with a cache, as the guide tells it: plain triggers take its place while others write, and the shards stay empty from the
/// next fold on.
macro_rules! leaves {
    ($conn:ty, $replace:expr) => {{
        const WRITERS: i64 = 4;
        const ROWS: i64 = 60;
        let own = &mut counted!($conn);
        let (database, [conn]) = own.parts();
        let shards = |conn: &mut $conn| number!("COUNT(*) FROM videos_shards", conn);
        fold(videos::table).keep_shards(0).run(conn).unwrap();
        assert_eq!(shards(conn), 0);
        conn.run("INSERT INTO comments VALUES (10, 1)");
        assert_ne!(
            shards(conn),
            0,
            "a cache writes to shards, whatever the application does"
        );
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    let conn = &mut <$conn>::connect(database);
                    for row in 0..ROWS {
                        let id = 1000 + writer * ROWS + row;
                        let write = match row % 3 {
                            0 if row > 0 => format!("DELETE FROM comments WHERE id = {}", id - 1),
                            _ => format!("INSERT INTO comments VALUES ({id}, {})", 1 + row % 2),
                        };
                        conn.run(&write);
                    }
                });
            }
            $replace(conn);
        });
        let folded = fold(videos::table).keep_shards(0).run(conn).unwrap();
        assert!(folded.finished && folded.busy.is_empty());
        conn.run(
            "INSERT INTO comments VALUES (11, 1), (12, 2); DELETE FROM comments WHERE id = 10",
        );
        assert_eq!(shards(conn), 0);
        let bases = videos::table.select((videos::id, videos::likes));
        let bases: Vec<(i64, i32)> = bases.order(videos::id).load(conn).unwrap();
        for (id, likes) in bases {
            let rows = comments::table.filter(comments::video_id.eq(id)).count();
            assert_eq!(rows.get_result(conn), Ok(i64::from(likes)), "{id}");
        }
    }};
}

const ONE_MORE: &str = "UPDATE videos SET likes = likes + 1 WHERE id = NEW.video_id";
const ONE_LESS: &str = "UPDATE videos SET likes = likes - 1 WHERE id = OLD.video_id";

#[test]
fn plain_triggers_take_the_place_of_a_cache_on_postgres() {
    leaves!(PgConnection, |conn: &mut PgConnection| {
        let triggers = format!(
            "CREATE FUNCTION count_comments() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF TG_OP = 'INSERT' THEN {ONE_MORE}; ELSE {ONE_LESS}; END IF; RETURN NULL; END $$;
             CREATE TRIGGER count_comments AFTER INSERT OR DELETE ON comments FOR EACH ROW EXECUTE FUNCTION count_comments()"
        );
        let replaced: QueryResult<()> = conn.transaction(|conn| {
            cache().drop(conn)?;
            conn.batch_execute(&triggers)
        });
        replaced.unwrap();
    });
}

/// `LOCK TABLES` takes the place of the transaction.
#[test]
fn plain_triggers_take_the_place_of_a_cache_on_mysql() {
    leaves!(MysqlConnection, |conn: &mut MysqlConnection| {
        let dropped = cache().drop_sql(&diesel::mysql::Mysql).unwrap();
        conn.run(&format!(
            "LOCK TABLES comments WRITE; {dropped};
             CREATE TRIGGER one_more AFTER INSERT ON comments FOR EACH ROW {ONE_MORE};
             CREATE TRIGGER one_less AFTER DELETE ON comments FOR EACH ROW {ONE_LESS};
             UNLOCK TABLES"
        ));
    });
}

#[test]
fn plain_triggers_take_the_place_of_a_cache_on_sqlite() {
    leaves!(SqliteConnection, |conn: &mut SqliteConnection| {
        let replaced: QueryResult<()> = conn.immediate_transaction(|conn| {
            cache().drop(conn)?;
            conn.batch_execute(&format!(
                "CREATE TRIGGER one_more AFTER INSERT ON comments BEGIN {ONE_MORE}; END;
                 CREATE TRIGGER one_less AFTER DELETE ON comments BEGIN {ONE_LESS}; END"
            ))
        });
        replaced.unwrap();
    });
}
