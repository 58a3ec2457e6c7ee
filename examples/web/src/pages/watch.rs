//! One video: looking at it counts a view.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, Method};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Redirect, Response};
use chrono::{NaiveDateTime, Utc};
use maud::{Markup, html};
use tokio_stream::Stream;

use super::drawing::{still, thumb};
use super::number::{ago, duration, grouped};
use super::{Fields, Page, Site, looks, video_id};
use crate::error::PageError;
use crate::live::Events;
use crate::models::{self, Totals, Video};
use crate::trending;
use crate::visitor::Visitor;

/// After a like a visitor comes from the page that was there before, and that counts no further view: `?from=like`.
pub async fn page(
    State(shared): Site,
    Path(video): Path<String>,
    Query(arrival): Query<Fields>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let video = video_id(&video)?;
    let is_view = looks(&method, &headers) && arrival.get("from") != Some("like");
    let visitor = Visitor::of(&headers);
    let cookie = visitor.is_none().then(|| Visitor::new().cookie()); // it comes before the first like, so that two quick ones are one
    let read = move |conn: &mut _| {
        let last_watched = models::last_watched(video, conn)?; // before this view
        if is_view {
            trending::count_view(video, trending::this_hour(), conn)?;
        }
        let liked = match &visitor {
            Some(visitor) => models::is_liked(video, visitor, conn)?,
            None => false,
        };
        Ok((Video::find(video, conn)?, last_watched, liked))
    };
    let show = |(video, last_watched, liked): (Video, _, _)| {
        let main = main(&video, last_watched, liked);
        Page::new(video.title, main).script(include_str!("watch.js"))
    };
    let page = shared.page(read, show).await?;
    Ok(match cookie {
        Some(cookie) => (cookie, page).into_response(),
        None => page.into_response(),
    })
}

fn main(video: &Video, last_watched: Option<NaiveDateTime>, liked: bool) -> Markup {
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
                "Opening this page counted a view, on a shard of this video’s row and on one of its row for this hour. A like is a row too, \
                 which a trigger counts on a shard. The numbers change as others watch: open it in another tab."
            }
        }
    }
}

/// The new texts of the page's numbers, by the id of their element.
pub async fn events(
    State(shared): Site,
    Path(video): Path<String>,
) -> Events<impl Stream<Item = Result<Event, axum::Error>>> {
    let video = video_id(&video)?;
    let reading = Arc::clone(&shared);
    let read = move || {
        let shared = Arc::clone(&reading);
        async move {
            let totals = shared
                .database
                .run(move |conn| Totals::of(video, conn))
                .await?;
            let texts = [
                ("views", grouped(totals.views)),
                ("likes", grouped(totals.likes)),
            ];
            Ok(BTreeMap::from(texts))
        }
    };
    shared.live.events(read).await
}

pub async fn like(
    State(shared): Site,
    Path(video): Path<String>,
    headers: HeaderMap,
    Form(form): Form<Fields>,
) -> Result<Redirect, PageError> {
    let video = video_id(&video)?;
    let write = match form.get("liked") {
        Some("true") => models::like,
        Some("false") => models::unlike,
        _ => {
            let text = "A like is sent as “liked=true”, and taken back by “liked=false”.";
            return Err(PageError::bad_request(text));
        }
    };
    let visitor = Visitor::of(&headers).ok_or_else(|| {
        PageError::bad_request("A like needs a cookie, by which you can take it back: allow it for this site and open the video again.")
    })?;
    let write = move |conn: &mut _| {
        write(video, &visitor, conn)?;
        Totals::of(video, conn) // there is such a video
    };
    shared.database.run(write).await?;
    Ok(Redirect::to(&format!("/watch/{video}?from=like")))
}
