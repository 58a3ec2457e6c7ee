//! Tables whose fields keep a greatest or least value, and their models.

use bigdecimal::BigDecimal;
use chrono::{NaiveDate, NaiveDateTime};
use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel_sharded::ShardsTable;
use diesel_sharded::backend::{BackendOf, Dialect, ShardedBackend};
use diesel_sharded::prelude::*;

use crate::schema::create_shards;

diesel::table! {
    players (id) {
        id -> BigInt,
        games -> BigInt,
        best_score -> Nullable<Integer>,
        last_game -> Timestamp,
        fastest -> Nullable<Double>,
        first_day -> Nullable<Date>,
    }
}

diesel::table! {
    players_shards (id, shard) {
        id -> BigInt,
        shard -> Integer,
        games -> BigInt,
        best_score -> Nullable<Integer>,
        last_game -> Nullable<Timestamp>,
        fastest -> Nullable<Double>,
        first_day -> Nullable<Date>,
    }
}

/// Counts, and values of which the greatest or the least is kept.
#[derive(Debug, Clone, PartialEq, ShardedSelectable, Identifiable, ShardedField)]
#[diesel(table_name = players)]
#[sharded(shards = 4)]
pub struct Player {
    pub id: i64,
    #[sharded]
    pub games: i64,
    #[sharded(max)]
    pub best_score: Option<i32>,
    #[sharded(max)]
    pub last_game: NaiveDateTime,
    #[sharded(min)]
    pub fastest: Option<f64>,
    #[sharded(min)]
    pub first_day: Option<NaiveDate>,
}

diesel::table! {
    levels (id) {
        id -> Integer,
        tiny -> SmallInt,
        wide -> BigInt,
        single -> Float,
        exact -> Numeric,
    }
}

/// Nothing is counted here.
#[derive(Debug, Clone, PartialEq, ShardedSelectable, ShardedField)]
#[diesel(table_name = levels)]
#[sharded(shards = 2)]
pub struct Level {
    pub id: i32,
    #[sharded(max)]
    pub tiny: i16,
    #[sharded(min)]
    pub wide: i64,
    #[sharded(max)]
    pub single: f32,
    #[sharded(max, sql_type = "DECIMAL(10, 2)")]
    pub exact: BigDecimal,
}

/// Creates the tables, and player 1 without games and level 1, whose values are 0.
pub fn create<Conn>(conn: &mut Conn)
where
    Conn: LoadConnection<Backend: BackendOf<Conn>>,
    players::table: QueryFragment<Conn::Backend>,
    levels::table: QueryFragment<Conn::Backend>,
{
    let (double, single, time) = match Conn::Backend::backend_of(conn).dialect() {
        Dialect::Mysql => ("DOUBLE", "FLOAT", "DATETIME(6)"),
        _ => ("DOUBLE PRECISION", "REAL", "TIMESTAMP"),
    };
    let tables = [
        format!(
            "CREATE TABLE players (id BIGINT PRIMARY KEY, games BIGINT NOT NULL DEFAULT 0, best_score INTEGER, \
             last_game {time} NOT NULL DEFAULT '2026-01-01 00:00:00', fastest {double}, first_day DATE)"
        ),
        format!(
            "CREATE TABLE levels (id INTEGER PRIMARY KEY, tiny SMALLINT NOT NULL DEFAULT 0, wide BIGINT NOT NULL DEFAULT 0, \
             single {single} NOT NULL DEFAULT 0, exact DECIMAL(10, 2) NOT NULL DEFAULT 0)"
        ),
        "INSERT INTO players (id) VALUES (1)".to_owned(),
        "INSERT INTO levels (id) VALUES (1)".to_owned(),
    ];
    for statement in tables {
        conn.batch_execute(&statement)
            .unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
    create_shards(conn, ShardsTable::of(players::table));
    create_shards(conn, ShardsTable::of(levels::table));
}
