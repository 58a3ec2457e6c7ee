//! Eight threads watch one video 500 times each, and not one view is lost.
//!
//!     cargo run --example video_views
//!     DATABASE_URL=postgres://user@localhost/database cargo run --example video_views --features postgres
//!     DATABASE_URL=mysql://user@127.0.0.1/database    cargo run --example video_views --features mysql
//!
//! Without `DATABASE_URL` it runs on a SQLite file in the temporary folder. The code is the same on all three.

use std::error::Error;

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::{ShardsTable, Total, update};

diesel::table! {
    demo_videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
    }
}

// To show the single shards; an application reads `views.total()`.
diesel::table! {
    demo_videos_shards (id, shard) {
        id -> BigInt,
        shard -> Integer,
        views -> BigInt,
    }
}

use self::demo_videos::dsl::{demo_videos as videos, views};

#[derive(Queryable, Selectable, Identifiable, ShardedField)]
#[diesel(table_name = demo_videos)]
#[sharded(shards = 8)]
struct Video {
    id: i64,
    title: String,
    #[sharded]
    #[diesel(select_expression = demo_videos::views.total(), select_expression_type = Total<demo_videos::views>)]
    views: i64,
}

#[derive(diesel::MultiConnection)]
enum AnyConnection {
    #[cfg(feature = "postgres")]
    Postgres(PgConnection),
    #[cfg(feature = "mysql")]
    Mysql(MysqlConnection),
    Sqlite(SqliteConnection),
}
