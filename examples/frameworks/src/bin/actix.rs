//! Views that actix-web counts, on a blocking connection from a pool of r2d2's.
//!
//! ```sh
//! cargo run -p diesel_sharded_frameworks --bin actix    # and then: curl -X POST localhost:3000/videos/7
//! ```

use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Path, block};
use actix_web::{App, HttpServer, post};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_sharded::prelude::*;
use diesel_sharded::{ShardsTable, update};
use diesel_sharded_frameworks::status;

diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } }

#[derive(ShardedField)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
}

type Conn = SqliteConnection; // or `PgConnection`, `MysqlConnection`
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// Counts a view, and shows how many there are. Diesel blocks, so it runs on a thread for that.
#[post("/videos/{id}")]
async fn watch(
    id: Path<i64>,
    pool: Data<Pool<ConnectionManager<Conn>>>,
) -> actix_web::Result<String> {
    let watched = block(move || {
        let conn = &mut pool.get().map_err(|_| 503_u16)?;
        let video = videos::table.find(*id);
        let count = update(video).set(videos::views.eq(videos::views + 1));
        let total = count.returning(videos::views).get_result::<i64>(conn);
        total.map_err(failed)
    });
    let views = watched.await?.map_err(answer)?;
    Ok(format!("{views} views\n"))
}

fn failed(error: diesel::result::Error) -> u16 {
    eprintln!("{error}");
    status(error)
}

fn answer(status: u16) -> InternalError<&'static str> {
    let status = StatusCode::from_u16(status);
    InternalError::new("", status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
}

#[actix_web::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let file = std::env::temp_dir().join("diesel_sharded_actix.db");
    let pool = Pool::builder()
        .max_size(16)
        .build(ConnectionManager::<Conn>::new(file.display().to_string()))?;
    let conn = &mut pool.get()?;
    conn.batch_execute("DROP TABLE IF EXISTS videos_shards; DROP TABLE IF EXISTS videos; CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL); INSERT INTO videos VALUES (7, 100)")?;
    ShardsTable::of(videos::table).create(conn)?;

    let pool = Data::new(pool.clone());
    let server =
        HttpServer::new(move || App::new().app_data(pool.clone()).service(watch)).bind(address)?;
    println!("http://{}", server.addrs()[0]);
    Ok(server.run().await?)
}
