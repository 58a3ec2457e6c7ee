//! The cases of `cases/`, and what is mysql's own.

mod cases;

type Conn = diesel::MysqlConnection;
