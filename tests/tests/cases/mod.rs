use super::Conn;
use diesel_sharded_tests::{Database, TestConnection, schema};

mod shapes;

/// A database with the tables of `schema`.
fn database() -> (Database, Conn) {
    let database = Conn::database();
    let mut conn = Conn::connect(&database);
    schema::create(&mut conn);
    (database, conn)
}
