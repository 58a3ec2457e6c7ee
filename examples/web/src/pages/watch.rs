//! One video: looking at it counts a view.

use std::sync::Arc;

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Redirect, Response};
use chrono::{NaiveDateTime, Utc};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tokio_stream::{Stream, StreamExt};

use super::drawing::{still, thumb};
use super::layout::Page;
use super::number::{ago, duration, grouped};
use super::video_id;
use crate::error::{PageError, asks_for_json};
use crate::models::{self, Totals, Video};
use crate::site::Shared;
use crate::trending;
use crate::visitor::{Known, Looks, Visitor};

#[derive(Deserialize)]
pub struct Arrival {
    /// Where the visitor comes from. After a like it is the page that was there before, and that counts no further view.
    from: Option<String>,
}

pub async fn page(
    State(shared): State<Arc<Shared>>,
    Path(video): Path<String>,
    Query(arrival): Query<Arrival>,
    Looks(looks): Looks,
    Known(visitor): Known,
) -> Result<Response, PageError> {
    let video = video_id(&video)?;
    let is_view = looks && arrival.from.as_deref() != Some("like");
    let cookie = visitor.is_none().then(Visitor::new); // it comes before the first like, so that two quick ones are one
    let reading = Arc::clone(&shared);
    let read = move |conn: &mut _| {
        let last_watched = models::last_watched(video, conn)?; // before this view
        if is_view {
            trending::count_view(video, trending::this_hour(), conn)?;
        }
        let liked = match &visitor {
            Some(visitor) => models::is_liked(video, visitor, conn)?,
            None => false,
        };
        let video = Video::find(video, conn)?;
        Ok((video, last_watched, liked, reading.pages_served(conn)?))
    };
    let (video, last_watched, liked, served) = shared.database.run(read).await?;
    let page = Page::new(video.title.clone(), main(&video, last_watched, liked))
        .script(include_str!("watch.js"))
        .served(served);
    let cookie = cookie.as_ref().map(Visitor::cookie);
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
                p.views { strong id="views" data-live="views" { (grouped(video.views)) } " views" }
                @if let Some(seconds) = since {
                    p.by { "Last watched " span id="last-watched" { (ago(seconds)) } }
                }
                form.like method="post" action={ "/watch/" (video.id) "/like" } {
                    input type="hidden" name="liked" value=(!liked);
                    button aria-pressed=(liked) {
                        (thumb())
                        span.hidden { "Like, " }
                        span id="likes" data-live="likes" { (grouped(video.likes)) }
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

/// The new texts of the page's numbers, which the script puts in place.
#[derive(Serialize)]
struct Texts {
    views: String,
    likes: String,
}

impl From<Totals> for Texts {
    fn from(totals: Totals) -> Self {
        Texts {
            views: grouped(totals.views),
            likes: grouped(totals.likes),
        }
    }
}

pub async fn events(
    State(shared): State<Arc<Shared>>,
    Path(video): Path<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, axum::Error>>>, PageError> {
    let video = video_id(&video)?;
    let database = shared.database.clone();
    let read = move || {
        let database = database.clone();
        async move { database.run(move |conn| Totals::of(video, conn)).await }
    };
    let first = read().await?;
    let totals = shared.live.look(first, read);
    let events = totals.map(|totals| Event::default().json_data(Texts::from(totals)));
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

#[derive(Deserialize)]
pub struct Like {
    liked: String,
}

pub async fn like(
    State(shared): State<Arc<Shared>>,
    Path(video): Path<String>,
    Known(visitor): Known,
    headers: HeaderMap,
    form: Result<Form<Like>, FormRejection>,
) -> Result<Response, PageError> {
    let video = video_id(&video)?;
    let liked = match form.as_ref().map(|form| form.liked.as_str()) {
        Ok("true") => true,
        Ok("false") => false,
        _ => {
            let text = "A like is sent as “liked=true”, and taken back by “liked=false”.";
            return Err(PageError::BadRequest(text.to_owned()));
        }
    };
    let visitor = visitor.ok_or_else(|| {
        let text = "A like needs a cookie, by which you can take it back: allow it for this site and open the video again.";
        PageError::BadRequest(text.to_owned())
    })?;
    let write = move |conn: &mut _| {
        match liked {
            true => models::like(video, &visitor, conn)?,
            false => models::unlike(video, &visitor, conn)?,
        }
        Totals::of(video, conn)
    };
    let totals = shared.database.run(write).await?;
    Ok(match asks_for_json(&headers) {
        true => Json(Texts::from(totals)).into_response(),
        false => Redirect::to(&format!("/watch/{video}?from=like")).into_response(),
    })
}
