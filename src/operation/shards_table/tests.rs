use super::*;
use crate::test_schema::{downloads, pages, videos};
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
    FOREIGN KEY (`id`) REFERENCES `videos` (`id`) ON DELETE CASCADE
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
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING MESSAGE = 'download "counts": drop it in a transaction that is READ COMMITTED; in any other some counts may not be seen';
    END IF;
    LOCK TABLE "downloads", "download ""counts""" IN ACCESS EXCLUSIVE MODE;
    IF row_security_active('"download ""counts"""') THEN
        RAISE EXCEPTION USING MESSAGE = 'download "counts": row security may hide some of its rows; drop it as a role that bypasses row security';
    END IF;
    CREATE TEMPORARY TABLE diesel_sharded_totals ON COMMIT DROP AS
        SELECT "downloads"."version" AS key1, "downloads"."day" AS key2, "downloads"."number" AS base1, diesel_sharded_sums.sum1 FROM "downloads"
        JOIN (SELECT "download ""counts"""."version" AS key1, "download ""counts"""."day" AS key2, SUM("download ""counts"""."number") AS sum1 FROM "download ""counts""" GROUP BY "download ""counts"""."version", "download ""counts"""."day") AS diesel_sharded_sums ON diesel_sharded_sums.key1 = "downloads"."version" AND diesel_sharded_sums.key2 = "downloads"."day";
    UPDATE "downloads" SET "number" = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 FROM pg_temp.diesel_sharded_totals WHERE "downloads"."version" = diesel_sharded_totals.key1 AND "downloads"."day" = diesel_sharded_totals.key2;
    -- Each base has to be the one before plus its sum, and each shard has to have a row.
    unfit := (SELECT 'download "counts", key ' || CAST(diesel_sharded_totals.key1 AS TEXT) || ', ' || CAST(diesel_sharded_totals.key2 AS TEXT) || ': ' || CAST(diesel_sharded_totals.base1 AS TEXT) || ' + ' || CAST(diesel_sharded_totals.sum1 AS TEXT) || ' gave ' || COALESCE(CAST("downloads"."number" AS TEXT), 'nothing') FROM pg_temp.diesel_sharded_totals LEFT JOIN "downloads" ON "downloads"."version" = diesel_sharded_totals.key1 AND "downloads"."day" = diesel_sharded_totals.key2 WHERE NOT COALESCE("downloads"."number" = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1, FALSE) LIMIT 1);
    unfit := COALESCE(unfit, (SELECT 'download "counts", key ' || CAST("download ""counts"""."version" AS TEXT) || ', ' || CAST("download ""counts"""."day" AS TEXT) || ': it has shards and no row' FROM "download ""counts""" LEFT JOIN pg_temp.diesel_sharded_totals ON "download ""counts"""."version" = diesel_sharded_totals.key1 AND "download ""counts"""."day" = diesel_sharded_totals.key2 WHERE diesel_sharded_totals.key1 IS NULL LIMIT 1));
    IF unfit IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = unfit, HINT = 'Nothing was changed. Look for a trigger, a policy, or a column that rounds or cuts what it is given.';
    END IF;
    DROP TABLE pg_temp.diesel_sharded_totals;
    DROP TABLE "download ""counts""";
END
$diesel_sharded$"#
    );
}

#[test]
fn drop_on_mysql() {
    assert_eq!(
            ShardsTable::of(videos::table).drop_sql(&Mysql).unwrap(),
            "SET @diesel_sharded_row = 'not checked', @diesel_sharded_unfit = 'not checked', @diesel_sharded_autocommit = @@autocommit;
SET autocommit = 0;
LOCK TABLES `videos` WRITE, `videos_shards` WRITE;
CREATE TEMPORARY TABLE `diesel_sharded_totals` (PRIMARY KEY (key1)) ENGINE = InnoDB AS
    SELECT `videos`.`id` AS key1, `videos`.`views` AS base1, `videos`.`likes` AS base2, diesel_sharded_sums.sum1, diesel_sharded_sums.sum2 FROM `videos`
        JOIN (SELECT `videos_shards`.`id` AS key1, SUM(`videos_shards`.`views`) AS sum1, SUM(`videos_shards`.`likes`) AS sum2 FROM `videos_shards` GROUP BY `videos_shards`.`id`) AS diesel_sharded_sums ON diesel_sharded_sums.key1 = `videos`.`id`;
UPDATE IGNORE `videos` JOIN diesel_sharded_totals ON `videos`.`id` = diesel_sharded_totals.key1 SET `videos`.`views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1, `videos`.`likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2;
-- Each base has to be the one before plus its sum, and each shard has to have a row. Else all this is rolled back.
SET @diesel_sharded_row = (SELECT CONCAT('videos_shards, key ', CONCAT(CAST(diesel_sharded_totals.key1 AS CHAR)), ': ', CONCAT(CAST(diesel_sharded_totals.base1 AS CHAR), ', ', CAST(diesel_sharded_totals.base2 AS CHAR)), ' + ', CONCAT(CAST(diesel_sharded_totals.sum1 AS CHAR), ', ', CAST(diesel_sharded_totals.sum2 AS CHAR)), ' gave ', COALESCE(CONCAT(CAST(`videos`.`views` AS CHAR), ', ', CAST(`videos`.`likes` AS CHAR)), 'nothing')) FROM diesel_sharded_totals LEFT JOIN `videos` ON `videos`.`id` = diesel_sharded_totals.key1 WHERE NOT COALESCE(`videos`.`views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 AND `videos`.`likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2, FALSE) LIMIT 1);
SET @diesel_sharded_unfit = COALESCE(@diesel_sharded_row, (SELECT CONCAT('videos_shards, key ', CONCAT(CAST(`videos_shards`.`id` AS CHAR)), ': it has shards and no row') FROM `videos_shards` LEFT JOIN diesel_sharded_totals ON `videos_shards`.`id` = diesel_sharded_totals.key1 WHERE diesel_sharded_totals.key1 IS NULL LIMIT 1));
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
-- Each base has to be the one before plus its sum, and each shard has to have a row.
INSERT INTO temp.diesel_sharded_unfit SELECT COALESCE((SELECT 'videos_shards, key ' || CAST(diesel_sharded_totals.key1 AS TEXT) || ': ' || CAST(diesel_sharded_totals.base1 AS TEXT) || ', ' || CAST(diesel_sharded_totals.base2 AS TEXT) || ' + ' || CAST(diesel_sharded_totals.sum1 AS TEXT) || ', ' || CAST(diesel_sharded_totals.sum2 AS TEXT) || ' gave ' || COALESCE(CAST(`videos`.`views` AS TEXT) || ', ' || CAST(`videos`.`likes` AS TEXT), 'nothing') FROM temp.diesel_sharded_totals LEFT JOIN `videos` ON `videos`.`id` = diesel_sharded_totals.key1 WHERE NOT COALESCE(`videos`.`views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 AND EXISTS (SELECT 1 FROM (SELECT diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 AS total) WHERE typeof(total) = 'integer') AND `videos`.`likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2 AND EXISTS (SELECT 1 FROM (SELECT diesel_sharded_totals.base2 + diesel_sharded_totals.sum2 AS total) WHERE total BETWEEN -2147483648 AND 2147483647), FALSE) LIMIT 1), (SELECT 'videos_shards, key ' || CAST(`diesel_sharded_dropped`.`id` AS TEXT) || ': it has shards and no row' FROM `diesel_sharded_dropped` LEFT JOIN temp.diesel_sharded_totals ON `diesel_sharded_dropped`.`id` = diesel_sharded_totals.key1 WHERE diesel_sharded_totals.key1 IS NULL LIMIT 1));
CREATE TEMPORARY TABLE diesel_sharded_fits (fits CONSTRAINT `videos_shards: a row did not take what its shards hold` CHECK (fits));
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
