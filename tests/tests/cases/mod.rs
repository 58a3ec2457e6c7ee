use super::Conn;
use diesel_sharded_tests::{Database, TestConnection, schema};

mod concurrency;
mod keys_and_fields;
mod properties;
mod returning;
mod shapes;
mod tables;
mod totals;
mod transactions;

/// A database with the tables of `schema`.
fn database() -> (Database, Conn) {
    let database = Conn::database();
    let mut conn = Conn::connect(&database);
    schema::create(&mut conn);
    (database, conn)
}
