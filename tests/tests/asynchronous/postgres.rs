//! The cases of `cases/` and the conflicts of `servers/` by the asynchronous operations, on PostgreSQL.

#[path = "../databases/cases/mod.rs"]
mod cases;
#[path = "../databases/servers/mod.rs"]
mod servers;

use diesel_async::AsyncPgConnection;
use diesel_sharded_tests::awaited as api;

type Conn = api::Awaited<AsyncPgConnection>;
