//! The privileges that the guide's chapter on operations gives are enough for each operation, and each of them is needed.
#![expect(clippy::duplicate_mod, reason = "the same cases run on both servers")]

#[path = "."]
mod postgres {
    type Conn = diesel::PgConnection;

    #[path = "cases/grants.rs"]
    mod grants;
}

#[path = "."]
mod mysql {
    type Conn = diesel::MysqlConnection;

    #[path = "cases/grants.rs"]
    mod grants;
}
