//! Shards tables that meet triggers, policies, columns and collations of an application's own.

use bigdecimal::BigDecimal;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded::{Error, ShardsTable, Unfit, fold, set_total, update};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::{TestConnection, assert_matches, count, number, texts};

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

const GOODS: ShardsTable<goods::table> = ShardsTable::of(goods::table);

const VERSION: &str = "20260101000000";

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

            /// A table with three rows, whose second has 10 on shards.
            fn counted<const N: usize>() -> Fixture<Conn, N> {
                counted_in("sold BIGINT NOT NULL")
            }

            fn counted_in<const N: usize>(sold: &str) -> Fixture<Conn, N> {
                let mut own = Fixture::<Conn, N>::empty();
                let conn = &mut own[0];
                conn.run(&format!(
                    "CREATE TABLE goods (id BIGINT PRIMARY KEY, name VARCHAR(10) NOT NULL UNIQUE, {sold}, price DECIMAL(10, 2) NOT NULL)"
                ));
                GOODS.create(conn).unwrap();
                conn.run(
                    "INSERT INTO goods VALUES (1, 'a', 100, 1.5), (2, 'b', 200, 2.5), (3, 'c', 300, 3.5);
                     INSERT INTO goods_shards VALUES (2, 0, 5, 0), (2, 7, 5, 0)",
                );
                own
            }

            fn total(conn: &mut Conn, key: i64) -> (i64, BigDecimal) {
                let totals = goods::table.select((goods::sold.total(), goods::price.total()));
                totals.find(key).first(conn).unwrap()
            }

            /// `drop` fails for this reason, in every form of the call, and changes no total.
            fn drop_fails(conn: &mut Conn, reason: Unfit) {
                let before = total(conn, 2);
                let error = GOODS.drop(conn).unwrap_err();
                assert_eq!(unfit(error), ("2".to_owned(), reason.clone()));
                assert_eq!(total(conn, 2), before);
                let inside = conn.transaction(|conn| {
                    let dropped = GOODS.drop(conn);
                    assert_eq!(total(conn, 2), before);
                    dropped
                });
                match inside.unwrap_err() {
                    diesel::result::Error::AlreadyInTransaction => {
                        assert_eq!(stringify!($database), "mysql");
                    }
                    error => assert_eq!(unfit(error).1, reason),
                }
                conn.revert_migration(&GOODS.migration(VERSION)).unwrap_err();
                assert_eq!(total(conn, 2), before);
                // Neither a lock nor a transaction is left behind.
                let counted = update(goods::table.find(1)).set(goods::sold.eq(goods::sold + 1));
                assert_eq!(counted.execute(conn), Ok(1));
            }

            fn drop_succeeds(conn: &mut Conn) {
                let before = total(conn, 2);
                GOODS.drop(conn).unwrap();
                let base = goods::table.find(2).select((goods::sold, goods::price));
                assert_eq!(base.first(conn), Ok(before));
                // Nothing is left that would look for the shards.
                conn.run("UPDATE goods SET id = 20 WHERE id = 2; DELETE FROM goods WHERE id = 20");
            }

            #[test]
            fn a_row_that_does_not_take_its_shards_is_named() {
                let [conn] = &mut *counted();
                let rounds = !conn.version().contains("SQLite");
                conn.run(
                    "INSERT INTO goods_shards VALUES (3, 1, 0, 0); UPDATE goods_shards SET price = 0.012, sold = 0 WHERE id = 2",
                );
                if rounds {
                    drop_fails(conn, altered("price", "2.524", "2.52"));
                }
                conn.run("UPDATE goods_shards SET price = 0, sold = 5 WHERE id = 2");
                conn.run(TRIGGERS[0]);
                drop_fails(conn, Unfit::NotWritten { field: "sold".into() });
                conn.run(TRIGGERS[1]);
                drop_fails(conn, altered("sold", "210", "209"));
                conn.run(TRIGGERS[2]);
                conn.run("UPDATE goods_shards SET price = 0, sold = 4 WHERE id = 2");
                drop_succeeds(conn);
            }

            /// A column that is nullable, against its `table!`, and has no value in a row with shards.
            #[test]
            fn a_base_without_a_value_loses_no_count() {
                let [conn] = &mut *counted_in("sold BIGINT NULL");
                conn.run("UPDATE goods SET sold = NULL WHERE id = 2");
                assert_eq!(count!(goods::table.find(2), goods::sold.eq(goods::sold + 1), conn), 1);
                let folded = fold(goods::table).run(conn).unwrap();
                assert_eq!(folded.unfit, [(2, Unfit::NoBase)]);
                let set = set_total(goods::table.find(2), goods::sold, 5).execute(conn);
                assert_eq!(unfit(set.unwrap_err()).1, Unfit::NoBase);
                assert_eq!(unfit(GOODS.drop(conn).unwrap_err()).1, Unfit::NoBase);
                conn.revert_migration(&GOODS.migration(VERSION)).unwrap_err();
                conn.run("UPDATE goods SET sold = 0 WHERE id = 2");
                assert_eq!(total(conn, 2).0, 11);
                drop_succeeds(conn);
            }

            /// On MySQL also where it would be cut.
            #[test]
            fn a_base_at_its_maximum() {
                let [conn] = &mut *counted();
                conn.run("UPDATE goods SET sold = 9223372036854775802 WHERE id = 2");
                let strict = GOODS.drop(conn).unwrap_err();
                let _ = conn.batch_execute("SET sql_mode = ''"); // there is none elsewhere
                for error in [strict, GOODS.drop(conn).unwrap_err()] {
                    match stringify!($database) {
                        "postgres" => assert_matches!(Error::from(error), Error::Overflow { .. }),
                        _ => assert_eq!(unfit(error), ("2".to_owned(), Unfit::OutOfRange)),
                    }
                }
                conn.revert_migration(&GOODS.migration(VERSION)).unwrap_err();
                conn.run("DELETE FROM goods_shards WHERE id = 2 AND shard = 7");
                drop_succeeds(conn);
            }

            /// Each type is summed up in one that neither rounds nor truncates.
            #[test]
            fn every_field_type_is_folded() {
                use diesel_sharded_tests::schema::measures as m;
                let [conn] = &mut *Fixture::<Conn, _>::with_tables();
                conn.run(
                    "UPDATE measures SET small = 32766, medium = -2147483647, large = 9223372036854775806, exact = 0.1, f = -1;
                     INSERT INTO measures_shards VALUES (1, 0, 32767, 2147483647, -9223372036854775807, 0.1, 123456789012345678.000001, 1, 2, 3);
                     INSERT INTO measures_shards VALUES (1, 1, -32766, -2147483647, 9223372036854775807, 0.2, 0, 0, 0, 0)",
                );
                ShardsTable::of(m::table).drop(conn).unwrap();
                let integers = m::table.select((m::small, m::medium, m::large, m::f, m::g, m::h));
                let expected = (32767_i16, -2147483647, 9223372036854775806_i64, 0_i64, 2_i64, 3_i64);
                assert_eq!(integers.first(conn), Ok(expected));
                let decimals = m::table.select((m::real, m::exact));
                let (real, exact) = decimals.first::<(f64, BigDecimal)>(conn).unwrap();
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
    const TRIGGERS: [&str; 3] = [
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER keep BEFORE UPDATE ON goods FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION keep()",
        "CREATE OR REPLACE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.sold = NEW.sold - 1; RETURN NEW; END'",
        "DROP TRIGGER keep ON goods",
    ];

    /// As a role that owns the tables, and may see all rows and update some.
    #[test]
    fn row_security() {
        let own = &mut counted();
        let (database, [conn]) = own.parts();
        let role = format!("owner_{}", database.url().rsplit_once('/').unwrap().1);
        conn.run(&format!(
            "CREATE ROLE {role}; ALTER TABLE goods OWNER TO {role}; ALTER TABLE goods_shards OWNER TO {role};
             GRANT ALL ON SCHEMA public TO {role};
             ALTER TABLE goods ENABLE ROW LEVEL SECURITY; ALTER TABLE goods FORCE ROW LEVEL SECURITY;
             CREATE POLICY all_read ON goods FOR SELECT USING (TRUE);
             CREATE POLICY own_written ON goods FOR UPDATE USING (id = 1);
             SET ROLE {role}",
        ));
        let not_written = Unfit::NotWritten { field: "sold".into() };
        assert_eq!(unfit(GOODS.drop(conn).unwrap_err()), ("2".to_owned(), not_written));
        conn.run("ALTER POLICY all_read ON goods USING (id = 1)");
        assert_eq!(unfit(GOODS.drop(conn).unwrap_err()), ("2".to_owned(), Unfit::NoRow));
        // Nor does it drop shards that are hidden.
        conn.run(
            "ALTER POLICY all_read ON goods USING (TRUE); ALTER POLICY own_written ON goods USING (TRUE);
             ALTER TABLE goods_shards ENABLE ROW LEVEL SECURITY; ALTER TABLE goods_shards FORCE ROW LEVEL SECURITY",
        );
        let error = GOODS.drop(conn).unwrap_err();
        assert!(error.to_string().contains("row security may hide"), "{error}");
        conn.run("ALTER TABLE goods_shards NO FORCE ROW LEVEL SECURITY");
        assert_eq!(total(conn, 2).0, 210);
        drop_succeeds(conn);
        conn.run(&format!("RESET ROLE; DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
    }

    /// A snapshot that is older than the lock does not see all that would be dropped.
    #[test]
    fn a_drop_above_read_committed() {
        let [conn, other] = &mut *counted();
        let inside = conn.build_transaction().repeatable_read().run(|conn| {
            assert_eq!(total(conn, 3).0, 300);
            let counted = update(goods::table.find(3)).set(goods::sold.eq(goods::sold + 7));
            assert_eq!(counted.execute(other), Ok(1));
            GOODS.drop(conn)
        });
        let error = inside.unwrap_err();
        assert!(error.to_string().contains("READ COMMITTED"), "{error}");
        assert_eq!(total(conn, 3).0, 307);
        conn.run("SET default_transaction_isolation = 'serializable'");
        drop_succeeds(conn);
        assert_eq!(goods::table.find(3).select(goods::sold).first(conn), Ok(307_i64));
        assert_eq!(texts!("current_setting('transaction_isolation')", conn), ["serializable"]);
    }

    /// With another collation, a total could not use the shards' index and would read the whole table.
    #[test]
    fn a_key_of_text_has_its_parents_collation() {
        let [conn] = &mut *Fixture::<Conn, _>::empty();
        conn.run("CREATE TABLE pages (name VARCHAR(60) COLLATE \"POSIX\" PRIMARY KEY, hits BIGINT NOT NULL DEFAULT 0)");
        let table = ShardsTable::of(pages::table);
        let is_like_parent = |conn: &mut Conn| {
            let key_types = texts!(
                "format_type(atttypid, atttypmod) || ' ' || attcollation::regcollation || ' ' || attnotnull::text
                 FROM pg_attribute WHERE attrelid IN ('pages'::regclass, 'pages_shards'::regclass) AND attname = 'name'",
                conn
            );
            assert_eq!(key_types, ["character varying(60) \"POSIX\" true"; 2]);
            conn.run("INSERT INTO pages SELECT n::text FROM generate_series(1, 2000) AS n;
                INSERT INTO pages_shards SELECT name, 0, 1 FROM pages; ANALYZE pages, pages_shards");
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
            conn.run("DELETE FROM pages");
        };
        table.create(conn).unwrap();
        is_like_parent(conn);
        table.drop(conn).unwrap();
        conn.run_pending_migrations(table.migration(VERSION)).unwrap();
        is_like_parent(conn);
        conn.revert_migration(&table.migration(VERSION)).unwrap();
    }
} }

on! { mysql, MysqlConnection, {
    const TRIGGERS: [&str; 3] = [
        "CREATE TRIGGER keep BEFORE UPDATE ON goods FOR EACH ROW SET NEW.sold = IF(NEW.id = 2, OLD.sold, NEW.sold)",
        "DROP TRIGGER keep; CREATE TRIGGER keep BEFORE UPDATE ON goods FOR EACH ROW SET NEW.sold = NEW.sold - (NEW.id = 2)",
        "DROP TRIGGER keep",
    ];

    /// The session's own settings stay as they were, also those of a caller without autocommit.
    #[test]
    fn without_autocommit() {
        let [conn] = &mut *counted();
        conn.run("SET autocommit = 0; UPDATE goods_shards SET price = 0.001 WHERE id = 2");
        conn.run("COMMIT");
        GOODS.drop(conn).unwrap_err();
        assert_eq!(number!("@@autocommit", conn), 0);
        // It would commit work that is pending.
        conn.run("UPDATE goods_shards SET price = 0 WHERE id = 2");
        let refused = GOODS.drop(conn);
        assert_eq!(refused, Err(diesel::result::Error::AlreadyInTransaction));
        conn.run("COMMIT");
        GOODS.drop(conn).unwrap();
        assert_eq!(number!("@@autocommit", conn), 0);
    }

    /// Neither the view's foreign key nor its triggers can be. The key has the type that it needs.
    #[test]
    fn a_view_as_the_parent_leaves_nothing() {
        let [conn] = &mut *Fixture::<Conn, _>::empty();
        conn.run("CREATE TABLE all_goods (id BIGINT PRIMARY KEY, name VARCHAR(10), sold BIGINT NOT NULL, price DECIMAL(10, 2) NOT NULL)");
        conn.run("CREATE VIEW goods AS SELECT * FROM all_goods; INSERT INTO all_goods VALUES (1, 'a', 0, 0)");
        let tables = "COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()";
        for refused in [GOODS, GOODS.without_foreign_key()] {
            let error = Error::from(refused.create(conn).unwrap_err());
            assert!(matches!(error, Error::Diesel(_)), "{error:?}");
            assert_eq!(number!(tables, conn), 2);
        }
        GOODS.without_triggers().create(conn).unwrap();
        // A table that was there before stays.
        GOODS.without_foreign_key().create(conn).unwrap_err();
        assert_eq!(number!(tables, conn), 3);
        let counted = update(goods::table.find(1)).set(goods::sold.eq(goods::sold + 1));
        assert_eq!(counted.execute(conn), Ok(1));
    }

    #[test]
    fn a_key_of_another_collation_names_the_type_to_declare() {
        let [conn] = &mut *Fixture::<Conn, _>::empty();
        conn.run(
            "CREATE TABLE pages (name VARCHAR(60) CHARACTER SET latin1 COLLATE latin1_bin PRIMARY KEY, hits BIGINT NOT NULL DEFAULT 0)",
        );
        let error = Error::from(ShardsTable::of(pages::table).create(conn).unwrap_err());
        let Error::KeyTypeMismatch { table, column, sql_type, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!((&**table, &**column), ("pages_shards", "name"));
        assert_eq!(sql_type, "varchar(60) CHARACTER SET latin1 COLLATE latin1_bin");
        assert!(error.to_string().contains("#[sharded(sql_type = \"varchar(60) "), "{error}");
        // That type is taken.
        conn.run(&format!(
            "CREATE TABLE pages_shards (name {sql_type}, FOREIGN KEY (name) REFERENCES pages (name))"
        ));
    }
} }

on! { sqlite, SqliteConnection, {
    const TRIGGERS: [&str; 3] = [
        "CREATE TRIGGER keep BEFORE UPDATE ON goods WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END",
        "DROP TRIGGER keep;
         CREATE TRIGGER keep AFTER UPDATE ON goods WHEN NEW.sold = 210 BEGIN UPDATE goods SET sold = 209 WHERE id = 2; END",
        "DROP TRIGGER keep",
    ];

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
                // Row 3 is replaced through its name, where no foreign key forbids it; a row that is then renamed to 3 has its own shards alone.
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
                let [conn] = &mut *counted();
                conn.run(foreign_keys);
                conn.run("INSERT INTO goods_shards VALUES (3, 0, 40, 0), (3, 5, 1, 0)");
                let done = conn.batch_execute(statement);
                let is_forbidden = foreign_keys == FOREIGN_KEYS[1] && statement.contains("'c'");
                assert_eq!(done.is_err(), is_forbidden, "{foreign_keys}: {statement}: {done:?}");
                let before = &[(1, 100), (2, 210), (3, 341)][..];
                let expected = if is_forbidden { before } else { expected };
                assert_eq!(totals(conn), expected, "{foreign_keys}: {statement}");
            }
        }
    }

    /// SQLite's documented way to change a table: create new, copy, drop old, rename.
    fn rebuild(conn: &mut Conn, schema: &str) {
        conn.run(&format!(
            "PRAGMA foreign_keys = OFF; BEGIN;
             CREATE TABLE {schema}.new_goods (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL UNIQUE, sold BIGINT NOT NULL, \
                 price DECIMAL(10, 2) NOT NULL);
             INSERT INTO {schema}.new_goods SELECT * FROM {schema}.goods;
             DROP TABLE {schema}.goods; ALTER TABLE {schema}.new_goods RENAME TO goods; COMMIT",
        ));
    }

    /// Diesel's migrations run in transactions, in which the pragma does nothing, and the old table's rows go by `DELETE`.
    #[test]
    fn a_rebuild_beside_foreign_keys_loses_no_shards() {
        const NEW: &str = "CREATE TABLE new_goods (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL UNIQUE, sold BIGINT NOT NULL, \
                           price DECIMAL(10, 2) NOT NULL)";
        for rebuild in [
            format!("{NEW}; INSERT INTO new_goods SELECT * FROM goods; DROP TABLE goods; ALTER TABLE new_goods RENAME TO goods"),
            format!("ALTER TABLE goods RENAME TO old_goods; {NEW}; ALTER TABLE new_goods RENAME TO goods;
                     INSERT INTO goods SELECT * FROM old_goods; DROP TABLE old_goods"),
        ] {
            let [conn] = &mut *counted();
            conn.run(FOREIGN_KEYS[1]);
            let rebuilt = conn.transaction(|conn| conn.batch_execute(&format!("{}; {rebuild}", FOREIGN_KEYS[0])));
            let error = rebuilt.unwrap_err().to_string();
            assert_eq!(error, "FOREIGN KEY constraint failed");
            assert_eq!(total(conn, 2).0, 210);
            assert!(fold(goods::table).run(conn).is_ok());
        }
    }

    fn missing_triggers(conn: &mut Conn) -> String {
        match Error::from(fold(goods::table).run(conn).unwrap_err()) {
            Error::MissingTriggers { table, sql } if table == "goods_shards" => sql,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn triggers_that_a_rebuild_dropped_are_missed() {
        let [conn] = &mut *counted();
        let triggers = "name || sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name";
        let before = texts!(triggers, conn);
        assert_eq!(before.len(), 3);
        rebuild(conn, "main");
        let sql = missing_triggers(conn);
        assert_eq!(total(conn, 2).0, 210);
        conn.run(&sql);
        assert_eq!(texts!(triggers, conn), before);
        assert!(fold(goods::table).run(conn).is_ok());
        // Each missing one is noticed.
        for trigger in ["delete", "update", "insert"] {
            conn.run(&format!("DROP TRIGGER goods_shards_{trigger}"));
            let sql = missing_triggers(conn);
            assert_eq!(sql.matches("CREATE TRIGGER").count(), 1, "{sql}");
            conn.run(&sql);
        }
        assert!(fold(goods::table).run(conn).is_ok());
        drop_succeeds(conn);
    }

    /// The triggers of a table in an attached database are there.
    #[test]
    fn triggers_in_an_attached_database() {
        let own = &mut counted::<1>();
        let (database, _) = own.parts();
        let conn = &mut Conn::establish(":memory:").unwrap();
        conn.run(&format!("ATTACH '{}' AS `an \"other\"`", database.url()));
        assert!(fold(goods::table.find(2)).run(conn).is_ok());
        rebuild(conn, "`an \"other\"`");
        let sql = missing_triggers(conn);
        conn.run(&sql);
        assert!(fold(goods::table).run(conn).is_ok());
        assert_eq!(total(conn, 2).0, 210);
        drop_succeeds(conn);
    }
} }
