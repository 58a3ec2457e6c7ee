#![cfg(all(
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]

use diesel::mysql::Mysql;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sqlite::Sqlite;

use super::{EveryRow, literal};
use crate::CounterCache;
use crate::error::Error;
use crate::test_schema::analytics::{sites, visits};
use crate::test_schema::{assert_sql, downloads, videos};

diesel::table! {
    comments (id) {
        id -> BigInt,
        video_id -> Nullable<BigInt>,
        published -> Bool,
        stars -> Nullable<Integer>,
    }
}

diesel::table! {
    #[sql_name = "it's \"fetched\""]
    fetches (id) {
        id -> BigInt,
        version -> Integer,
        #[sql_name = "the `day`"]
        day -> Text,
        size -> Double,
    }
}

type Conditional<W> = CounterCache<videos::likes, comments::table, W>;

fn likes<W>(condition: W) -> Conditional<W>
where
    W: diesel::expression::Expression<SqlType: diesel::sql_types::BoolOrNullableBool>
        + diesel::expression::AppearsOnTable<comments::table>
        + diesel::expression::NonAggregate,
{
    CounterCache::of(videos::likes)
        .counts(comments::video_id)
        .filter(condition)
}

fn fetched() -> CounterCache<downloads::number, fetches::table, EveryRow, fetches::size> {
    CounterCache::of(downloads::number)
        .counts((fetches::version, fetches::day))
        .sums(fetches::size)
}

#[test]
fn create_on_postgres() {
    let cache = likes(comments::published).shards(4);
    let add = |counts: &str| {
        format!(
            r#"INSERT INTO "videos_shards" ("id", "shard", "likes")
    SELECT "videos"."id", pg_backend_pid() % 4, sharded_counts.n
    FROM ({counts}) AS sharded_counts
    JOIN "videos" ON "videos"."id" = sharded_counts.key1
    WHERE sharded_counts.n <> 0 ORDER BY "videos"."id"
    ON CONFLICT ("id", "shard") DO UPDATE SET "likes" = "videos_shards"."likes" + excluded."likes""#
        )
    };
    let side = |sign: &str, rows: &str, also: &str| {
        format!(
            r#"SELECT "comments"."video_id" AS key1, {sign}COUNT(*) AS n FROM {rows} WHERE {also}("comments"."published") GROUP BY "comments"."video_id""#
        )
    };
    let one = |sign: &str, rows: &str| {
        format!(
            r#"FOR sharded_row IN SELECT "comments"."video_id" AS key1, 1 AS n FROM {rows} WHERE ("comments"."published") LIMIT 2 LOOP
    sharded_rows := sharded_rows + 1;
END LOOP;
IF sharded_rows = 0 THEN
    RETURN NULL;
ELSIF sharded_rows = 1 THEN
    UPDATE "videos_shards" SET "likes" = "videos_shards"."likes" {sign} sharded_row.n WHERE "videos_shards"."id" = sharded_row.key1 AND "videos_shards"."shard" = pg_backend_pid() % 4;
    IF FOUND THEN
        RETURN NULL;
    END IF;
END IF"#
        )
    };
    let old = r#"sharded_old AS "comments""#;
    let new = r#"sharded_new AS "comments""#;
    let all = r#""comments""#;
    let both = format!(
        "SELECT key1, SUM(n) AS n FROM (
        {}
        UNION ALL {}
    ) AS sharded_sides GROUP BY key1",
        side("-", old, ""),
        side("", new, "")
    );
    let expected = format!(
        r#"{check};
DO $diesel_sharded_1$
DECLARE
    kept TEXT;
BEGIN
LOCK TABLE "videos_shards" IN SHARE UPDATE EXCLUSIVE MODE;
kept := (SELECT 'a counter cache adds to videos_shards: ' || MIN(CAST(t.tgname AS TEXT)) || '; drop that cache first' AS kept FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE strpos(p.prosrc, 'INSERT INTO "videos_shards" ("id", "shard", "likes")') > 0 AND to_regclass('"videos_shards"') = (SELECT c.oid FROM unnest(p.proconfig) AS setting(text),
            regexp_split_to_table(substr(setting.text, 13), ', ') WITH ORDINALITY AS path(name, place),
            pg_namespace n, pg_class c
        WHERE setting.text LIKE 'search_path=%' AND quote_ident(n.nspname) = path.name AND c.relnamespace = n.oid AND c.relname = 'videos_shards'
        ORDER BY path.place LIMIT 1) AND t.tgtype & 1 = 0);
IF kept IS NOT NULL THEN
    RAISE EXCEPTION USING MESSAGE = kept;
END IF;
IF EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass('"comments"')) THEN
    RAISE EXCEPTION USING MESSAGE = '"comments" is a partition, or inherits: what is written through the table above it fires none of its triggers; count the rows of that table';
END IF;
-- What a counted table that was dropped has left.
IF EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass('"videos"') AND tgname = 'comments_video_id_videos_likes_cd1f488c5d310695_rename') THEN
    DROP TRIGGER "comments_video_id_videos_likes_cd1f488c5d310695_rename" ON "videos";
END IF;
CREATE OR REPLACE FUNCTION "comments_video_id_videos_likes_cd1f488c5d310695"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET row_security = off AS $diesel_sharded$
#variable_conflict use_column
DECLARE
    sharded_row RECORD;
    sharded_rows INTEGER := 0;
BEGIN
IF TG_LEVEL = 'ROW' THEN
-- A parent gets another key: children that follow it are counted by their own update.
PERFORM 1 FROM "comments" WHERE "comments"."video_id" = OLD."id" FOR NO KEY UPDATE;
PERFORM 1 FROM "videos_shards" WHERE "videos_shards"."id" = OLD."id" FOR NO KEY UPDATE;
{rename};
RETURN NEW;
ELSIF TG_OP = 'INSERT' THEN
{one_new};
{insert};
ELSIF TG_OP = 'UPDATE' THEN
{update};
ELSIF TG_OP = 'DELETE' THEN
{one_old};
{delete};
ELSE
IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION USING MESSAGE = '"comments": truncate it in a transaction that is READ COMMITTED; in any other some of its rows may not be seen';
END IF;
{truncate};
END IF;
RETURN NULL;
END
$diesel_sharded$;
REVOKE ALL ON FUNCTION "comments_video_id_videos_likes_cd1f488c5d310695"() FROM PUBLIC;
-- The tables are those that are found now, whatever the path of a session is, and no temporary ones.
EXECUTE 'ALTER FUNCTION "comments_video_id_videos_likes_cd1f488c5d310695" SET search_path = ' || COALESCE((SELECT string_agg(quote_ident(path.name), ', ' ORDER BY path.place)
    FROM unnest(current_schemas(false)) WITH ORDINALITY AS path(name, place)) || ', ', '') || 'pg_temp';
CREATE TRIGGER "comments_video_id_videos_likes_cd1f488c5d310695_insert" AFTER INSERT ON "comments" REFERENCING NEW TABLE AS sharded_new
    FOR EACH STATEMENT EXECUTE FUNCTION "comments_video_id_videos_likes_cd1f488c5d310695"();
CREATE TRIGGER "comments_video_id_videos_likes_cd1f488c5d310695_update" AFTER UPDATE ON "comments" REFERENCING OLD TABLE AS sharded_old NEW TABLE AS sharded_new
    FOR EACH STATEMENT EXECUTE FUNCTION "comments_video_id_videos_likes_cd1f488c5d310695"();
CREATE TRIGGER "comments_video_id_videos_likes_cd1f488c5d310695_delete" AFTER DELETE ON "comments" REFERENCING OLD TABLE AS sharded_old
    FOR EACH STATEMENT EXECUTE FUNCTION "comments_video_id_videos_likes_cd1f488c5d310695"();
CREATE TRIGGER "comments_video_id_videos_likes_cd1f488c5d310695_truncate" BEFORE TRUNCATE ON "comments"
    FOR EACH STATEMENT EXECUTE FUNCTION "comments_video_id_videos_likes_cd1f488c5d310695"();
CREATE TRIGGER "comments_video_id_videos_likes_cd1f488c5d310695_rename" BEFORE UPDATE OF "id" ON "videos"
    FOR EACH ROW WHEN (ROW(OLD."id") IS DISTINCT FROM ROW(NEW."id")) EXECUTE FUNCTION "comments_video_id_videos_likes_cd1f488c5d310695"();
END
$diesel_sharded_1$"#,
        check = add(
            r#"SELECT "comments"."video_id" AS key1, COUNT(*) AS n FROM (SELECT "comments"."video_id" FROM "comments" AS "comments", "comments" AS sharded_other WHERE 1 = 0 AND ("comments"."published")) AS "comments" WHERE 1 = 0 GROUP BY "comments"."video_id""#
        ),
        rename = add(&side("-", all, r#""comments"."video_id" = OLD."id" AND "#)),
        one_new = one("+", new),
        one_old = one("-", old),
        insert = add(&side("", new, "")),
        update = add(&both),
        delete = add(&side("-", old, "")),
        truncate = add(&side("-", all, "")),
    );
    assert_eq!(cache.create_sql(&Pg).unwrap(), expected);
}

#[test]
fn create_on_mysql() {
    let child = "`it's \"fetched\"`";
    let check = format!(
        "INSERT INTO `download \"counts\"` (`version`, `day`, `shard`, `number`)
    SELECT `downloads`.`version`, `downloads`.`day`, CONNECTION_ID() % 16, sharded_counts.n
    FROM (SELECT {child}.`version` AS key1, {child}.`the ``day``` AS key2, COALESCE(SUM({child}.sharded_amount), 0) AS n FROM (SELECT sharded_row.`version`, sharded_row.`the ``day```, sharded_row.`size` AS sharded_amount FROM {child} AS sharded_row, {child} AS sharded_other WHERE 1 = 0 AND sharded_row.`size` <> 0) AS {child} WHERE 1 = 0 GROUP BY {child}.`version`, {child}.`the ``day```) AS sharded_counts
    STRAIGHT_JOIN `downloads` ON `downloads`.`version` = sharded_counts.key1 AND `downloads`.`day` = sharded_counts.key2
    WHERE sharded_counts.n <> 0 ORDER BY `downloads`.`version`, `downloads`.`day`
    ON DUPLICATE KEY UPDATE `number` = `download \"counts\"`.`number` + sharded_counts.n"
    );
    let add = |n: &str, counts: &str| {
        format!(
            "INSERT INTO `download \"counts\"` (`version`, `day`, `shard`, `number`)
    SELECT `downloads`.`version`, `downloads`.`day`, CONNECTION_ID() % 16, {n} FROM `downloads`
    WHERE {counts} LOCK IN SHARE MODE
    ON DUPLICATE KEY UPDATE `number` = `download \"counts\"`.`number` + {n}"
        )
    };
    let is_parent = |row: &str| {
        format!(
            "`downloads`.`version` = {row}.`version` AND `downloads`.`day` = {row}.`the ``day```"
        )
    };
    let (old, new) = ("-COALESCE(OLD.`size`, 0)", "COALESCE(NEW.`size`, 0)");
    let one = |row: &str, n: &str| add(n, &format!("{} AND {n} <> 0", is_parent(row)));
    let (of_old, of_new) = (is_parent("OLD"), is_parent("NEW"));
    let both = format!(
        "(CASE WHEN {of_old} THEN {old} ELSE 0 END + CASE WHEN {of_new} THEN {new} ELSE 0 END)"
    );
    let update = add(
        &both,
        &format!(
            "({of_old} OR {of_new}) AND {both} <> 0 ORDER BY `downloads`.`version`, `downloads`.`day`"
        ),
    );
    let name = "it's \"fetched\"_version_the ``day``_size_downloads_number";
    assert_eq!(
        fetched().create_sql(&Mysql).unwrap(),
        format!(
            "{};
SET @diesel_sharded_locked = GET_LOCK('diesel_sharded_caches', 60);
SET @diesel_sharded_cache = IF(@diesel_sharded_locked = 1, (SELECT COALESCE(CONCAT('a counter cache adds to download \"counts\": ', MIN(CAST(TRIGGER_NAME AS CHAR)), '; drop that cache first'), '') AS kept FROM information_schema.TRIGGERS WHERE LOCATE(CAST('INSERT INTO `download \"counts\"` (`version`, `day`, `shard`, `number`)' AS BINARY), ACTION_STATEMENT) > 0 AND EVENT_OBJECT_SCHEMA = DATABASE()), 'another counter cache is being created');
CREATE TEMPORARY TABLE `diesel_sharded_cache` (PRIMARY KEY (kept)) ENGINE = InnoDB AS
    SELECT CAST(COALESCE(@diesel_sharded_cache, 'not checked') AS CHAR(180)) AS kept FROM (SELECT 1 UNION ALL SELECT 2) AS twice
    WHERE COALESCE(@diesel_sharded_cache, 'not checked') <> '';
DROP TEMPORARY TABLE `diesel_sharded_cache`;
LOCK TABLES {child} WRITE;
CREATE TRIGGER `{name}_insert` AFTER INSERT ON {child} FOR EACH ROW
{};
CREATE TRIGGER `{name}_update` AFTER UPDATE ON {child} FOR EACH ROW
{};
CREATE TRIGGER `{name}_delete` AFTER DELETE ON {child} FOR EACH ROW
{};
UNLOCK TABLES;
DO RELEASE_LOCK('diesel_sharded_caches')",
            check,
            one("NEW", new),
            update,
            one("OLD", old)
        )
    );
}

#[test]
fn create_on_sqlite() {
    let cache = CounterCache::of(videos::views).counts(comments::video_id);
    let or_add = "ON CONFLICT (`id`, `shard`) DO UPDATE SET `views` = `videos_shards`.`views` + excluded.`views`";
    let check = format!(
        "INSERT INTO `videos_shards` (`id`, `shard`, `views`)
    SELECT `videos`.`id`, 0, sharded_counts.n
    FROM (SELECT `comments`.`video_id` AS key1, COUNT(*) AS n FROM `comments` WHERE 1 = 0 GROUP BY `comments`.`video_id`) AS sharded_counts
    JOIN `videos` ON `videos`.`id` = sharded_counts.key1
    WHERE sharded_counts.n <> 0 ORDER BY `videos`.`id`
    {or_add}"
    );
    let add = |n: &str, counts: &str| {
        format!(
            "INSERT INTO `videos_shards` (`id`, `shard`, `views`)
    SELECT `videos`.`id`, 0, {n} FROM `videos`
    WHERE {counts}
    {or_add}"
        )
    };
    let (old, new) = (
        "`videos`.`id` = OLD.`video_id`",
        "`videos`.`id` = NEW.`video_id`",
    );
    let n = format!("(CASE WHEN {old} THEN -1 ELSE 0 END + CASE WHEN {new} THEN 1 ELSE 0 END)");
    let update = add(
        &n,
        &format!(
            "({old} OR {new}) AND NOT (OLD.`video_id` IS NEW.`video_id`) AND {n} <> 0 ORDER BY `videos`.`id`"
        ),
    );
    assert_eq!(
        cache.create_sql(&Sqlite).unwrap(),
        format!(
            "SAVEPOINT diesel_sharded;
{};
CREATE TEMPORARY TABLE diesel_sharded_cache (kept CONSTRAINT `a counter cache adds to videos_shards: ``views`` has one already` CHECK (kept IS NULL));
INSERT INTO temp.diesel_sharded_cache SELECT 'a counter cache adds to videos_shards: ' || MIN(name) || '; drop that cache first' AS kept FROM sqlite_master WHERE type = 'trigger' AND instr(sql, 'INSERT INTO `videos_shards` (`id`, `shard`, `views`)') > 0;
DROP TABLE temp.diesel_sharded_cache;
CREATE TRIGGER `comments_video_id_videos_views_insert` AFTER INSERT ON `comments` BEGIN
{};
END;
CREATE TRIGGER `comments_video_id_videos_views_update` AFTER UPDATE ON `comments` BEGIN
{};
END;
CREATE TRIGGER `comments_video_id_videos_views_delete` AFTER DELETE ON `comments` BEGIN
{};
END;
RELEASE diesel_sharded",
            check,
            add("1", new),
            update,
            add("-1", old)
        )
    );
}

/// For each parent, in key order, and under another name than a cache that reads the same column for its key.
#[test]
fn all_rows_of_a_table() {
    let all = CounterCache::of(videos::likes).counts_all(comments::table);
    let part = "ON 1 = 1\n    WHERE sharded_counts.n <> 0 ORDER BY \"videos\".\"id\" FOR KEY SHARE OF \"videos\"\n";
    let sql = all.create_sql(&Pg).unwrap();
    assert!(sql.contains(part), "{sql}");
    let part = "1 FROM `videos`\n    WHERE 1 = 1 ORDER BY `videos`.`id` LOCK IN SHARE MODE\n";
    let sql = all.create_sql(&Mysql).unwrap();
    assert!(sql.contains(part), "{sql}");
    assert_sql!(all.recount(); Sqlite => "SELECT `videos`.`id`, (SELECT COUNT(*) FROM `comments` WHERE 1 = 1) FROM `videos`");
    let one = CounterCache::of(videos::likes).counts(comments::video_id);
    let other = all.sums(comments::video_id);
    assert_ne!(
        one.drop_sql(&Sqlite).unwrap(),
        other.drop_sql(&Sqlite).unwrap()
    );
}

/// No other column is named, so any may be dropped.
#[test]
fn a_condition_on_the_row() {
    let sql = likes(comments::stars.ge(literal(3)))
        .create_sql(&Mysql)
        .unwrap();
    let (old, new) = ("((OLD.`stars` >= 3))", "((NEW.`stars` >= 3))");
    for part in [
        "FROM (SELECT sharded_row.`video_id` FROM `comments` AS sharded_row, `comments` AS sharded_other WHERE 1 = 0 AND ((sharded_row.`stars` >= 3))) AS `comments` WHERE 1 = 0 GROUP",
        &format!("WHERE `videos`.`id` = NEW.`video_id` AND {new} LOCK IN SHARE MODE"),
        &format!("CASE WHEN `videos`.`id` = OLD.`video_id` AND {old} THEN -1 ELSE 0 END"),
        &format!("AND NOT (OLD.`video_id` <=> NEW.`video_id` AND {old} <=> {new}) AND"),
    ] {
        assert!(sql.contains(part), "{part} in {sql}");
    }
    let whole = likes(diesel::dsl::sql::<diesel::sql_types::Bool>(
        "NOT comments.published",
    ));
    let sql = whole.create_sql(&Sqlite).unwrap();
    assert!(sql.contains("AND (NOT NEW.published)"), "{sql}");
}

/// Of each row by itself, and checked beside the same rows again.
#[test]
fn an_expression_is_summed() {
    let vote = "(CASE WHEN comments.published THEN 1 ELSE -1 END)";
    let votes = CounterCache::of(videos::likes)
        .counts(comments::video_id)
        .sums(diesel::dsl::sql::<diesel::sql_types::Integer>(
            vote.trim_matches(['(', ')']),
        ));
    let [old, new] = ["OLD", "NEW"].map(|row| vote.replace("comments", row));
    let sql = votes.create_sql(&Mysql).unwrap();
    for part in [
        "COALESCE(SUM(`comments`.sharded_amount), 0) AS n FROM (SELECT sharded_row.`video_id`, (CASE WHEN sharded_row.published THEN 1 ELSE -1 END) AS sharded_amount FROM `comments` AS sharded_row, `comments` AS sharded_other WHERE 1 = 0 AND (CASE WHEN sharded_row.published THEN 1 ELSE -1 END) <> 0) AS `comments` WHERE",
        &format!("COALESCE({new}, 0) FROM `videos`"),
        &format!("CASE WHEN `videos`.`id` = OLD.`video_id` THEN -COALESCE({old}, 0) ELSE 0 END"),
        &format!("AND NOT (OLD.`video_id` <=> NEW.`video_id` AND ({old}) <=> ({new})) AND"),
        "CREATE TRIGGER `comments_video_id_videos_likes_",
    ] {
        assert!(sql.contains(part), "{part} in {sql}");
    }
    let sql = votes.create_sql(&Pg).unwrap();
    for part in [
        format!(
            r#"AS key1, -COALESCE(SUM({vote}), 0) AS n FROM sharded_old AS "comments" GROUP BY"#
        ),
        format!(
            r#"COALESCE({vote}, 0) AS n FROM sharded_new AS "comments" WHERE COALESCE({vote}, 0) <> 0 LIMIT 2"#
        ),
    ] {
        assert!(sql.contains(&part), "{part} in {sql}");
    }
    // It may fail on a row that is not counted.
    let sql = votes
        .filter(comments::published)
        .create_sql(&Sqlite)
        .unwrap();
    let new = vote.replace("comments", "NEW");
    let counted = format!("COALESCE(CASE WHEN (NEW.`published`) THEN {new} END, 0) FROM");
    assert!(sql.contains(&counted), "{counted} in {sql}");
}

#[test]
fn drop_everywhere() {
    let cache = CounterCache::of(videos::views).counts(comments::video_id);
    assert_eq!(
        cache.drop_sql(&Pg).unwrap(),
        r#"DO $diesel_sharded$
BEGIN
IF has_table_privilege(to_regclass('"comments"'), 'UPDATE, DELETE, TRUNCATE') THEN
    LOCK TABLE "comments" IN ACCESS EXCLUSIVE MODE;
END IF;
DROP FUNCTION IF EXISTS "comments_video_id_videos_views"() CASCADE;
END
$diesel_sharded$"#
    );
    let by_triggers = "DROP TRIGGER IF EXISTS `comments_video_id_videos_views_insert`;
DROP TRIGGER IF EXISTS `comments_video_id_videos_views_update`;
DROP TRIGGER IF EXISTS `comments_video_id_videos_views_delete`";
    assert_eq!(cache.drop_sql(&Mysql).unwrap(), by_triggers);
    assert_eq!(cache.drop_sql(&Sqlite).unwrap(), by_triggers);
}

#[test]
fn sql_of_recounts() {
    let counted = likes(comments::published).recount();
    assert_sql!(counted;
        Pg => r#"SELECT "comments"."video_id", COUNT(*) FROM "comments" WHERE "comments"."video_id" IS NOT NULL AND ("comments"."published") GROUP BY "comments"."video_id""#,
    );
    let summed = CounterCache::of(videos::views)
        .counts(comments::video_id)
        .sums(comments::stars)
        .recount();
    assert_sql!(summed;
        Pg => r#"SELECT "comments"."video_id", CAST(COALESCE(SUM("comments"."stars"), 0) AS BIGINT) FROM "comments" WHERE "comments"."video_id" IS NOT NULL GROUP BY "comments"."video_id""#,
        Mysql => "SELECT `comments`.`video_id`, COALESCE(SUM(`comments`.`stars`), 0) FROM `comments` WHERE `comments`.`video_id` IS NOT NULL GROUP BY `comments`.`video_id`",
    );
    let child = "`it's \"fetched\"`";
    assert_sql!(fetched().recount();
        Sqlite => format!(
            "SELECT {child}.`version`, {child}.`the ``day```, COALESCE(SUM({child}.`size`), 0) FROM {child} WHERE {child}.`version` IS NOT NULL AND {child}.`the ``day``` IS NOT NULL GROUP BY {child}.`version`, {child}.`the ``day```"
        ),
    );
}

#[test]
fn what_no_trigger_can_hold_is_refused() {
    let refused = |sql: QueryResult<String>| Error::from(sql.unwrap_err());
    let bound = refused(likes(comments::published.eq(true)).create_sql(&Pg));
    assert!(
        matches!(&bound, Error::BindInTrigger { sql } if sql.ends_with("= $1)")),
        "{bound:?}"
    );
    for number in [0, 4097] {
        let shards = refused(likes(comments::published).shards(number).create_sql(&Pg));
        assert!(
            matches!(shards, Error::InvalidShardCount { number: n } if n == number),
            "{shards:?}"
        );
    }
}

#[test]
fn triggers_inside_a_schema() {
    let cache = CounterCache::of(sites::hits)
        .counts(visits::site_id)
        .filter(visits::counted);
    let sql = cache.create_sql(&Mysql).unwrap();
    for part in [
        "LOCK TABLES `analytics`.`visits` WRITE",
        "CREATE TRIGGER `analytics`.`visits_site_id_analytics_sites_hits_3612e50db211d24a_insert` AFTER INSERT ON `analytics`.`visits` FOR EACH ROW",
        "`analytics`.`visits` AS sharded_other WHERE 1 = 0 AND (sharded_row.`counted`)) AS `visits` WHERE 1 = 0 GROUP",
        "= NEW.`site_id` AND (NEW.`counted`)",
        "INSERT INTO `analytics`.`sites_shards` (`id`, `shard`, `hits`)",
    ] {
        assert!(sql.contains(part), "{part} in {sql}");
    }
    let sql = cache.create_sql(&Sqlite).unwrap();
    assert!(
        sql.contains("AFTER DELETE ON `visits` BEGIN\nINSERT INTO `sites_shards`"),
        "{sql}"
    );
    let sql = cache.drop_sql(&Pg).unwrap();
    for part in [
        r#"LOCK TABLE "analytics"."visits" IN"#,
        r#"EXISTS "analytics"."visits_site_id_analytics_sites_hits_21a456edcabf0412"() CASCADE"#,
    ] {
        assert!(sql.contains(part), "{part} in {sql}");
    }
    // SQLite's triggers reach no other database.
    let across = CounterCache::of(sites::hits).counts(comments::id);
    let refused = Error::from(across.create_sql(&Sqlite).unwrap_err());
    assert!(matches!(refused, Error::OtherSchema { .. }), "{refused}");
    assert!(across.create_sql(&Pg).is_ok());
}
