//! The privileges that the reference page on grants gives are enough for each operation, and each of them is needed.

#[path = "grants"]
mod postgres {
    type Conn = diesel::PgConnection;

    mod cases;
}

#[path = "grants"]
mod mysql {
    type Conn = diesel::MysqlConnection;

    mod cases;
}
