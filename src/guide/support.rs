// Shared by the examples of the chapters; `start.md` shows it. Included only by doc tests.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded::ShardsTable;

mod schema {
    diesel::table! {
        videos (id) {
            id -> BigInt,
            title -> Text,
            views -> BigInt,
            likes -> Integer,
        }
    }
}
use schema::videos::{self, dsl::*};

#[derive(ShardedSelectable, Identifiable, ShardedField)]
#[diesel(table_name = videos)]
#[sharded(table_name = videos_shards)]
struct Video {
    id: i64,
    title: String,
    #[sharded]
    views: i64,
    #[sharded]
    likes: i32,
}

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A database with the shards table, the library's own tables, and video 7 with 100 views.
fn database() -> SqliteConnection {
    create(":memory:").unwrap()
}

fn create(url: &str) -> Result<SqliteConnection> {
    let mut conn = SqliteConnection::establish(url)?;
    conn.batch_execute(
        "CREATE TABLE videos (
            id INTEGER PRIMARY KEY,
            title TEXT NOT NULL,
            views BIGINT NOT NULL DEFAULT 0,
            likes INTEGER NOT NULL DEFAULT 0
        );
        INSERT INTO videos (id, title, views) VALUES (7, 'zoo', 100), (8, 'farm', 30)",
    )?;
    ShardsTable::of(videos::table).create(&mut conn)?;
    conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    Ok(conn)
}
