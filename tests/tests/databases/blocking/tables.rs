//! Shards tables: created, missing, folded and dropped.

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded::{Error, ShardsTable, count_many, fold, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{videos as table, videos_shards};
use diesel_sharded_tests::{TestConnection, assert_matches, edit, insert};

use super::{Conn, count, count_on_any_shard, database, total_of};

fn shards(conn: &mut Conn) -> i64 {
    videos_shards::table.count().get_result(conn).unwrap()
}

#[test]
fn a_missing_shards_table_names_its_migration() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    ShardsTable::of(table::table).drop(conn).unwrap();
    macro_rules! missing {
        ($update:expr) => {
            let error = Error::from($update.execute(conn).unwrap_err());
            assert_matches!(&error, Error::MissingShardsTable { table, .. } if table == "videos_shards");
            assert!(error.to_string().contains(".migration(version)"), "{error}");
        };
    }
    missing!(update(videos.find(1)).set(views.eq(views + 1)));
    missing!(update(videos.filter(slug.eq("a"))).set(views.eq(views + 1)));
}

/// A field that was declared after the shards table was created.
#[test]
fn a_missing_column_names_the_shards_table() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    diesel::sql_query("DROP TABLE videos_shards")
        .execute(conn)
        .unwrap();
    let old = "CREATE TABLE videos_shards (id BIGINT NOT NULL, shard INTEGER NOT NULL, likes INTEGER NOT NULL DEFAULT 0, \
               PRIMARY KEY (id, shard))";
    diesel::sql_query(old).execute(conn).unwrap();
    let add = (likes.eq(likes + 1), views.eq(views + 1));
    let many = count_many(views, [(1, 1), (2, 1)]).run(conn);
    for failed in [
        count(1, 1, conn).err(),
        update(videos.filter(slug.eq("a")))
            .set(add)
            .execute(conn)
            .err(),
        update(videos.find(1))
            .set(add)
            .returning(views)
            .get_result::<i64>(conn)
            .err(),
        many.err(),
        fold(videos).run(conn).err(),
    ] {
        let error = Error::from(failed.unwrap());
        assert_matches!(&error, Error::MissingShardsColumn { table, column, .. } if table == "videos_shards" && column == "views");
        assert!(
            error
                .to_string()
                .contains("ALTER TABLE videos_shards ADD COLUMN views"),
            "{error}"
        );
    }
    // Fields that are there are counted.
    let counted = update(videos.find(1))
        .set(likes.eq(likes + 1))
        .execute(conn);
    assert_eq!(counted, Ok(1));
}

/// Another table has the name under which this one is imported.
#[test]
fn the_shards_are_those_of_the_table_itself() {
    mod schema {
        diesel::table! {
            bvideos (id) {
                id -> BigInt,
                views -> BigInt,
            }
        }
    }
    use schema::bvideos as videos;

    #[derive(ShardedField)]
    #[diesel(table_name = videos)]
    #[expect(dead_code, reason = "the derive reads the fields' types")]
    struct Other {
        id: i64,
        #[sharded]
        views: i64,
    }

    let (_database, mut conn) = database();
    let conn = &mut conn;
    diesel::sql_query("CREATE TABLE bvideos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL)")
        .execute(conn)
        .unwrap();
    insert!(videos::table, (videos::id.eq(1), videos::views.eq(0)), conn);
    ShardsTable::of(videos::table).create(conn).unwrap();
    let count = update(videos::table.find(1)).set(videos::views.eq(videos::views + 1000));
    assert_eq!(count.execute(conn), Ok(1));
    let total = videos::table.select(videos::views.total()).first(conn);
    assert_eq!((total, shards(conn)), (Ok(1000_i64), 0));
    ShardsTable::of(videos::table).drop(conn).unwrap();
    let base = videos::table.select(videos::views).first(conn);
    assert_eq!(base, Ok(1000_i64));
}

#[test]
fn leaving_folds_and_loses_nothing() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    for _ in 0..10 {
        update(videos.find(2))
            .set((views.eq(views + 3), likes.eq(likes - 1)))
            .execute(conn)
            .unwrap();
    }
    ShardsTable::of(table::table).drop(conn).unwrap();
    let bases = videos
        .select((views, likes))
        .order(id)
        .load::<(i64, i32)>(conn);
    assert_eq!(bases, Ok(vec![(100, 1), (230, -8), (300, 3)]));
    edit!(videos.find(2), views.eq(views + 1), conn);
    diesel::delete(videos.find(2)).execute(conn).unwrap();
}

#[test]
fn a_migration_runs_and_reverts() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    ShardsTable::of(table::table).drop(conn).unwrap();
    let migration = ShardsTable::of(table::table).migration("20260101000000");
    let run = |conn: &mut Conn| {
        conn.run_pending_migrations(migration.clone())
            .unwrap()
            .len()
    };
    assert_eq!((run(conn), run(conn)), (1, 0));
    count(1, 1, conn).unwrap();
    conn.revert_migration(&migration).unwrap();
    assert_eq!(videos.find(1).select(views).first(conn), Ok(101_i64));
}

#[test]
fn shards_go_with_their_parent() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    update(videos)
        .set(views.eq(views + 1))
        .execute(conn)
        .unwrap();
    assert_eq!(shards(conn), 3);
    diesel::delete(videos.find(2)).execute(conn).unwrap();
    assert_eq!(shards(conn), 2);
    assert_eq!(count(2, 1, conn), Ok(0));
    assert_eq!(shards(conn), 2);
    insert!(
        videos,
        (id.eq(2), slug.eq("again"), title.eq("Again")),
        conn
    );
    assert_eq!(total_of(2, conn), 0);
}

/// MySQL from 9.6 on replaces a row without the foreign key's actions; see `ShardsTable`.
#[test]
fn a_replaced_parent_starts_anew() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    let version = conn.version();
    if version.starts_with("PostgreSQL") {
        return; // has no REPLACE
    }
    count(2, 5, conn).unwrap();
    diesel::sql_query("REPLACE INTO videos (id, slug, title) VALUES (2, 'b', 'B')")
        .execute(conn)
        .unwrap();
    let inherited = if version.starts_with("9.") { 5 } else { 0 };
    let total = videos.find(2).select(views.total()).first(conn);
    assert_eq!(total, Ok(inherited));
}

#[test]
fn an_insert_that_meets_its_row_leaves_the_shards_alone() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    count(2, 5, conn).unwrap();
    let again = (id.eq(2), slug.eq("b"), title.eq("B"));
    diesel::insert_into(videos)
        .values(again)
        .execute(conn)
        .unwrap_err();
    let upsert = match conn.version().contains("PostgreSQL") || conn.version().contains("SQLite") {
        true => "ON CONFLICT (id) DO UPDATE SET title = 'again'",
        false => "ON DUPLICATE KEY UPDATE title = 'again'",
    };
    let upsert = format!("INSERT INTO videos (id, slug, title) VALUES (2, 'b', 'B') {upsert}");
    diesel::sql_query(upsert).execute(conn).unwrap();
    assert_eq!(total_of(2, conn), 205);
}

#[test]
fn shards_follow_their_parents_key() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    count(2, 1, conn).unwrap();
    edit!(videos.find(2), id.eq(20), conn);
    assert_eq!(total_of(20, conn), 201);
}

#[test]
fn shards_stay_within_their_number() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    count_on_any_shard(60, conn);
    let numbers = videos_shards::table
        .select(videos_shards::shard)
        .order(videos_shards::shard);
    assert_eq!(numbers.load(conn), Ok(vec![0, 1, 2, 3]));
}
