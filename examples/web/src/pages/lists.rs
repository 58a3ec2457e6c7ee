//! The pages that list videos.

use axum::extract::State;
use maud::{Markup, html};

use super::drawing::{bar, still, thumb};
use super::number::{duration, grouped, noun, short};
use super::{Page, Site};
use crate::error::PageError;
use crate::models::Video;
use crate::trending;

pub async fn all(State(shared): Site) -> Result<Page, PageError> {
    let show = |videos: Vec<_>| {
        let main = html! {
            h1.hidden { "Videos" }
            ul.grid {
                @for video in &videos { li { (card(video)) } }
            }
        };
        Page::new("Videos", main)
    };
    shared.page(Video::list, show).await
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

pub async fn top(State(shared): Site) -> Result<Page, PageError> {
    let read = |conn: &mut _| {
        let videos = Video::most_viewed(10, conn)?.into_iter();
        Ok(videos.map(|video| (video.views, video)).collect())
    };
    let show = |ranking: Vec<_>| {
        let main = html! {
            h1 { "Top 10" }
            p.lead { "By the exact total: the plain column and all shards, added up and sorted by the database in one query." }
            (list(&ranking))
        };
        Page::new("Top 10", main)
    };
    shared.page(read, show).await
}

pub async fn trending(State(shared): Site) -> Result<Page, PageError> {
    let read = |conn: &mut _| trending::most_viewed(10, trending::this_hour(), conn);
    let show = |ranking: Vec<_>| {
        let main = html! {
            h1 { "Trending" }
            p.lead {
                "The most viewed of the last 24 hours. Each view also counts on a row for its video and hour, a sharded counter like the \
                 video itself; the database adds up the rows of 24 hours, a window that moves by the hour. Rows older than 30 days are deleted."
            }
            @if ranking.is_empty() {
                p.empty { "Nobody has watched a video in the last 24 hours. " a href="/" { "Watch one" } ", and it is listed here." }
            } @else {
                (list(&ranking))
            }
        };
        Page::new("Trending", main)
    };
    shared.page(read, show).await
}

/// Videos with their views, the greatest number first.
fn list(ranking: &[(i64, Video)]) -> Markup {
    let greatest = ranking.first().map_or(0, |(views, _)| *views);
    html! {
        ol.top {
            @for (i, (views, video)) in ranking.iter().enumerate() {
                li {
                    span.rank aria-hidden="true" { (i + 1) }
                    a.still href={ "/watch/" (video.id) } tabindex="-1" aria-hidden="true" { (still(video.id)) }
                    div {
                        a.title href={ "/watch/" (video.id) } { (video.title) }
                        p.by { (video.channel) }
                        (bar(*views as f64, greatest as f64))
                    }
                    p.number { (grouped(*views)) span.unit { " " (noun(*views, "view")) } }
                }
            }
        }
    }
}
