//! Views that axum counts, on a connection of diesel_async from a pool of deadpool's.
//!
//! ```sh
//! cargo run -p diesel_sharded_frameworks --bin axum    # and then: curl -X POST localhost:3000/videos/7
//! ```

use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Router, http::StatusCode};
use diesel::prelude::*;
use diesel_async::SimpleAsyncConnection;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, deadpool::Pool};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_sharded::asynchronous::{ShardsTable, update};
use diesel_sharded::prelude::*;
use diesel_sharded_frameworks::status;

diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } }

#[derive(ShardedField)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

type Conn = SyncConnectionWrapper<SqliteConnection>; // or `AsyncPgConnection`, `AsyncMysqlConnection`
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// Counts a view, and shows how many there are.
async fn watch(State(pool): State<Pool<Conn>>, Path(id): Path<i64>) -> Result<String, StatusCode> {
    let unavailable = |_| StatusCode::SERVICE_UNAVAILABLE;
    let conn = &mut pool.get().await.map_err(unavailable)?;
    let video = videos::table.find(id);
    let count = update(video).set(videos::views.eq(videos::views + 1));
    let total = count.returning(videos::views).get_result::<i64>(conn);
    let views = total.await.map_err(answer)?;
    Ok(format!("{views} views\n"))
}

fn answer(error: diesel::result::Error) -> StatusCode {
    eprintln!("{error}");
    StatusCode::from_u16(status(error)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let file = std::env::temp_dir().join("diesel_sharded_axum.db");
    let manager = AsyncDieselConnectionManager::<Conn>::new(file.display().to_string());
    let pool = Pool::builder(manager).max_size(16).build()?;
    let conn = &mut pool.get().await?;
    conn.batch_execute("DROP TABLE IF EXISTS videos_shards; DROP TABLE IF EXISTS videos; CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL); INSERT INTO videos VALUES (7, 100)").await?;
    ShardsTable::of(videos::table).create(conn).await?;

    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    let app = Router::new()
        .route("/videos/{id}", post(watch))
        .with_state(pool.clone());
    Ok(axum::serve(listener, app).await?)
}
