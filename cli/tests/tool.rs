//! The tool on every database: the same cases on each, and in `own` what one of them has alone. What needs no more than statements and
//! command lines stands in `sessions`.
#![expect(clippy::duplicate_mod, reason = "the same cases run on every database")]

#[path = "own/surroundings.rs"]
mod surroundings;

#[path = "."]
mod sqlite {
    type Conn = diesel::SqliteConnection;

    mod cases;
    #[path = "own/sqlite.rs"]
    mod own;
}

#[path = "."]
mod postgres {
    type Conn = diesel::PgConnection;

    pub mod cases;
    #[path = "own/postgres.rs"]
    mod own;
    mod servers;
}

#[path = "."]
mod mysql {
    type Conn = diesel::MysqlConnection;

    mod cases;
    #[path = "own/mysql.rs"]
    mod own;
    mod servers;
}
