//! The same site on PostgreSQL and on MariaDB.

mod cases;
mod support;

use diesel_sharded_tests::{Database, Server};

cases::on!(postgresql, Database::on_server(Server::Postgres));
cases::on!(mariadb, Database::on_server(Server::Mysql));
