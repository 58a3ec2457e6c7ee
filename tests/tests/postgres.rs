//! The cases of `cases/`, and what is postgres's own.

mod cases;

type Conn = diesel::PgConnection;
