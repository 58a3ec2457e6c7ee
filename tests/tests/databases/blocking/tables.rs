//! Shards tables that are missing or too old.

use diesel::prelude::*;
use diesel_sharded::{Error, ShardsTable, count_many, fold, update};
use diesel_sharded_tests::assert_matches;
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::schema::videos as table;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::{Conn, count};

#[test]
fn a_missing_shards_table_names_its_migration() {
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    ShardsTable::of(table::table).drop(conn).unwrap();
    let by_filter = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
    for missing in [count(1, 1, conn), by_filter.execute(conn)] {
        let error = Error::from(missing.unwrap_err());
        assert_matches!(&error, Error::MissingShardsTable { table, .. } if table == "videos_shards");
        assert!(error.to_string().contains(".migration(version)"), "{error}");
    }
}

/// A field that was declared after the shards table was created.
#[test]
fn a_missing_column_names_the_shards_table() {
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    conn.run("DROP TABLE videos_shards");
    conn.run(
        "CREATE TABLE videos_shards (id BIGINT NOT NULL, shard INTEGER NOT NULL, likes INTEGER NOT NULL DEFAULT 0, \
             PRIMARY KEY (id, shard))",
    );
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
