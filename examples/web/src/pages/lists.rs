//! The pages that list videos.

use axum::extract::State;
use maud::{Markup, html};

use super::drawing::{bar, still, thumb};
use super::number::{duration, grouped, noun, short};
use super::{Page, Site};
use crate::error::PageError;
use crate::models::Video;

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
    let read = |conn: &mut _| Video::most_viewed(10, conn);
    let show = |videos: Vec<Video>| {
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
                        p.number { (grouped(video.views)) span.unit { " " (noun(video.views, "view")) } }
                    }
                }
            }
        };
        Page::new("Top 10", main)
    };
    shared.page(read, show).await
}
