//! Videos by their numbers, the greatest first.

use maud::{Markup, html};

use super::drawing::{bar, still};
use super::number::grouped;
use crate::models::Video;

/// Each video with its views.
pub fn list(ranking: &[(Video, i64)]) -> Markup {
    let greatest = ranking.first().map_or(0, |(_, views)| *views);
    html! {
        ol.top {
            @for (i, (video, views)) in ranking.iter().enumerate() {
                li {
                    span.rank aria-hidden="true" { (i + 1) }
                    a.still href={ "/watch/" (video.id) } tabindex="-1" aria-hidden="true" { (still(video.id)) }
                    div {
                        a.title href={ "/watch/" (video.id) } { (video.title) }
                        p.by { (video.channel) }
                        (bar(*views as f64, greatest as f64))
                    }
                    p.number { (grouped(*views)) span.unit { @if *views == 1 { " view" } @else { " views" } } }
                }
            }
        }
    }
}
