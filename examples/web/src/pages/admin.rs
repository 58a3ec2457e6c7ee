//! The machinery: shards, conflicts, the coalescer, and a load that shows why they exist. It has no login: the site is
//! meant for the machine that it runs on.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Query, State};
use axum::response::Redirect;
use axum::response::sse::{Event, KeepAlive, Sse};
use diesel_sharded::operation::Amount;
use diesel_sharded::shard_counts::ShardCount;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use tokio_stream::{Stream, StreamExt};

use super::layout::Page;
use super::number::{counted, grouped};
use super::{panel, video_id};
use crate::error::PageError;
use crate::load::{Mode, Plan};
use crate::models::{Totals, Video, fold_all};
use crate::schema::videos::dsl::views;
use crate::site::Shared;

/// The video that is shown unless another one is chosen.
const FIRST_CHOICE: &str = "7";

const WRITERS: RangeInclusive<u16> = 1..=64;
const SECONDS: RangeInclusive<u16> = 1..=10;

#[derive(Deserialize)]
pub struct Chosen {
    video: Option<String>,
}

impl Chosen {
    fn id(&self) -> Result<i64, PageError> {
        video_id(self.video.as_deref().unwrap_or(FIRST_CHOICE))
    }
}

pub async fn page(
    State(shared): State<Arc<Shared>>,
    Query(chosen): Query<Chosen>,
) -> Result<Page, PageError> {
    let chosen = chosen.id()?;
    let reading = Arc::clone(&shared);
    let read = move |conn: &mut _| {
        let number = ShardCount::of(views).get(conn)?;
        Ok((Video::list(conn)?, number, reading.pages_served(conn)?))
    };
    let (videos, number, served) = shared.database.run(read).await?;
    let panel = panel::read(&shared, chosen).await?;
    let main = html! {
        h1 { "Admin" }
        form.choice method="get" action="/admin" {
            label for="video" { "Video" }
            select id="video" name="video" {
                @for video in &videos {
                    option value=(video.id) selected[video.id == chosen] { (video.title) }
                }
            }
            button { "Look at it" }
        }
        div.controls { (controls(chosen, number)) }
        p.status { (shared.last_action()) }
        div id="panel" data-video=(chosen) { (PreEscaped(panel)) }
    };
    let page = Page::new("Admin", main).script(include_str!("admin.js"));
    Ok(page.served(served))
}

fn controls(video: i64, number: u16) -> Markup {
    html! {
        form method="post" action="/admin/load" aria-labelledby="load-title" {
            h2 id="load-title" { "Load" }
            p { "Writers count views of this video, and each waits for its commit." }
            input type="hidden" name="video" value=(video);
            p.fields {
                label { "Writers " input type="number" name="writers" value="32" min=(WRITERS.start()) max=(WRITERS.end()) required; }
                label { "Seconds " input type="number" name="seconds" value="3" min=(SECONDS.start()) max=(SECONDS.end()) required; }
            }
            p.buttons {
                button.primary name="mode" value="all" { "Compare all three" }
                @for mode in Mode::ALL {
                    button name="mode" value=(mode.name()) { (mode.title()) }
                }
            }
        }
        form method="post" action="/admin/resize" aria-labelledby="resize-title" {
            h2 id="resize-title" { "Resize" }
            p { "How many shards writers choose from; in all processes of the site within 10 seconds." }
            input type="hidden" name="video" value=(video);
            p.fields {
                label { "Shards " input type="number" name="shards" value=(number) min="1" max=(ShardCount::MAX) required; }
                button { "Resize" }
            }
        }
        form method="post" action="/admin/fold" aria-labelledby="fold-title" {
            h2 id="fold-title" { "Fold" }
            p { "Moves what is on shards into the plain columns. No total changes, whoever counts meanwhile." }
            input type="hidden" name="video" value=(video);
            p.buttons { button { "Fold all videos" } }
        }
    }
}

pub async fn events(
    State(shared): State<Arc<Shared>>,
    Query(chosen): Query<Chosen>,
) -> Result<Sse<impl Stream<Item = Result<Event, axum::Error>>>, PageError> {
    let video = chosen.id()?;
    let reading = Arc::clone(&shared);
    let read = move || {
        let shared = Arc::clone(&reading);
        async move { panel::read(&shared, video).await }
    };
    let first = read().await?;
    let panels = shared.panels.look(video, first, read)?;
    let events = panels.map(|panel| Ok(Event::default().data(panel)));
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

type Posted<T> = Result<Form<T>, FormRejection>;

#[derive(Deserialize)]
pub struct FoldForm {
    video: String,
}

pub async fn fold(
    State(shared): State<Arc<Shared>>,
    form: Posted<FoldForm>,
) -> Result<Redirect, PageError> {
    let FoldForm { video } = complete(form)?;
    let video = video_id(&video)?;
    let began = Instant::now();
    let folded = shared.database.run(fold_all).await?;
    shared.note_action(format!(
        "Folded {} in {} ms: {} views and {} likes more are in the plain columns.",
        counted(folded.videos, "video"),
        began.elapsed().as_millis(),
        amount(folded.views),
        amount(folded.likes),
    ));
    Ok(back_to(video))
}

fn amount(amount: Amount) -> String {
    match amount {
        Amount::Integer(n) => grouped(n),
        other => other.to_string(),
    }
}

#[derive(Deserialize)]
pub struct ResizeForm {
    video: String,
    shards: String,
}

pub async fn resize(
    State(shared): State<Arc<Shared>>,
    form: Posted<ResizeForm>,
) -> Result<Redirect, PageError> {
    let ResizeForm { video, shards } = complete(form)?;
    let video = video_id(&video)?;
    let number = within("shards", &shards, 1..=ShardCount::MAX)?;
    let resize = move |conn: &mut _| ShardCount::of(views).resize(number, conn);
    shared.database.run(resize).await?;
    let shards = counted(number.into(), "shard");
    shared.note_action(format!("Writers choose from {shards} now."));
    Ok(back_to(video))
}

#[derive(Deserialize)]
pub struct LoadForm {
    video: String,
    mode: String,
    writers: String,
    seconds: String,
}

pub async fn load(
    State(shared): State<Arc<Shared>>,
    form: Posted<LoadForm>,
) -> Result<Redirect, PageError> {
    let form = complete(form)?;
    let video = video_id(&form.video)?;
    let modes: Vec<Mode> = Mode::ALL
        .into_iter()
        .filter(|mode| form.mode == "all" || form.mode == mode.name())
        .collect();
    if modes.is_empty() {
        let names = Mode::ALL.map(Mode::name).join(", ");
        return Err(PageError::BadRequest(format!(
            "There is no mode {:?}: choose all, or one of {names}.",
            form.mode
        )));
    }
    let plan = Plan {
        modes,
        video,
        writers: within("writers", &form.writers, WRITERS)?,
        time: Duration::from_secs(within("seconds", &form.seconds, SECONDS)?.into()),
    };
    shared
        .database
        .run(move |conn| Totals::of(video, conn)) // there is such a video
        .await?;
    let started = format!(
        "Started {} for {} in each mode.",
        counted(plan.writers.into(), "writer"),
        counted(plan.time.as_secs(), "second"),
    );
    shared
        .load
        .start(plan, shared.database.clone(), shared.coalescer.clone());
    shared.note_action(started);
    Ok(back_to(video))
}

fn complete<T>(form: Posted<T>) -> Result<T, PageError> {
    match form {
        Ok(Form(form)) => Ok(form),
        Err(error) => Err(PageError::BadRequest(error.body_text())),
    }
}

fn within(name: &str, text: &str, range: RangeInclusive<u16>) -> Result<u16, PageError> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (from, to): (&dyn Display, &dyn Display) = (range.start(), range.end());
        PageError::BadRequest(format!(
            "The number of {name} is a whole number from {from} to {to}, and {text:?} is none."
        ))
    })
}

fn back_to(video: i64) -> Redirect {
    Redirect::to(&format!("/admin?video={video}"))
}
