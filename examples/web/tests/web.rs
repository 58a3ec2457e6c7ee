//! The site: on SQLite and on servers as programs see it, and in Chromium as people do.

mod cases;
mod support;

#[path = "site/browser.rs"]
mod browser;
#[path = "site/http.rs"]
mod http;

#[cfg(all(feature = "mysql", feature = "postgres"))]
use diesel_sharded_tests::{Database, Server};

#[cfg(all(feature = "mysql", feature = "postgres"))]
cases::on!(postgresql, Database::on_server(Server::Postgres));
#[cfg(all(feature = "mysql", feature = "postgres"))]
cases::on!(mariadb, Database::on_server(Server::Mysql));
