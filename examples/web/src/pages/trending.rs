//! The ten most viewed videos of the last 24 hours.

use std::sync::Arc;

use axum::extract::State;
use maud::html;

use super::layout::Page;
use super::ranking;
use crate::error::PageError;
use crate::site::Shared;
use crate::trending;

pub async fn page(State(shared): State<Arc<Shared>>) -> Result<Page, PageError> {
    let reading = Arc::clone(&shared);
    let read = move |conn: &mut _| {
        let ranking = trending::most_viewed(10, trending::this_hour(), conn)?;
        Ok((ranking, reading.pages_served(conn)?))
    };
    let (ranking, served) = shared.database.run(read).await?;
    let main = html! {
        h1 { "Trending" }
        p.lead {
            "The most viewed of the last 24 hours. Each view also counts on a row for its video and hour, a sharded counter like the \
             video itself; the database adds up the rows of 24 hours, a window that moves by the hour. Rows older than 30 days are deleted."
        }
        @if ranking.is_empty() {
            p.empty { "Nobody has watched a video in the last 24 hours. " a href="/" { "Watch one" } ", and it is listed here." }
        } @else {
            (ranking::list(&ranking))
        }
    };
    Ok(Page::new("Trending", main).served(served))
}
