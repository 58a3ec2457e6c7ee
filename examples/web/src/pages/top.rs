//! The ten most viewed videos.

use std::sync::Arc;

use axum::extract::State;
use maud::html;

use super::layout::Page;
use super::ranking;
use crate::error::PageError;
use crate::models::Video;
use crate::site::Shared;

pub async fn page(State(shared): State<Arc<Shared>>) -> Result<Page, PageError> {
    let reading = Arc::clone(&shared);
    let read = move |conn: &mut _| Ok((Video::most_viewed(10, conn)?, reading.pages_served(conn)?));
    let (videos, served) = shared.database.run(read).await?;
    let ranking: Vec<_> = videos
        .into_iter()
        .map(|video| {
            let views = video.views;
            (video, views)
        })
        .collect();
    let main = html! {
        h1 { "Top 10" }
        p.lead { "By the exact total: the plain column and all shards, added up and sorted by the database in one query." }
        (ranking::list(&ranking))
    };
    Ok(Page::new("Top 10", main).served(served))
}
