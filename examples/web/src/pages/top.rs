//! The ten most viewed videos.

use std::sync::Arc;

use axum::extract::State;
use maud::html;

use super::drawing::{bar, still};
use super::layout::Page;
use super::number::grouped;
use crate::error::PageError;
use crate::models::Video;
use crate::site::Shared;

pub async fn page(State(shared): State<Arc<Shared>>) -> Result<Page, PageError> {
    let reading = Arc::clone(&shared);
    let read = move |conn: &mut _| Ok((Video::most_viewed(10, conn)?, reading.pages_served(conn)?));
    let (videos, served) = shared.database.run(read).await?;
    let greatest = videos.first().map_or(0, |video| video.views);
    let main = html! {
        h1 { "Top 10" }
        p.lead { "By the exact total: the plain column and all shards, added up and sorted by the database in one query." }
        ol.top {
            @for (i, video) in videos.iter().enumerate() {
                li {
                    span.rank aria-hidden="true" { (i + 1) }
                    a.still href={ "/watch/" (video.id) } tabindex="-1" aria-hidden="true" { (still(video.id)) }
                    div {
                        a.title href={ "/watch/" (video.id) } { (video.title) }
                        p.by { (video.channel) }
                        (bar(video.views as f64, greatest as f64))
                    }
                    p.number { (grouped(video.views)) span { " views" } }
                }
            }
        }
    };
    Ok(Page::new("Top 10", main).served(served))
}
