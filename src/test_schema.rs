//! The tables of this crate's unit tests.

use crate::ShardedField;

diesel::table! {
    videos (id) {
        id -> BigInt,
        slug -> Text,
        views -> BigInt,
        likes -> Integer,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = videos)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
    #[sharded]
    likes: i32,
}

diesel::table! {
    downloads (version, day) {
        version -> Integer,
        day -> Text,
        number -> Double,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = downloads, primary_key(version, day))]
#[sharded(table_name = "download \"counts\"")]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Download {
    version: i32,
    #[sharded(sql_type = "CHAR(10)")]
    day: String,
    #[sharded]
    number: f64,
}

diesel::table! {
    days (version, day) {
        version -> Integer,
        day -> Integer,
        number -> BigInt,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = days, primary_key(version, day))]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Day {
    version: i32,
    day: i32,
    #[sharded]
    number: i64,
}

diesel::table! {
    pages (name) {
        name -> Text,
        hits -> BigInt,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = pages, primary_key(name))]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Page {
    name: String,
    #[sharded]
    hits: i64,
}

diesel::table! {
    players (id) {
        id -> BigInt,
        games -> BigInt,
        best -> Nullable<Integer>,
        last_game -> Timestamp,
        fastest -> Nullable<Double>,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = players)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Player {
    id: i64,
    #[sharded]
    games: i64,
    #[sharded(max)]
    best: Option<i32>,
    #[sharded(max)]
    last_game: std::time::SystemTime,
    #[sharded(min)]
    fastest: Option<f64>,
}

pub mod analytics {
    use crate::ShardedField;

    diesel::table! {
        analytics.sites (id) {
            id -> BigInt,
            name -> Text,
            hits -> BigInt,
        }
    }

    diesel::table! {
        analytics.visits (id) {
            id -> BigInt,
            site_id -> BigInt,
            counted -> Bool,
        }
    }

    #[derive(ShardedField)]
    #[sharded(schema = analytics, table_name = sites_shards)]
    #[expect(dead_code, reason = "the derive reads the fields' types")]
    struct Site {
        id: i64,
        #[sharded]
        hits: i64,
    }
}

#[cfg(all(
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod texts {
    /// The SQL of a fragment on one backend, without its binds.
    macro_rules! sql {
        ($backend:ty, $fragment:expr) => {{
            let text = diesel::debug_query::<$backend, _>(&$fragment).to_string();
            text.split(" -- binds")
                .next()
                .unwrap_or_default()
                .to_owned()
        }};
    }
    pub(crate) use sql;

    /// The SQL of a fragment on these backends, without its binds.
    macro_rules! assert_sql {
        ($fragment:expr; $($backend:ident => $sql:expr),+ $(,)?) => {$(
            assert_eq!($crate::test_schema::sql!($backend, $fragment), $sql);
        )+};
    }
    pub(crate) use assert_sql;
}
#[cfg(all(
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
pub(crate) use texts::{assert_sql, sql};
