//! Shards tables that meet triggers, policies, columns and collations of an application's own.

use bigdecimal::BigDecimal;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded::{Error, ShardsTable, Unfit, fold, set_total, update};
use diesel_sharded_tests::{Database, TestConnection, count};

diesel_sharded_tests::counted_table! {
    Good of goods (id) {
        id -> BigInt = i64,
        name -> Text = String,
        #[sharded] sold -> BigInt = i64,
        #[sharded] price -> Numeric = BigDecimal,
    }
}

diesel_sharded_tests::counted_table! {
    Page of pages (name) {
        name -> Text = String,
        #[sharded] hits -> BigInt = i64,
    }
}

const COUNTED: &str =
    "INSERT INTO goods VALUES (1, 'a', 100, 1.5), (2, 'b', 200, 2.5), (3, 'c', 300, 3.5);
    INSERT INTO goods_shards VALUES (2, 0, 5, 0), (2, 7, 5, 0)";

/// A table with three rows, whose second has 10 on shards.
fn counted<C>() -> (Database, C)
where
    C: TestConnection + diesel::connection::LoadConnection,
    C::Backend: diesel_sharded::backend::BackendOf<C>,
    goods::table: diesel::query_builder::QueryFragment<C::Backend>,
{
    counted_in("sold BIGINT NOT NULL")
}

fn counted_in<C>(sold: &str) -> (Database, C)
where
    C: TestConnection + diesel::connection::LoadConnection,
    C::Backend: diesel_sharded::backend::BackendOf<C>,
    goods::table: diesel::query_builder::QueryFragment<C::Backend>,
{
    let database = C::database();
    let mut conn = C::connect(&database);
    conn.batch_execute(&format!(
        "CREATE TABLE goods (id BIGINT PRIMARY KEY, name VARCHAR(10) NOT NULL UNIQUE, {sold}, price DECIMAL(10, 2) NOT NULL)"
    ))
    .unwrap();
    ShardsTable::of(goods::table).create(&mut conn).unwrap();
    conn.batch_execute(COUNTED).unwrap();
    (database, conn)
}

fn unfit(error: diesel::result::Error) -> (String, Unfit) {
    match Error::from(error) {
        Error::Unfit { table, key, reason } if table == "goods_shards" => (key, reason),
        other => panic!("{other:?}"),
    }
}

fn altered(field: &str, expected: &str, found: &str) -> Unfit {
    Unfit::Altered {
        field: field.into(),
        expected: expected.into(),
        found: found.into(),
    }
}

macro_rules! on {
    ($database:ident, $conn:ty, { $($own:item)* }) => {
        mod $database {
            use super::*;

            type Conn = $conn;

            fn total(conn: &mut Conn, key: i64) -> (i64, BigDecimal) {
                goods::table
                    .find(key)
                    .select((goods::sold.total(), goods::price.total()))
                    .first(conn)
                    .unwrap()
            }

            /// `drop` fails for this reason, in every form of the call, and changes no total.
            fn drop_fails(conn: &mut Conn, reason: Unfit) {
                let table = ShardsTable::of(goods::table);
                let before = total(conn, 2);
                let error = table.drop(conn).unwrap_err();
                assert_eq!(unfit(error), ("2".to_owned(), reason.clone()));
                assert_eq!(total(conn, 2), before);
                let inside = conn.transaction(|conn| {
                    let dropped = table.drop(conn);
                    assert_eq!(total(conn, 2), before);
                    dropped
                });
                match inside.unwrap_err() {
                    diesel::result::Error::AlreadyInTransaction => {
                        assert_eq!(stringify!($database), "mysql");
                    }
                    error => assert_eq!(unfit(error).1, reason),
                }
                conn.revert_migration(&table.migration("20260101000000")).unwrap_err();
                assert_eq!(total(conn, 2), before);
                // Neither a lock nor a transaction is left behind.
                let counted = update(goods::table.find(1)).set(goods::sold.eq(goods::sold + 1));
                assert_eq!(counted.execute(conn), Ok(1));
            }

            fn drop_succeeds(conn: &mut Conn) {
                let before = total(conn, 2);
                ShardsTable::of(goods::table).drop(conn).unwrap();
                let base = goods::table.find(2).select((goods::sold, goods::price));
                assert_eq!(base.first(conn), Ok(before));
                // Nothing is left that would look for the shards.
                conn.batch_execute("UPDATE goods SET id = 20 WHERE id = 2; DELETE FROM goods WHERE id = 20").unwrap();
            }

            #[test]
            fn a_row_that_does_not_take_its_shards_is_named() {
                let (_database, conn) = &mut counted::<Conn>();
                let rounds = !conn.version().contains("SQLite");
                conn.batch_execute(
                    "INSERT INTO goods_shards VALUES (3, 1, 0, 0); UPDATE goods_shards SET price = 0.012, sold = 0 WHERE id = 2",
                )
                .unwrap();
                if rounds {
                    drop_fails(conn, altered("price", "2.524", "2.52"));
                }
                drop_own_trigger_is_named(conn);
                conn.batch_execute("UPDATE goods_shards SET price = 0, sold = 4 WHERE id = 2").unwrap();
                drop_succeeds(conn);
            }

            /// A column that is nullable, against its `table!`, and has no value in a row with shards.
            #[test]
            fn a_base_without_a_value_loses_no_count() {
                let (_database, conn) = &mut counted_in::<Conn>("sold BIGINT NULL");
                conn.batch_execute("UPDATE goods SET sold = NULL WHERE id = 2").unwrap();
                assert_eq!(count!(goods::table.find(2), goods::sold.eq(goods::sold + 1), conn), 1);
                let folded = fold(goods::table).run(conn).unwrap();
                assert_eq!(folded.unfit, [(2, Unfit::NoBase)]);
                let set = set_total(goods::table.find(2), goods::sold, 5).execute(conn);
                assert_eq!(unfit(set.unwrap_err()).1, Unfit::NoBase);
                let table = ShardsTable::of(goods::table);
                assert_eq!(unfit(table.drop(conn).unwrap_err()).1, Unfit::NoBase);
                conn.revert_migration(&table.migration("20260101000000")).unwrap_err();
                conn.batch_execute("UPDATE goods SET sold = 0 WHERE id = 2").unwrap();
                assert_eq!(total(conn, 2).0, 11);
                drop_succeeds(conn);
            }

            /// Each type is summed up in one that neither rounds nor truncates.
            #[test]
            fn every_field_type_is_folded() {
                use diesel_sharded_tests::schema::{self, measures as m};
                let database = Conn::database();
                let conn = &mut Conn::connect(&database);
                schema::create(conn);
                conn.batch_execute(
                    "UPDATE measures SET small = 32766, medium = -2147483647, large = 9223372036854775806, exact = 0.1, f = -1;
                     INSERT INTO measures_shards VALUES (1, 0, 32767, 2147483647, -9223372036854775807, 0.1, 123456789012345678.000001, 1, 2, 3);
                     INSERT INTO measures_shards VALUES (1, 1, -32766, -2147483647, 9223372036854775807, 0.2, 0, 0, 0, 0)",
                )
                .unwrap();
                ShardsTable::of(m::table).drop(conn).unwrap();
                let integers = m::table.select((m::small, m::medium, m::large, m::f, m::g, m::h));
                let expected = (32767_i16, -2147483647, 9223372036854775806_i64, 0_i64, 2_i64, 3_i64);
                assert_eq!(integers.first(conn), Ok(expected));
                let (real, exact) = m::table
                    .select((m::real, m::exact))
                    .first::<(f64, BigDecimal)>(conn)
                    .unwrap();
                assert!((real - 0.3).abs() < 1e-12, "{real}");
                match stringify!($database) {
                    "sqlite" => {} // keeps doubles
                    _ => assert_eq!(exact, "123456789012345678.100001".parse::<BigDecimal>().unwrap()),
                }
            }

            $($own)*
        }
    };
}

on! { postgres, PgConnection, {
    fn drop_own_trigger_is_named(conn: &mut Conn) {
        conn.batch_execute(
            "UPDATE goods_shards SET price = 0, sold = 5 WHERE id = 2;
             CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
             CREATE TRIGGER keep BEFORE UPDATE ON goods FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION keep()",
        )
        .unwrap();
        drop_fails(conn, Unfit::NotWritten { field: "sold".into() });
        conn.batch_execute(
            "CREATE OR REPLACE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS \
                 'BEGIN NEW.sold = NEW.sold - 1; RETURN NEW; END'",
        )
        .unwrap();
        drop_fails(conn, altered("sold", "210", "209"));
        conn.batch_execute("DROP TRIGGER keep ON goods").unwrap();
    }

    /// As a role that owns the tables, and may see all rows and update some.
    #[test]
    fn row_security() {
        let (database, mut conn) = counted::<Conn>();
        let role = format!("owner_{}", database.url().rsplit_once('/').unwrap().1);
        conn.batch_execute(&format!(
            "CREATE ROLE {role}; ALTER TABLE goods OWNER TO {role}; ALTER TABLE goods_shards OWNER TO {role};
             GRANT ALL ON SCHEMA public TO {role};
             ALTER TABLE goods ENABLE ROW LEVEL SECURITY; ALTER TABLE goods FORCE ROW LEVEL SECURITY;
             CREATE POLICY all_read ON goods FOR SELECT USING (TRUE);
             CREATE POLICY own_written ON goods FOR UPDATE USING (id = 1);
             SET ROLE {role}",
        ))
        .unwrap();
        let table = ShardsTable::of(goods::table);
        let error = table.drop(&mut conn).unwrap_err();
        assert_eq!(unfit(error), ("2".to_owned(), Unfit::NotWritten { field: "sold".into() }));
        conn.batch_execute("ALTER POLICY all_read ON goods USING (id = 1)").unwrap();
        let error = table.drop(&mut conn).unwrap_err();
        assert_eq!(unfit(error), ("2".to_owned(), Unfit::NoRow));
        // Nor does it drop shards that are hidden.
        conn.batch_execute(
            "ALTER POLICY all_read ON goods USING (TRUE); ALTER POLICY own_written ON goods USING (TRUE);
             ALTER TABLE goods_shards ENABLE ROW LEVEL SECURITY; ALTER TABLE goods_shards FORCE ROW LEVEL SECURITY",
        )
        .unwrap();
        let error = table.drop(&mut conn).unwrap_err();
        assert!(error.to_string().contains("row security may hide"), "{error}");
        conn.batch_execute("ALTER TABLE goods_shards NO FORCE ROW LEVEL SECURITY").unwrap();
        assert_eq!(total(&mut conn, 2).0, 210);
        drop_succeeds(&mut conn);
        conn.batch_execute(&format!("RESET ROLE; DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).unwrap();
    }

    /// A snapshot that is older than the lock does not see all that would be dropped.
    #[test]
    fn a_drop_above_read_committed() {
        let (database, mut conn) = counted::<Conn>();
        let mut other = Conn::connect(&database);
        let conn = &mut conn;
        let table = ShardsTable::of(goods::table);
        let inside = conn.build_transaction().repeatable_read().run(|conn| {
            assert_eq!(total(conn, 3).0, 300);
            let counted = update(goods::table.find(3)).set(goods::sold.eq(goods::sold + 7));
            assert_eq!(counted.execute(&mut other), Ok(1));
            table.drop(conn)
        });
        let error = inside.unwrap_err();
        assert!(error.to_string().contains("READ COMMITTED"), "{error}");
        assert_eq!(total(conn, 3).0, 307);
        conn.batch_execute("SET default_transaction_isolation = 'serializable'").unwrap();
        drop_succeeds(conn);
        assert_eq!(goods::table.find(3).select(goods::sold).first(conn), Ok(307_i64));
        let level = diesel::dsl::sql::<diesel::sql_types::Text>("current_setting('transaction_isolation')");
        assert_eq!(diesel::select(level).get_result(conn), Ok("serializable".to_owned()));
    }

    /// A transaction that Diesel does not know remains the caller's.
    #[test]
    fn a_drop_inside_a_transaction_of_raw_sql() {
        let (_database, mut conn) = counted::<Conn>();
        conn.batch_execute("BEGIN; UPDATE goods SET name = 'edited' WHERE id = 1").unwrap();
        ShardsTable::of(goods::table).drop(&mut conn).unwrap();
        conn.batch_execute("ROLLBACK").unwrap();
        assert_eq!(total(&mut conn, 2).0, 210);
        assert_eq!(goods::table.find(1).select(goods::name).first(&mut conn), Ok("a".to_owned()));
    }

    /// With another collation, a total could not use the shards' index and would read the whole table.
    #[test]
    fn a_key_of_text_has_its_parents_collation() {
        let database = Conn::database();
        let conn = &mut Conn::connect(&database);
        conn.batch_execute("CREATE TABLE pages (name VARCHAR(60) COLLATE \"POSIX\" PRIMARY KEY, hits BIGINT NOT NULL DEFAULT 0)")
            .unwrap();
        let table = ShardsTable::of(pages::table);
        let is_like_parent = |conn: &mut Conn| {
            let key_type = |table| {
                let sql = format!(
                    "(SELECT format_type(atttypid, atttypmod) || ' ' || attcollation::regcollation || ' ' || attnotnull::text
                      FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attname = 'name')"
                );
                diesel::select(diesel::dsl::sql::<diesel::sql_types::Text>(&sql))
            };
            let parents: String = key_type("pages").get_result(conn).unwrap();
            assert_eq!(parents, "character varying(60) \"POSIX\" true");
            assert_eq!(key_type("pages_shards").get_result(conn), Ok(parents));
            conn.batch_execute("INSERT INTO pages SELECT n::text FROM generate_series(1, 2000) AS n;
                INSERT INTO pages_shards SELECT name, 0, 1 FROM pages; ANALYZE pages, pages_shards").unwrap();
            let counted = update(pages::table.find("7")).set(pages::hits.eq(pages::hits + 1));
            assert_eq!(counted.execute(conn), Ok(1));
            let plan = format!("EXPLAIN {}", diesel::debug_query::<diesel::pg::Pg, _>(&pages::table.select(pages::hits.total()).limit(1)));
            let plan = plan.split(" -- binds").next().unwrap().replace("$1", "1");
            #[derive(QueryableByName)]
            struct Line {
                #[diesel(sql_type = diesel::sql_types::Text, column_name = "QUERY PLAN")]
                line: String,
            }
            let plan: Vec<Line> = diesel::sql_query(plan).load(conn).unwrap();
            let plan: String = plan.into_iter().map(|line| line.line + "\n").collect();
            assert!(!plan.contains("Seq Scan on pages_shards"), "{plan}");
            conn.batch_execute("DELETE FROM pages").unwrap();
        };
        table.create(conn).unwrap();
        is_like_parent(conn);
        table.drop(conn).unwrap();
        conn.run_pending_migrations(table.migration("20260101000000")).unwrap();
        is_like_parent(conn);
        conn.revert_migration(&table.migration("20260101000000")).unwrap();
    }
} }

on! { mysql, MysqlConnection, {
    fn drop_own_trigger_is_named(conn: &mut Conn) {
        conn.batch_execute(
            "UPDATE goods_shards SET price = 0, sold = 5 WHERE id = 2;
             CREATE TRIGGER keep BEFORE UPDATE ON goods FOR EACH ROW SET NEW.sold = IF(NEW.id = 2, OLD.sold, NEW.sold)",
        )
        .unwrap();
        drop_fails(conn, Unfit::NotWritten { field: "sold".into() });
        conn.batch_execute("DROP TRIGGER keep; CREATE TRIGGER keep BEFORE UPDATE ON goods FOR EACH ROW SET NEW.sold = NEW.sold - (NEW.id = 2)")
            .unwrap();
        drop_fails(conn, altered("sold", "210", "209"));
        conn.batch_execute("DROP TRIGGER keep").unwrap();
    }

    #[test]
    fn a_base_at_its_maximum() {
        let (_database, conn) = &mut counted::<Conn>();
        conn.batch_execute("UPDATE goods SET sold = 9223372036854775802 WHERE id = 2").unwrap();
        let strict = diesel::dsl::sql::<diesel::sql_types::Text>("@@sql_mode");
        let strict: String = diesel::select(strict).get_result(conn).unwrap();
        for mode in [&*strict, ""] {
            conn.batch_execute(&format!("SET sql_mode = '{mode}'")).unwrap();
            let error = ShardsTable::of(goods::table).drop(conn).unwrap_err();
            assert_eq!(unfit(error), ("2".to_owned(), Unfit::OutOfRange));
            let autocommit = diesel::dsl::sql::<diesel::sql_types::BigInt>("@@autocommit");
            assert_eq!(diesel::select(autocommit).get_result(conn), Ok(1_i64));
        }
        conn.batch_execute("DELETE FROM goods_shards WHERE id = 2 AND shard = 7").unwrap();
        drop_succeeds(conn);
    }

    /// The session's own settings stay as they were, also those of a caller without autocommit.
    #[test]
    fn without_autocommit() {
        let (_database, conn) = &mut counted::<Conn>();
        conn.batch_execute("SET autocommit = 0; UPDATE goods_shards SET price = 0.001 WHERE id = 2").unwrap();
        conn.batch_execute("COMMIT").unwrap();
        let autocommit = || diesel::select(diesel::dsl::sql::<diesel::sql_types::BigInt>("@@autocommit"));
        ShardsTable::of(goods::table).drop(conn).unwrap_err();
        assert_eq!(autocommit().get_result(conn), Ok(0_i64));
        // It would commit work that is pending.
        conn.batch_execute("UPDATE goods_shards SET price = 0 WHERE id = 2").unwrap();
        let refused = ShardsTable::of(goods::table).drop(conn);
        assert_eq!(refused, Err(diesel::result::Error::AlreadyInTransaction));
        conn.batch_execute("COMMIT").unwrap();
        ShardsTable::of(goods::table).drop(conn).unwrap();
        assert_eq!(autocommit().get_result(conn), Ok(0_i64));
    }

    #[test]
    fn a_key_of_another_collation_names_the_type_to_declare() {
        let database = Conn::database();
        let mut conn = Conn::connect(&database);
        conn.batch_execute(
            "CREATE TABLE pages (name VARCHAR(60) CHARACTER SET latin1 COLLATE latin1_bin PRIMARY KEY, hits BIGINT NOT NULL DEFAULT 0)",
        )
        .unwrap();
        let error = Error::from(ShardsTable::of(pages::table).create(&mut conn).unwrap_err());
        let Error::KeyTypeMismatch { table, column, sql_type, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!((&**table, &**column), ("pages_shards", "name"));
        assert_eq!(sql_type, "varchar(60) CHARACTER SET latin1 COLLATE latin1_bin");
        assert!(error.to_string().contains("#[sharded(sql_type = \"varchar(60) "), "{error}");
        // That type is taken.
        conn.batch_execute(&format!(
            "CREATE TABLE pages_shards (name {sql_type}, FOREIGN KEY (name) REFERENCES pages (name))"
        ))
        .unwrap();
    }
} }

on! { sqlite, SqliteConnection, {
    fn drop_own_trigger_is_named(conn: &mut Conn) {
        conn.batch_execute(
            "UPDATE goods_shards SET price = 0, sold = 5 WHERE id = 2;
             CREATE TRIGGER keep BEFORE UPDATE ON goods WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END",
        )
        .unwrap();
        drop_fails(conn, Unfit::NotWritten { field: "sold".into() });
        conn.batch_execute(
            "DROP TRIGGER keep;
             CREATE TRIGGER keep AFTER UPDATE ON goods WHEN NEW.sold = 210 BEGIN UPDATE goods SET sold = 209 WHERE id = 2; END",
        )
        .unwrap();
        drop_fails(conn, altered("sold", "210", "209"));
        conn.batch_execute("DROP TRIGGER keep").unwrap();
    }

    #[test]
    fn a_base_at_its_maximum() {
        let (_database, conn) = &mut counted::<Conn>();
        conn.batch_execute("UPDATE goods SET sold = 9223372036854775802 WHERE id = 2").unwrap();
        let error = ShardsTable::of(goods::table).drop(conn).unwrap_err();
        assert_eq!(unfit(error), ("2".to_owned(), Unfit::OutOfRange));
        conn.batch_execute("DELETE FROM goods_shards WHERE id = 2 AND shard = 7").unwrap();
        drop_succeeds(conn);
    }

    const FOREIGN_KEYS: [&str; 2] = ["PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys = ON"];

    fn totals(conn: &mut Conn) -> Vec<(i64, i64)> {
        let totals = goods::table.select((goods::id, goods::sold.total())).order(goods::id);
        totals.load(conn).unwrap()
    }

    /// A row that takes over a key, by whatever statement, has only the shards that it brought along.
    #[test]
    fn no_row_inherits_another_ones_shards() {
        for foreign_keys in FOREIGN_KEYS {
            for (statement, expected) in [
                ("UPDATE OR REPLACE goods SET id = 3 WHERE id = 2", &[(1, 100), (3, 210)][..]),
                ("UPDATE OR IGNORE goods SET id = 3 WHERE id = 2", &[(1, 100), (2, 210), (3, 341)]),
                ("UPDATE goods SET id = id", &[(1, 100), (2, 210), (3, 341)]),
                ("UPDATE goods SET id = id - 1", &[(0, 100), (1, 210), (2, 341)]),
                ("UPDATE goods SET id = -id", &[(-3, 341), (-2, 210), (-1, 100)]),
                (
                    "UPDATE goods SET id = -1 WHERE id = 2; UPDATE goods SET id = 2 WHERE id = 3; UPDATE goods SET id = 3 WHERE id = -1",
                    &[(1, 100), (2, 341), (3, 210)],
                ),
                ("REPLACE INTO goods VALUES (2, 'new', 7, 0)", &[(1, 100), (2, 7), (3, 341)]),
                // Row 3 is replaced through its name; a row that is then renamed to 3 has its own shards alone.
                (
                    "REPLACE INTO goods VALUES (9, 'c', 7, 0); UPDATE goods SET id = 3 WHERE id = 2",
                    &[(1, 100), (3, 210), (9, 7)],
                ),
                (
                    "UPDATE OR REPLACE goods SET name = 'c' WHERE id = 1; UPDATE goods SET id = 3 WHERE id = 1",
                    &[(2, 210), (3, 100)],
                ),
                ("REPLACE INTO goods VALUES (9, 'c', 7, 0); INSERT INTO goods VALUES (3, 'd', 8, 0)", &[(1, 100), (2, 210), (3, 8), (9, 7)]),
            ] {
                let (_database, conn) = &mut counted::<Conn>();
                conn.batch_execute(foreign_keys).unwrap();
                conn.batch_execute("INSERT INTO goods_shards VALUES (3, 0, 40, 0), (3, 5, 1, 0)").unwrap();
                conn.batch_execute(statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
                assert_eq!(totals(conn), expected, "{foreign_keys}: {statement}");
            }
        }
    }

    #[test]
    fn shards_without_a_row_are_not_dropped_in_silence() {
        let (_database, conn) = &mut counted::<Conn>();
        conn.batch_execute("PRAGMA foreign_keys = OFF; REPLACE INTO goods VALUES (9, 'b', 7, 0)").unwrap();
        let error = ShardsTable::of(goods::table).drop(conn).unwrap_err();
        assert_eq!(unfit(error), ("2".to_owned(), Unfit::NoRow));
        conn.batch_execute("DELETE FROM goods_shards WHERE id = 2").unwrap();
        ShardsTable::of(goods::table).drop(conn).unwrap();
    }

    /// SQLite's documented way to change a table: create new, copy, drop old, rename.
    fn rebuild(conn: &mut Conn, schema: &str) {
        conn.batch_execute(&format!(
            "PRAGMA foreign_keys = OFF; BEGIN;
             CREATE TABLE {schema}.new_goods (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL UNIQUE, sold BIGINT NOT NULL, \
                 price DECIMAL(10, 2) NOT NULL);
             INSERT INTO {schema}.new_goods SELECT * FROM {schema}.goods;
             DROP TABLE {schema}.goods; ALTER TABLE {schema}.new_goods RENAME TO goods; COMMIT",
        ))
        .unwrap();
    }

    fn missing_triggers(conn: &mut Conn) -> String {
        match Error::from(fold(goods::table).run(conn).unwrap_err()) {
            Error::MissingTriggers { table, sql } if table == "goods_shards" => sql,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn triggers_that_a_rebuild_dropped_are_missed() {
        let (_database, conn) = &mut counted::<Conn>();
        let triggers = "SELECT name || sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name";
        #[derive(QueryableByName, Debug, PartialEq)]
        struct Trigger {
            #[diesel(sql_type = diesel::sql_types::Text, column_name = "name || sql")]
            text: String,
        }
        let before: Vec<Trigger> = diesel::sql_query(triggers).load(conn).unwrap();
        assert_eq!(before.len(), 3);
        rebuild(conn, "main");
        let sql = missing_triggers(conn);
        assert_eq!(total(conn, 2).0, 210);
        conn.batch_execute(&sql).unwrap();
        assert_eq!(diesel::sql_query(triggers).load(conn), Ok(before));
        assert!(fold(goods::table).run(conn).is_ok());
        // Each missing one is noticed.
        for trigger in ["delete", "update", "insert"] {
            conn.batch_execute(&format!("DROP TRIGGER goods_shards_{trigger}")).unwrap();
            let sql = missing_triggers(conn);
            assert_eq!(sql.matches("CREATE TRIGGER").count(), 1, "{sql}");
            conn.batch_execute(&sql).unwrap();
        }
        assert!(fold(goods::table).run(conn).is_ok());
        drop_succeeds(conn);
    }

    /// The triggers of a table in an attached database are there.
    #[test]
    fn triggers_in_an_attached_database() {
        let (database, conn) = counted::<Conn>();
        drop(conn);
        let conn = &mut Conn::establish(":memory:").unwrap();
        conn.batch_execute(&format!("ATTACH '{}' AS `an \"other\"`", database.url())).unwrap();
        assert!(fold(goods::table.find(2)).run(conn).is_ok());
        rebuild(conn, "`an \"other\"`");
        let sql = missing_triggers(conn);
        conn.batch_execute(&sql).unwrap();
        assert!(fold(goods::table).run(conn).is_ok());
        assert_eq!(total(conn, 2).0, 210);
        drop_succeeds(conn);
    }
} }
