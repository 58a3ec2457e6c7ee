//! The parts of `/admin` that are live.

use axum::http::HeaderMap;
use axum::response::{IntoResponse, Json, Redirect, Response};
use diesel_sharded::shard_counts::ShardCount;

use super::{comparison, shards};
use crate::error::{PageError, asks_for_json};
use crate::models::Shards;
use crate::schema::videos::dsl::views;
use crate::site::{Panels, Shared};

/// The statuses of the forms, which screen readers announce whenever they change.
pub const LOAD_STATUS: &str = "load-status";
pub const RESIZE_STATUS: &str = "resize-status";
pub const FOLD_STATUS: &str = "fold-status";

pub const LOAD: &str = "load-panel";
pub const SHARDS: &str = "shards-panel";

pub async fn read(shared: &Shared, video: i64) -> Result<Panels, PageError> {
    let read = move |conn: &mut _| {
        let number = ShardCount::of(views).get(conn)?;
        Ok((Shards::of(video, conn)?, number))
    };
    let (of_video, number) = shared.database.run(read).await?;
    let progress = shared.load.progress();
    let coalescers = progress.shard_of_coalescer(video, &of_video);
    let noted = |status, otherwise: &str| {
        let noted = shared.noted(status);
        maud::html! { (noted.as_deref().unwrap_or(otherwise)) }
    };
    let parts = [
        (LOAD_STATUS, comparison::status(&progress)),
        (RESIZE_STATUS, noted(RESIZE_STATUS, "Not resized yet.")),
        (FOLD_STATUS, noted(FOLD_STATUS, "Not folded from here yet.")),
        (LOAD, comparison::picture(&progress)),
        (SHARDS, shards::of_video(&of_video, number, coalescers)),
    ];
    let parts = parts.into_iter();
    Ok(parts.map(|(id, html)| (id, html.into_string())).collect())
}

/// The answer to a form: the panels for our script, which keeps the focus where it is, or the page again.
pub async fn answer(
    shared: &Shared,
    video: i64,
    headers: &HeaderMap,
) -> Result<Response, PageError> {
    Ok(match asks_for_json(headers) {
        true => Json(read(shared, video).await?).into_response(),
        false => Redirect::to(&format!("/admin?video={video}")).into_response(),
    })
}
