//! One video: looking at it counts a view, once for each visitor and day.

use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, Method};
use axum::response::{IntoResponse, Json, Redirect, Response};
use chrono::{NaiveDate, NaiveDateTime, Utc};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use super::drawing::{days, still, thumb};
use super::number::{ago, duration, grouped};
use super::{Page, Site, looks};
use crate::error::PageError;
use crate::models::{self, Totals, Video};
use crate::visitor::Visitor;

#[derive(Deserialize)]
pub struct Arrival {
    from: Option<String>,
}

/// After a like a visitor comes from the page that was there before, and that counts no further view: `?from=like`.
pub async fn page(
    State(shared): Site,
    Path(video): Path<i64>,
    Query(arrival): Query<Arrival>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let is_view = looks(&method, &headers) && arrival.from.as_deref() != Some("like");
    let known = Visitor::of(&headers);
    let is_new = known.is_none();
    let visitor = known.unwrap_or_else(Visitor::new);
    let cookie = is_new.then(|| visitor.cookie()); // it comes before the first like, so that two quick ones are one
    let read = move |conn: &mut _| {
        let last_watched = models::last_watched(video, conn)?; // before this view
        let counted = is_view && models::count_view(video, &visitor, conn)?;
        let liked = !is_new && models::is_liked(video, &visitor, conn)?;
        let by_day = models::views_by_day(video, conn)?;
        let video = Video::find(video, conn)?;
        Ok((video, last_watched, counted, liked, by_day))
    };
    let show = |(video, last_watched, counted, liked, by_day): (Video, _, _, _, Vec<_>)| {
        let main = main(&video, last_watched, counted, liked, &by_day);
        Page::new(video.title, main).script(include_str!("watch.js"))
    };
    let page = shared.page(read, show).await?;
    Ok((cookie, page).into_response())
}

fn main(
    video: &Video,
    last_watched: Option<NaiveDateTime>,
    counted: bool,
    liked: bool,
    by_day: &[(NaiveDate, i64)],
) -> Markup {
    let since = last_watched.map(|at| (Utc::now().naive_utc() - at).num_seconds());
    html! {
        article.watch {
            div.screen {
                (still(video.id))
                span.length { span.hidden { "Length " } (duration(video.seconds)) }
            }
            h1 { (video.title) }
            div.under {
                p.by { (video.channel) }
                p.views { strong id="views" { (grouped(video.views)) } " views" }
                @if let Some(seconds) = since {
                    p.by { "Last watched " span id="last-watched" { (ago(seconds)) } }
                }
                form.like method="post" action={ "/watch/" (video.id) "/like" } {
                    input type="hidden" name="liked" value=(!liked);
                    button aria-pressed=(liked) {
                        (thumb())
                        span.hidden { "Like, " }
                        span id="likes" { (grouped(video.likes)) }
                        span.hidden { " likes" }
                    }
                }
            }
            p.lead {
                @if counted {
                    "Opening this page counted a view, on a shard of this video’s row. "
                } @else {
                    "Opening this page counted no view, since a visitor counts once a day. "
                }
                "A like is a row, which a trigger counts on a shard. The numbers change as others watch: open it in a private window."
            }
            section {
                h2 { "Views of the last " (by_day.len()) " days" }
                (days(by_day))
            }
        }
    }
}

/// The page's numbers, by the id of their element.
#[derive(Serialize)]
pub struct Numbers {
    views: String,
    likes: String,
}

pub async fn numbers(
    State(shared): Site,
    Path(video): Path<i64>,
) -> Result<Json<Numbers>, PageError> {
    let read = move |conn: &mut _| Totals::of(video, conn);
    let totals = shared.database.run(read).await?;
    Ok(Json(Numbers {
        views: grouped(totals.views),
        likes: grouped(totals.likes),
    }))
}

#[derive(Deserialize)]
pub struct Like {
    liked: bool,
}

pub async fn like(
    State(shared): Site,
    Path(video): Path<i64>,
    headers: HeaderMap,
    Form(form): Form<Like>,
) -> Result<Redirect, PageError> {
    let visitor = Visitor::of(&headers).ok_or_else(|| {
        PageError::bad_request("A like needs a cookie, by which you can take it back: allow it for this site and open the video again.")
    })?;
    let write = move |conn: &mut _| match form.liked {
        true => models::like(video, &visitor, conn),
        false => models::unlike(video, &visitor, conn),
    };
    shared.database.run(write).await?;
    Ok(Redirect::to(&format!("/watch/{video}?from=like")))
}
