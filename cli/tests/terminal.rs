//! The tool on a terminal, which `script` plays: the line of progress, Ctrl-C, colours.
#![expect(clippy::duplicate_mod, reason = "the same cases run on every database")]

#[path = "."]
mod sqlite {
    type Conn = diesel::SqliteConnection;

    #[path = "cases/terminal.rs"]
    mod terminal;
}

#[path = "."]
mod postgres {
    type Conn = diesel::PgConnection;

    #[path = "cases/terminal.rs"]
    mod terminal;
}

#[path = "."]
mod mysql {
    type Conn = diesel::MysqlConnection;

    #[path = "cases/terminal.rs"]
    mod terminal;
}
