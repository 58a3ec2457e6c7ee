//! The cases of `cases/` and the conflicts of `servers/` by the asynchronous operations, on MySQL and MariaDB.

mod cases;
mod servers;

use diesel_async::AsyncMysqlConnection;
use diesel_sharded_tests::awaited as api;

type Conn = api::Awaited<AsyncMysqlConnection>;

servers::server_tests!(mysql);
