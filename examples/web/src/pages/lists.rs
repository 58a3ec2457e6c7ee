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
        let lead = "By the exact total: the plain column and all shards, added up and sorted by the database in one query.";
        let number = |video: &Video| {
            let unit = html! { span.unit { " " (noun(video.views, "view")) } };
            (video.views as f64, html! { (grouped(video.views)) (unit) })
        };
        ranked("Top 10", lead, &videos, number)
    };
    shared.page(read, show).await
}

pub async fn hot(State(shared): Site) -> Result<Page, PageError> {
    let read = |conn: &mut _| Video::hottest(10, conn);
    let show = |videos: Vec<Video>| {
        let lead = "A view gives a point, and points halve each week. Yet no job recomputes them: old views do not fade, new ones weigh more.";
        let number = |video: &Video| {
            let points = video.points();
            (
                points,
                html! { (format!("{points:.1}")) span.unit { " points" } },
            )
        };
        ranked("Hot", lead, &videos, number)
    };
    shared.page(read, show).await
}

/// Videos, the first one's number being the greatest. A number comes with what is shown for it.
fn ranked(
    title: &str,
    lead: &str,
    videos: &[Video],
    number: impl Fn(&Video) -> (f64, Markup),
) -> Page {
    let greatest = videos.first().map_or(0.0, |video| number(video).0);
    let main = html! {
        h1 { (title) }
        p.lead { (lead) }
        @if videos.is_empty() {
            p.empty { "Nobody has watched a video yet." }
        }
        ol.top {
            @for (i, video) in videos.iter().enumerate() {
                @let (value, shown) = number(video);
                li {
                    span.rank aria-hidden="true" { (i + 1) }
                    a.still href={ "/watch/" (video.id) } tabindex="-1" aria-hidden="true" { (still(video.id)) }
                    div {
                        a.title href={ "/watch/" (video.id) } { (video.title) }
                        p.by { (video.channel) }
                        (bar(value, greatest))
                    }
                    p.number { (shown) }
                }
            }
        }
    };
    Page::new(title, main)
}
