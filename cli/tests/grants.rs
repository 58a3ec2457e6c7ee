//! The tool as a role that has the privileges of its section in the guide, and as one that lacks a single one of them.
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
