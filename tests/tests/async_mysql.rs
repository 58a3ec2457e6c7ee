//! The cases of `cases/` by the asynchronous operations, on MySQL and MariaDB.

mod cases;

use diesel_async::AsyncMysqlConnection;
use diesel_sharded_tests::awaited as api;

type Conn = api::Awaited<AsyncMysqlConnection>;
