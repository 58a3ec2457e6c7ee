//! Shards tables that are missing or too old, or whose names another table has.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::{Error, ShardsTable, count_many, fold, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{videos as table, videos_shards};
use diesel_sharded_tests::{assert_matches, insert};

use super::{count, database};

#[test]
fn a_missing_shards_table_names_its_migration() {
    let (_database, conn) = &mut database();
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
    let (_database, conn) = &mut database();
    conn.batch_execute("DROP TABLE videos_shards").unwrap();
    let old = "CREATE TABLE videos_shards (id BIGINT NOT NULL, shard INTEGER NOT NULL, likes INTEGER NOT NULL DEFAULT 0, \
               PRIMARY KEY (id, shard))";
    conn.batch_execute(old).unwrap();
    let add = (likes.eq(likes + 1), views.eq(views + 1));
    let by_filter = update(videos.filter(slug.eq("a"))).set(add);
    let rows_back = update(videos.find(1)).set(add).returning(views);
    let many = count_many(views, [(1, 1), (2, 1)]).run(conn);
    for failed in [
        count(1, 1, conn).err(),
        by_filter.execute(conn).err(),
        rows_back.get_result::<i64>(conn).err(),
        many.err(),
        fold(videos).run(conn).err(),
    ] {
        let error = Error::from(failed.unwrap());
        assert_matches!(&error, Error::MissingShardsColumn { table, column, .. } if table == "videos_shards" && column == "views");
        let remedy = "ALTER TABLE videos_shards ADD COLUMN views";
        assert!(error.to_string().contains(remedy), "{error}");
    }
    // Fields that are there are counted.
    assert_eq!(count!(videos.find(1), likes.eq(likes + 1), conn), 1);
}

/// Another table has the name under which this one is imported.
#[test]
fn the_shards_are_those_of_the_table_itself() {
    mod schema {
        diesel_sharded_tests::counted_table! {
            Other of bvideos (id) {
                id -> BigInt = i64,
                #[sharded] views -> BigInt = i64,
            }
        }
    }
    use schema::bvideos as videos;

    let (_database, conn) = &mut database();
    conn.batch_execute("CREATE TABLE bvideos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL)")
        .unwrap();
    insert!(videos::table, (videos::id.eq(1), videos::views.eq(0)), conn);
    ShardsTable::of(videos::table).create(conn).unwrap();
    let changes = videos::views.eq(videos::views + 1000);
    assert_eq!(count!(videos::table.find(1), changes, conn), 1);
    let total = videos::table.select(videos::views.total()).first(conn);
    let shards_of_the_other = videos_shards::table.count().get_result(conn);
    assert_eq!((total, shards_of_the_other), (Ok(1000_i64), Ok(0_i64)));
    ShardsTable::of(videos::table).drop(conn).unwrap();
    let base = videos::table.select(videos::views).first(conn);
    assert_eq!(base, Ok(1000_i64));
}
