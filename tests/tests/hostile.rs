//! Hostile input: names, keys, amounts and identifiers that nobody would think of, on every database. Any input
//! is either taken for exactly what it is, or refused by a clear error, and nothing has changed then.
//!
//! Error texts fed to the classifier and attributes fed to the derive are in the unit tests of these
//! (`src/backend`, `derive/src/lib.rs`).
//!
//! `HOSTILE=100` runs 100 times as many cases; together with the unit tests that is more than a million:
//!
//! ```sh
//! HOSTILE=100 cargo test --release --workspace --all-features hostile
//! ```
#![expect(clippy::duplicate_mod, reason = "the same cases run on every database")]

#[path = "."]
mod sqlite {
    type Conn = diesel::SqliteConnection;

    #[path = "cases/hostile/mod.rs"]
    mod hostile;
}

#[path = "."]
mod postgres {
    type Conn = diesel::PgConnection;

    #[path = "cases/hostile/mod.rs"]
    mod hostile;
}

#[path = "."]
mod mysql {
    type Conn = diesel::MysqlConnection;

    #[path = "cases/hostile/mod.rs"]
    mod hostile;
}
