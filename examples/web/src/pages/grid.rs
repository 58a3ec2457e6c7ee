//! All videos.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::drawing::{still, thumb};
use super::layout::Page;
use super::number::{duration, grouped, short};
use crate::error::PageError;
use crate::models::Video;
use crate::site::Shared;

pub async fn page(State(shared): State<Arc<Shared>>) -> Result<Page, PageError> {
    let reading = Arc::clone(&shared);
    let read = move |conn: &mut _| Ok((Video::list(conn)?, reading.pages_served(conn)?));
    let (videos, served) = shared.database.run(read).await?;
    let main = html! {
        h1.hidden { "Videos" }
        ul.grid {
            @for video in &videos { li { (card(video)) } }
        }
    };
    Ok(Page::new("Videos", main).served(served))
}

fn card(video: &Video) -> Markup {
    html! {
        article.card {
            a href={ "/watch/" (video.id) } {
                span.still {
                    (still(video.id))
                    span.length { span.hidden { "Length " } (duration(video.seconds)) }
                }
                h2 { (video.title) }
            }
            p.by { (video.channel) }
            p.counts {
                span title=(grouped(video.views)) { (short(video.views)) " views" }
                span.likes title=(grouped(video.likes)) {
                    (thumb()) (short(video.likes.into())) span.hidden { " likes" }
                }
            }
        }
    }
}
