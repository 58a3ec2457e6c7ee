//! The cases of `cases/`, and what is sqlite's own.

mod cases;

type Conn = diesel::SqliteConnection;
