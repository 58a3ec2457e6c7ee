#![cfg(all(
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]

use crate::ShardsTable;
use crate::error::Error;
use crate::model::ShardedTable;
use crate::test_schema::analytics::sites;
use crate::test_schema::{downloads, pages, players, videos};
use diesel::mysql::Mysql;
use diesel::pg::Pg;
use diesel::sqlite::Sqlite;

#[test]
fn create_on_postgres() {
    assert_eq!(
        ShardsTable::of(videos::table).create_sql(&Pg).unwrap(),
        r#"CREATE TABLE "videos_shards" (
    "id" BIGINT NOT NULL,
    "shard" INTEGER NOT NULL,
    "views" BIGINT NOT NULL DEFAULT 0,
    "likes" INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY ("id", "shard"),
    FOREIGN KEY ("id") REFERENCES "videos" ("id") ON UPDATE CASCADE ON DELETE CASCADE
) WITH (fillfactor = 90)"#
    );
}

#[test]
fn create_on_mysql() {
    assert_eq!(
        ShardsTable::of(downloads::table)
            .create_sql(&Mysql)
            .unwrap(),
        r#"CREATE TABLE `download "counts"` (
    `version` INTEGER NOT NULL,
    `day` CHAR(10) NOT NULL,
    `shard` INTEGER NOT NULL,
    `number` DOUBLE NOT NULL DEFAULT 0,
    PRIMARY KEY (`version`, `day`, `shard`),
    FOREIGN KEY (`version`, `day`) REFERENCES `downloads` (`version`, `day`) ON UPDATE CASCADE ON DELETE CASCADE
) ENGINE = InnoDB"#
    );
}

#[test]
fn create_on_sqlite() {
    assert_eq!(
            ShardsTable::of(videos::table).create_sql(&Sqlite).unwrap(),
            "SAVEPOINT diesel_sharded;
CREATE TABLE `videos_shards` (
    `id` BIGINT NOT NULL,
    `shard` INTEGER NOT NULL,
    `views` BIGINT NOT NULL DEFAULT 0 CHECK (`views` BETWEEN -9223372036854775807 AND 9223372036854775807),
    `likes` INTEGER NOT NULL DEFAULT 0 CHECK (`likes` BETWEEN -2147483648 AND 2147483647),
    PRIMARY KEY (`id`, `shard`),
    FOREIGN KEY (`id`) REFERENCES `videos` (`id`)
) WITHOUT ROWID;
CREATE TRIGGER `videos_shards_delete` AFTER DELETE ON `videos` BEGIN DELETE FROM `videos_shards` WHERE `id` = OLD.`id`; END;
CREATE TRIGGER `videos_shards_update` AFTER UPDATE OF `id` ON `videos` BEGIN DELETE FROM `videos_shards` WHERE `id` = NEW.`id` AND NOT (`id` = OLD.`id`); UPDATE `videos_shards` SET `id` = NEW.`id` WHERE `id` = OLD.`id`; END;
CREATE TRIGGER `videos_shards_insert` AFTER INSERT ON `videos` BEGIN DELETE FROM `videos_shards` WHERE `id` = NEW.`id`; END;
RELEASE diesel_sharded"
        );
}

#[test]
fn create_with_a_key_of_text_on_postgres() {
    assert_eq!(
        ShardsTable::of(pages::table).create_sql(&Pg).unwrap(),
        r#"DO $diesel_sharded$
BEGIN
    CREATE TABLE "pages_shards" WITH (fillfactor = 90) AS SELECT "name" FROM "pages" WITH NO DATA;
    ALTER TABLE "pages_shards"
        ADD "shard" INTEGER NOT NULL,
        ADD "hits" BIGINT NOT NULL DEFAULT 0,
        ADD PRIMARY KEY ("name", "shard"),
        ADD FOREIGN KEY ("name") REFERENCES "pages" ("name") ON UPDATE CASCADE ON DELETE CASCADE;
END
$diesel_sharded$"#
    );
}

#[test]
fn drop_on_postgres() {
    assert_eq!(
        ShardsTable::of(downloads::table).drop_sql(&Pg).unwrap(),
        r#"DO $diesel_sharded$
DECLARE
    unfit TEXT;
    keep TEXT;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING MESSAGE = 'download "counts": drop it in a transaction that is READ COMMITTED; in any other some counts may not be seen';
    END IF;
    LOCK TABLE "downloads", "download ""counts""" IN ACCESS EXCLUSIVE MODE;
    IF row_security_active('"download ""counts"""') THEN
        RAISE EXCEPTION USING MESSAGE = 'download "counts": row security may hide some of its rows; drop it as a role that bypasses row security';
    END IF;
    unfit := (SELECT 'a counter cache adds to download "counts": ' || MIN(CAST(t.tgname AS TEXT)) || '; drop that cache first' AS kept FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE strpos(p.prosrc, 'INSERT INTO "download ""counts""" ("version", "day", "shard", ') > 0 AND to_regclass('"download ""counts"""') = (SELECT c.oid FROM unnest(p.proconfig) AS setting(text),
            regexp_split_to_table(substr(setting.text, 13), ', ') WITH ORDINALITY AS path(name, place),
            pg_namespace n, pg_class c
        WHERE setting.text LIKE 'search_path=%' AND quote_ident(n.nspname) = path.name AND c.relnamespace = n.oid AND c.relname = 'download "counts"'
        ORDER BY path.place LIMIT 1) AND t.tgtype & 1 = 0);
    IF unfit IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = unfit;
    END IF;
    CREATE TEMPORARY TABLE diesel_sharded_totals ON COMMIT DROP AS
        SELECT "downloads"."version" AS key1, "downloads"."day" AS key2, "downloads"."number" AS base1, diesel_sharded_sums.sum1 FROM "downloads"
        JOIN (SELECT "download ""counts"""."version" AS key1, "download ""counts"""."day" AS key2, SUM("download ""counts"""."number") AS sum1 FROM "download ""counts""" GROUP BY "download ""counts"""."version", "download ""counts"""."day") AS diesel_sharded_sums ON diesel_sharded_sums.key1 = "downloads"."version" AND diesel_sharded_sums.key2 = "downloads"."day";
    UPDATE "downloads" SET "number" = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 FROM pg_temp.diesel_sharded_totals WHERE "downloads"."version" = diesel_sharded_totals.key1 AND "downloads"."day" = diesel_sharded_totals.key2;
    -- Each base has to be the one before plus its sum, and each shard has to have a row.
    unfit := (SELECT 'download "counts", key ' || CAST(diesel_sharded_totals.key1 AS TEXT) || ', ' || CAST(diesel_sharded_totals.key2 AS TEXT) || ': ' || COALESCE(CAST(diesel_sharded_totals.base1 AS TEXT), 'NULL') || ' + ' || COALESCE(CAST(diesel_sharded_totals.sum1 AS TEXT), 'NULL') || ' gave ' || CASE WHEN "downloads"."version" IS NOT NULL AND "downloads"."day" IS NOT NULL THEN COALESCE(CAST("downloads"."number" AS TEXT), 'NULL') ELSE 'nothing' END FROM pg_temp.diesel_sharded_totals LEFT JOIN "downloads" ON "downloads"."version" = diesel_sharded_totals.key1 AND "downloads"."day" = diesel_sharded_totals.key2 WHERE NOT COALESCE("downloads"."number" = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1, FALSE) LIMIT 1);
    unfit := COALESCE(unfit, (SELECT 'download "counts", key ' || CAST("download ""counts"""."version" AS TEXT) || ', ' || CAST("download ""counts"""."day" AS TEXT) || ': it has shards and no row' FROM "download ""counts""" LEFT JOIN pg_temp.diesel_sharded_totals ON "download ""counts"""."version" = diesel_sharded_totals.key1 AND "download ""counts"""."day" = diesel_sharded_totals.key2 WHERE diesel_sharded_totals.key1 IS NULL LIMIT 1));
    IF unfit IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = unfit, HINT = 'Nothing was changed. Look for a trigger, a policy, or a column that rounds or cuts what it is given.';
    END IF;
    DROP TABLE pg_temp.diesel_sharded_totals;
    -- A table that was created with triggers may be dropped as if it had none. Another schema may have a function of this name.
    SELECT tgfoid::regprocedure INTO keep FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE tgrelid IN ('"download ""counts"""'::regclass, '"downloads"'::regclass) AND proname = 'download "counts"_keep'
    ORDER BY tgrelid <> '"download ""counts"""'::regclass LIMIT 1;
    DROP TABLE "download ""counts""";
    IF keep IS NOT NULL THEN
        EXECUTE 'DROP FUNCTION ' || keep || ' CASCADE';
    END IF;
END
$diesel_sharded$"#
    );
}

#[test]
fn drop_on_mysql() {
    assert_eq!(
            ShardsTable::of(videos::table).drop_sql(&Mysql).unwrap(),
            "SET @diesel_sharded_cache = 'not checked', @diesel_sharded_row = 'not checked', @diesel_sharded_orphan = 'not checked',
    @diesel_sharded_unfit = 'not checked', @diesel_sharded_autocommit = @@autocommit;
SET autocommit = 0;
LOCK TABLES `videos` WRITE, `videos_shards` WRITE;
CREATE TEMPORARY TABLE `diesel_sharded_totals` (PRIMARY KEY (key1)) ENGINE = InnoDB AS
    SELECT `videos`.`id` AS key1, `videos`.`views` AS base1, `videos`.`likes` AS base2, diesel_sharded_sums.sum1, diesel_sharded_sums.sum2 FROM `videos`
        JOIN (SELECT `videos_shards`.`id` AS key1, SUM(`videos_shards`.`views`) AS sum1, SUM(`videos_shards`.`likes`) AS sum2 FROM `videos_shards` GROUP BY `videos_shards`.`id`) AS diesel_sharded_sums ON diesel_sharded_sums.key1 = `videos`.`id`;
UPDATE IGNORE `videos` JOIN diesel_sharded_totals ON `videos`.`id` = diesel_sharded_totals.key1 SET `videos`.`views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1, `videos`.`likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2;
-- Each base has to be the one before plus its sum, each shard has to have a row, and no cache may add to them. Else all this is rolled back.
SET @diesel_sharded_cache = (SELECT COALESCE(CONCAT('a counter cache adds to videos_shards: ', MIN(CAST(TRIGGER_NAME AS CHAR)), '; drop that cache first'), '') AS kept FROM information_schema.TRIGGERS WHERE LOCATE(CAST('INSERT INTO `videos_shards` (`id`, `shard`, ' AS BINARY), ACTION_STATEMENT) > 0 AND EVENT_OBJECT_SCHEMA = DATABASE());
SET @diesel_sharded_row = (SELECT COALESCE(MIN(CONCAT('videos_shards, key ', CONCAT(CAST(diesel_sharded_totals.key1 AS CHAR)), ': ', CONCAT(COALESCE(CAST(diesel_sharded_totals.base1 AS CHAR), 'NULL'), ', ', COALESCE(CAST(diesel_sharded_totals.base2 AS CHAR), 'NULL')), ' + ', CONCAT(COALESCE(CAST(diesel_sharded_totals.sum1 AS CHAR), 'NULL'), ', ', COALESCE(CAST(diesel_sharded_totals.sum2 AS CHAR), 'NULL')), ' gave ', CASE WHEN `videos`.`id` IS NOT NULL THEN CONCAT(COALESCE(CAST(`videos`.`views` AS CHAR), 'NULL'), ', ', COALESCE(CAST(`videos`.`likes` AS CHAR), 'NULL')) ELSE 'nothing' END)), '') FROM diesel_sharded_totals LEFT JOIN `videos` ON `videos`.`id` = diesel_sharded_totals.key1 WHERE NOT COALESCE(`videos`.`views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 AND `videos`.`likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2, FALSE));
SET @diesel_sharded_orphan = (SELECT COALESCE(MIN(CONCAT('videos_shards, key ', CONCAT(CAST(`videos_shards`.`id` AS CHAR)), ': it has shards and no row')), '') FROM `videos_shards` LEFT JOIN diesel_sharded_totals ON `videos_shards`.`id` = diesel_sharded_totals.key1 WHERE diesel_sharded_totals.key1 IS NULL);
-- A check that was interrupted may be NULL without an error: nothing fits but what was found empty.
SET @diesel_sharded_unfit = IF(CONCAT(@diesel_sharded_cache, @diesel_sharded_row, @diesel_sharded_orphan) = '', NULL,
    COALESCE(NULLIF(@diesel_sharded_cache, ''), NULLIF(@diesel_sharded_row, ''), NULLIF(@diesel_sharded_orphan, ''), 'not checked'));
DELETE FROM `videos_shards`;
SET @diesel_sharded_sql = IF(@diesel_sharded_unfit IS NULL, 'COMMIT', 'DO 0');
PREPARE diesel_sharded FROM @diesel_sharded_sql;
EXECUTE diesel_sharded;
ROLLBACK;
DROP TEMPORARY TABLE `diesel_sharded_totals`;
SET @diesel_sharded_sql = IF(@diesel_sharded_unfit IS NULL, 'DROP TABLE `videos_shards`', 'DO 0');
PREPARE diesel_sharded FROM @diesel_sharded_sql;
EXECUTE diesel_sharded;
DEALLOCATE PREPARE diesel_sharded;
UNLOCK TABLES;
SET autocommit = @diesel_sharded_autocommit;
-- Fails by a duplicate that names a row, if one did not fit.
CREATE TEMPORARY TABLE `diesel_sharded_unfit` (PRIMARY KEY (unfit)) ENGINE = InnoDB AS
    SELECT CAST(@diesel_sharded_unfit AS CHAR(180)) AS unfit FROM (SELECT 1 UNION ALL SELECT 2) AS twice
    WHERE @diesel_sharded_unfit IS NOT NULL;
DROP TEMPORARY TABLE `diesel_sharded_unfit`"
        );
}

#[test]
fn drop_on_sqlite() {
    assert_eq!(
            ShardsTable::of(videos::table).drop_sql(&Sqlite).unwrap(),
            "SAVEPOINT diesel_sharded;
DROP TRIGGER IF EXISTS `videos_shards_delete`;
DROP TRIGGER IF EXISTS `videos_shards_update`;
DROP TRIGGER IF EXISTS `videos_shards_insert`;
CREATE TEMPORARY TABLE diesel_sharded_totals (key1, base1, base2, sum1, sum2);
CREATE TEMPORARY TABLE diesel_sharded_unfit (unfit);
ALTER TABLE `videos_shards` RENAME TO `diesel_sharded_dropped`;
INSERT INTO temp.diesel_sharded_totals
    SELECT `videos`.`id` AS key1, `videos`.`views` AS base1, `videos`.`likes` AS base2, diesel_sharded_sums.sum1, diesel_sharded_sums.sum2 FROM `videos`
        JOIN (SELECT `diesel_sharded_dropped`.`id` AS key1, SUM(`diesel_sharded_dropped`.`views`) AS sum1, SUM(`diesel_sharded_dropped`.`likes`) AS sum2 FROM `diesel_sharded_dropped` GROUP BY `diesel_sharded_dropped`.`id`) AS diesel_sharded_sums ON diesel_sharded_sums.key1 = `videos`.`id`;
UPDATE `videos` SET `views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1, `likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2 FROM temp.diesel_sharded_totals WHERE `videos`.`id` = diesel_sharded_totals.key1;
-- Each base has to be the one before plus its sum, each shard has to have a row, and no cache may add to them.
INSERT INTO temp.diesel_sharded_unfit SELECT COALESCE((SELECT 'a counter cache adds to videos_shards: ' || MIN(name) || '; drop that cache first' AS kept FROM sqlite_master WHERE type = 'trigger' AND instr(sql, 'INSERT INTO \"diesel_sharded_dropped\" (`id`, `shard`, ') > 0), (SELECT 'videos_shards, key ' || CAST(diesel_sharded_totals.key1 AS TEXT) || ': ' || COALESCE(CAST(diesel_sharded_totals.base1 AS TEXT), 'NULL') || ', ' || COALESCE(CAST(diesel_sharded_totals.base2 AS TEXT), 'NULL') || ' + ' || COALESCE(CAST(diesel_sharded_totals.sum1 AS TEXT), 'NULL') || ', ' || COALESCE(CAST(diesel_sharded_totals.sum2 AS TEXT), 'NULL') || ' gave ' || CASE WHEN `videos`.`id` IS NOT NULL THEN COALESCE(CAST(`videos`.`views` AS TEXT), 'NULL') || ', ' || COALESCE(CAST(`videos`.`likes` AS TEXT), 'NULL') ELSE 'nothing' END FROM temp.diesel_sharded_totals LEFT JOIN `videos` ON `videos`.`id` = diesel_sharded_totals.key1 WHERE NOT COALESCE(`videos`.`views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 AND EXISTS (SELECT 1 FROM (SELECT diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 AS total) WHERE typeof(total) = 'integer') AND `videos`.`likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2 AND EXISTS (SELECT 1 FROM (SELECT diesel_sharded_totals.base2 + diesel_sharded_totals.sum2 AS total) WHERE total BETWEEN -2147483648 AND 2147483647), FALSE) LIMIT 1), (SELECT 'videos_shards, key ' || CAST(`diesel_sharded_dropped`.`id` AS TEXT) || ': it has shards and no row' FROM `diesel_sharded_dropped` LEFT JOIN temp.diesel_sharded_totals ON `diesel_sharded_dropped`.`id` = diesel_sharded_totals.key1 WHERE diesel_sharded_totals.key1 IS NULL LIMIT 1));
CREATE TEMPORARY TABLE diesel_sharded_fits (fits CONSTRAINT `videos_shards: a row did not take what its shards hold, or a counter cache adds to it` CHECK (fits));
SELECT unfit FROM temp.diesel_sharded_unfit WHERE unfit IS NOT NULL;
INSERT INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit;
-- For a program that has gone on after that error: everything is as it was.
INSERT OR ROLLBACK INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit;
DROP TABLE `diesel_sharded_dropped`;
DROP TABLE temp.diesel_sharded_fits;
DROP TABLE temp.diesel_sharded_unfit;
DROP TABLE temp.diesel_sharded_totals;
RELEASE diesel_sharded"
        );
}

/// A greatest or least value begins at NULL, and has the type of its base.
#[test]
fn create_with_greatest_and_least_values() {
    let table = ShardsTable::of(players::table);
    assert_eq!(
        table.create_sql(&Pg).unwrap(),
        r#"CREATE TABLE "players_shards" (
    "id" BIGINT NOT NULL,
    "shard" INTEGER NOT NULL,
    "games" BIGINT NOT NULL DEFAULT 0,
    "best" INTEGER NULL,
    "last_game" TIMESTAMP NULL,
    "fastest" DOUBLE PRECISION NULL CHECK ("fastest" NOT IN ('NaN', 'Infinity', '-Infinity')),
    PRIMARY KEY ("id", "shard"),
    FOREIGN KEY ("id") REFERENCES "players" ("id") ON UPDATE CASCADE ON DELETE CASCADE
) WITH (fillfactor = 90)"#
    );
    let columns = |sql: String| {
        let from = sql.find("`best`").unwrap();
        sql[from..sql.find(",\n    PRIMARY").unwrap()].to_owned()
    };
    assert_eq!(
        columns(table.create_sql(&Mysql).unwrap()),
        "`best` INTEGER NULL,\n    `last_game` DATETIME(6) NULL,\n    `fastest` DOUBLE NULL"
    );
    assert_eq!(
        columns(table.create_sql(&Sqlite).unwrap()),
        "`best` INTEGER NULL,\n    `last_game` TIMESTAMP NULL,\n    `fastest` DOUBLE NULL CHECK (`fastest` BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308)"
    );
}

#[test]
fn fold_and_drop_greatest_and_least_values() {
    let sql = ShardsTable::of(players::table).drop_sql(&Pg).unwrap();
    let has = |part: &str| assert!(sql.contains(part), "{sql}");
    has(r#"MAX("players_shards"."best") AS sum2"#);
    has(r#"MIN("players_shards"."fastest") AS sum4"#);
    let total = "CASE WHEN diesel_sharded_totals.base4 IS NULL OR diesel_sharded_totals.sum4 < diesel_sharded_totals.base4 THEN diesel_sharded_totals.sum4 ELSE diesel_sharded_totals.base4 END";
    has(&format!(r#""fastest" = {total} FROM"#));
    has(&format!(
        r#"("players"."fastest" = {total} OR ("players"."fastest" IS NULL AND {total} IS NULL))"#
    ));
    has(
        r#"CASE WHEN "players"."id" IS NOT NULL THEN COALESCE(CAST("players"."games" AS TEXT), 'NULL') || ', ' || COALESCE(CAST("players"."best" AS TEXT), 'NULL')"#,
    );
}

#[test]
fn create_inside_a_schema() {
    let table = ShardsTable::of(sites::table);
    assert_eq!(
        table.create_sql(&Pg).unwrap(),
        r#"CREATE TABLE "analytics"."sites_shards" (
    "id" BIGINT NOT NULL,
    "shard" INTEGER NOT NULL,
    "hits" BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY ("id", "shard"),
    FOREIGN KEY ("id") REFERENCES "analytics"."sites" ("id") ON UPDATE CASCADE ON DELETE CASCADE
) WITH (fillfactor = 90)"#
    );
    let sql = table.create_sql(&Sqlite).unwrap();
    assert!(
        sql.contains("CREATE TABLE `analytics`.`sites_shards` ("),
        "{sql}"
    );
    assert!(sql.contains("REFERENCES `sites` (`id`)"), "{sql}");
    assert!(
        sql.contains(
            "CREATE TRIGGER `analytics`.`sites_shards_delete` AFTER DELETE ON `sites` BEGIN DELETE FROM `sites_shards` WHERE"
        ),
        "{sql}"
    );
    let sql = table.drop_function_sql(&Mysql).unwrap();
    assert_eq!(
        sql,
        "DROP PROCEDURE IF EXISTS `analytics`.`sites_shards_add`"
    );
    let view = table.view("sites_totals");
    assert_eq!(
        view.drop_sql(&Pg).unwrap(),
        r#"DROP VIEW "analytics"."sites_totals""#
    );
}

diesel::table! {
    reports.clicks (id) {
        id -> BigInt,
        number -> BigInt,
    }
}

#[derive(crate::ShardedField)]
#[sharded(schema = report, table_name = clicks_shards)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Click {
    id: i64,
    #[sharded]
    number: i64,
}

#[test]
fn another_schema_than_the_parents_is_refused() {
    let refused = ShardsTable::of(clicks::table).create_sql(&Pg).unwrap_err();
    match Error::from(refused) {
        Error::OtherSchema { table, other } => {
            assert_eq!(
                (&*table, &*other),
                ("report.clicks_shards", "reports.clicks")
            );
        }
        error => panic!("{error}"),
    }
}

/// Tables that are imported under names of others.
mod renamed {
    use crate::ShardedField;

    mod schema {
        diesel::table! {
            #[sql_name = "bposts é"]
            bposts (id) {
                id -> BigInt,
                views -> BigInt,
            }
        }
    }
    pub(super) use schema::bposts as posts;

    #[derive(ShardedField)]
    #[expect(dead_code, reason = "the derive reads the fields' types")]
    struct Post {
        id: i64,
        #[sharded]
        views: i64,
    }
}

#[test]
fn the_name_is_the_tables_own() {
    assert_eq!(
        renamed::posts::table::SHARDS_TABLE.as_str(),
        "bposts é_shards"
    );
}

/// The definition of the columns stays the same.
fn without_the_foreign_key(created: &str) -> String {
    let (table, rest) = created.split_once(",\n    FOREIGN KEY").unwrap();
    let (_, options) = rest.split_once('\n').unwrap();
    format!("{table}\n{options}")
}

#[test]
fn create_without_a_foreign_key_on_mysql() {
    let table = ShardsTable::of(downloads::table);
    let created = table.without_foreign_key().create_sql(&Mysql).unwrap();
    let plain = without_the_foreign_key(&table.create_sql(&Mysql).unwrap());
    assert_eq!(
        created,
        plain.clone()
            + ";
CREATE TRIGGER `download \"counts\"_create` BEFORE INSERT ON `download \"counts\"` FOR EACH ROW SET NEW.`shard` = IF(EXISTS (SELECT 1 FROM `downloads` WHERE `downloads`.`version` = NEW.`version` AND `downloads`.`day` = NEW.`day` LOCK IN SHARE MODE), NEW.`shard`, (SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS refused));
CREATE TRIGGER `download \"counts\"_delete` AFTER DELETE ON `downloads` FOR EACH ROW DELETE FROM `download \"counts\"` WHERE `download \"counts\"`.`version` = OLD.`version` AND `download \"counts\"`.`day` = OLD.`day`;
CREATE TRIGGER `download \"counts\"_insert` AFTER INSERT ON `downloads` FOR EACH ROW DELETE FROM `download \"counts\"` WHERE `download \"counts\"`.`version` = NEW.`version` AND `download \"counts\"`.`day` = NEW.`day`;
CREATE TRIGGER `download \"counts\"_rename` BEFORE UPDATE ON `downloads` FOR EACH ROW SET NEW.`version` = IF(NEW.`version` = OLD.`version` AND NEW.`day` = OLD.`day` OR NOT EXISTS (SELECT 1 FROM `download \"counts\"` WHERE `download \"counts\"`.`version` = OLD.`version` AND `download \"counts\"`.`day` = OLD.`day` OR `download \"counts\"`.`version` = NEW.`version` AND `download \"counts\"`.`day` = NEW.`day`), NEW.`version`, (SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS refused))"
    );
    assert_eq!(table.without_triggers().create_sql(&Mysql), Ok(plain));
    let dropped = table.without_foreign_key().drop_sql(&Mysql).unwrap();
    assert_eq!(
        dropped,
        table.drop_sql(&Mysql).unwrap()
            + ";
DROP TRIGGER IF EXISTS `download \"counts\"_delete`;
DROP TRIGGER IF EXISTS `download \"counts\"_insert`;
DROP TRIGGER IF EXISTS `download \"counts\"_rename`"
    );
}

#[test]
fn create_without_a_foreign_key_on_postgres() {
    let table = ShardsTable::of(videos::table);
    let plain = without_the_foreign_key(&table.create_sql(&Pg).unwrap());
    assert_eq!(table.without_triggers().create_sql(&Pg).unwrap(), plain);
    assert_eq!(
        table.without_foreign_key().create_sql(&Pg).unwrap(),
        format!(
            r#"DO $diesel_sharded_1$
BEGIN
    {plain};
    CREATE FUNCTION "videos_shards_keep"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET row_security = off AS $diesel_sharded$
#variable_conflict use_column
BEGIN
IF TG_NARGS > 0 THEN
PERFORM 1 FROM "videos" WHERE "videos"."id" = NEW."id" FOR KEY SHARE;
IF NOT FOUND THEN
RAISE foreign_key_violation USING MESSAGE = 'videos_shards: there is no row with the key of a shard';
END IF;
ELSIF TG_OP = 'DELETE' THEN
DELETE FROM "videos_shards" WHERE "videos_shards"."id" = OLD."id";
ELSIF TG_OP = 'UPDATE' THEN
IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
RAISE EXCEPTION USING MESSAGE = 'videos_shards: a key changes in READ COMMITTED alone, since an older snapshot may miss a shard';
END IF;
UPDATE "videos_shards" SET "id" = NEW."id" WHERE "videos_shards"."id" = OLD."id";
ELSE
TRUNCATE "videos_shards";
END IF;
RETURN NULL;
END
$diesel_sharded$;
    REVOKE ALL ON FUNCTION "videos_shards_keep"() FROM PUBLIC;
    -- The tables are those that are found now, whatever the path of a session is, and no temporary ones.
EXECUTE 'ALTER FUNCTION "videos_shards_keep" SET search_path = ' || COALESCE((SELECT string_agg(quote_ident(path.name), ', ' ORDER BY path.place)
    FROM unnest(current_schemas(false)) WITH ORDINALITY AS path(name, place)) || ', ', '') || 'pg_temp';
    CREATE TRIGGER "videos_shards_create" AFTER INSERT ON "videos_shards" FOR EACH ROW EXECUTE FUNCTION "videos_shards_keep"('row');
    CREATE TRIGGER "videos_shards_delete" AFTER DELETE ON "videos" FOR EACH ROW EXECUTE FUNCTION "videos_shards_keep"();
    CREATE TRIGGER "videos_shards_rename" AFTER UPDATE ON "videos" FOR EACH ROW WHEN (ROW(OLD."id") IS DISTINCT FROM ROW(NEW."id")) EXECUTE FUNCTION "videos_shards_keep"();
    CREATE TRIGGER "videos_shards_truncate" AFTER TRUNCATE ON "videos" FOR EACH STATEMENT EXECUTE FUNCTION "videos_shards_keep"();
END
$diesel_sharded_1$"#
        )
    );
    let dropped = table.without_foreign_key().drop_sql(&Pg);
    assert_eq!(dropped.unwrap(), table.drop_sql(&Pg).unwrap());
}

#[test]
fn sqlite_keeps_its_triggers() {
    let table = ShardsTable::of(videos::table);
    let plain = without_the_foreign_key(&table.create_sql(&Sqlite).unwrap());
    for table in [table.without_foreign_key(), table.without_triggers()] {
        assert_eq!(table.create_sql(&Sqlite).unwrap(), plain);
    }
}

/// MySQL and MariaDB name constraints after the table. If that name would be too long, or MariaDB regards it as too long, the statement
/// gives one.
#[test]
fn constraints_on_mysql_have_names_that_fit() {
    use crate::model::{ColumnType, TableName};
    use crate::query_builder::Names;
    use crate::tables::described::{Integrity, Quoted, column};

    let create = |length: usize| {
        let [key, fields] =
            ["id", "n"].map(|name| [column(name.to_owned(), ColumnType::BigInt, None)]);
        let name = "s".repeat(length);
        macro_rules! create_sql {
            ($backend:expr) => {{
                let names = Names {
                    parent: &TableName::new("t"),
                    shards_table: TableName::new(&name),
                    key: &key,
                    fields: &fields,
                    keys_as_texts: false,
                };
                let quoted = Quoted::new(names, Integrity::default(), &$backend);
                quoted.unwrap().create_sql()
            }};
        }
        assert!(!create_sql!(Pg).contains("CONSTRAINT"));
        let sql = create_sql!(Mysql);
        (name, sql)
    };
    let (_, sql) = create(56);
    assert!(!sql.contains("CONSTRAINT"), "{sql}");
    let (name, sql) = create(57);
    let foreign_key = format!("    CONSTRAINT `{name}_ibfk_1` FOREIGN KEY (`id`)");
    assert!(sql.contains(&foreign_key), "{sql}");
    assert!(sql.contains("DEFAULT 0 CHECK (`n`"), "{sql}");
    let (name, sql) = create(58);
    let check = format!(
        "DEFAULT 0,\n    PRIMARY KEY (`id`, `shard`),\n    CONSTRAINT `{name}_chk_1` CHECK (`n` BETWEEN"
    );
    assert!(sql.contains(&check), "{sql}");
    let (_, sql) = create(64);
    let names = sql.split("CONSTRAINT `").skip(1);
    let names: Vec<_> = names.filter_map(|rest| rest.split('`').next()).collect();
    assert_eq!(names.len(), 2, "{sql}");
    assert_ne!(names[0], names[1]);
    assert!(names.iter().all(|name| name.len() <= 64), "{sql}");
}
