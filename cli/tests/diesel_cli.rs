//! The `diesel` program beside this tool: a folder of migrations that `generate` has written is run, reverted and run again, and the
//! schema is printed.
#![expect(clippy::duplicate_mod, reason = "the same cases run on every database")]

#[path = "."]
mod sqlite {
    type Conn = diesel::SqliteConnection;

    #[path = "cases/diesel_cli.rs"]
    mod diesel_cli;
}

#[path = "."]
mod postgres {
    type Conn = diesel::PgConnection;

    #[path = "cases/diesel_cli.rs"]
    mod diesel_cli;
}

#[path = "."]
mod mysql {
    type Conn = diesel::MysqlConnection;

    #[path = "cases/diesel_cli.rs"]
    mod diesel_cli;
}
