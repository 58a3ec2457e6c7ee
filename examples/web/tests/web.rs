//! The site: on SQLite and on servers as programs see it, and in Chromium as people do.

mod cases;
mod support;

#[path = "site/browser.rs"]
mod browser;
#[path = "site/http.rs"]
mod http;
#[cfg(all(feature = "mysql", feature = "postgres"))]
#[path = "site/servers.rs"]
mod servers;
