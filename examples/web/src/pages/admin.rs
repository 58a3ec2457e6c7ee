//! The shards of a video, and a load that shows why they exist. It has no login: the site is meant for the machine that it runs on.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Form, Query, State};
use axum::http::StatusCode;
use axum::response::Redirect;
use axum::response::sse::Event;
use diesel_sharded::operation::Amount;
use diesel_sharded::shard_counts::ShardCount;
use maud::{Markup, PreEscaped, html};
use tokio_stream::Stream;

use super::number::{counted, grouped, noun, short};
use super::{Fields, Page, Site, comparison, video_id};
use crate::config::{Kind, Server};
use crate::error::PageError;
use crate::live::Events;
use crate::load::{MODES, Plan};
use crate::models::{Shards, Totals, Video, fold_all};
use crate::pages::drawing::{bar, column};
use crate::schema::videos::dsl::{likes, views};
use crate::site::Shared;

const WRITERS: RangeInclusive<u16> = 1..=64;
const SECONDS: RangeInclusive<u16> = 1..=60;

/// The live parts: HTML by the id of its element.
type Panels = BTreeMap<&'static str, String>;

/// The statuses of the forms, which screen readers announce whenever they change.
const LOAD_STATUS: &str = "load-status";
const RESIZE_STATUS: &str = "resize-status";
const FOLD_STATUS: &str = "fold-status";

const LOAD: &str = "load-panel";
const SHARDS: &str = "shards-panel";

/// The video that is chosen.
fn chosen(query: &Fields) -> Result<i64, PageError> {
    video_id(query.get("video").unwrap_or("7"))
}

pub async fn page(State(shared): Site, Query(query): Query<Fields>) -> Result<Page, PageError> {
    let chosen = chosen(&query)?;
    let panels = panels(&shared, chosen).await?;
    let read = |conn: &mut _| Ok((Video::list(conn)?, ShardCount::of(views).get(conn)?));
    let kind = shared.database.kind;
    let show = |(videos, number): (Vec<Video>, u16)| {
        let main = html! {
            h1 { "Admin" }
            (about(kind))
            form.choice method="get" action="/admin" {
                label for="video" { "Video" }
                select id="video" name="video" {
                    @for video in &videos {
                        option value=(video.id) selected[video.id == chosen] { (video.title) }
                    }
                }
                button { "Show" }
            }
            section.load aria-labelledby="load-title" data-video=(chosen) {
                (form("load", "Load", "Writers count views of this video, and each waits for its commit.", chosen, &panels, html! {
                    p.fields {
                        label { "Writers " input type="number" name="writers" value="32" min=(WRITERS.start()) max=(WRITERS.end()) required; }
                        label { "Seconds " input type="number" name="seconds" value="3" min=(SECONDS.start()) max=(SECONDS.end()) required; }
                    }
                    p.buttons {
                        button.primary name="mode" value="all" { "Compare all three" }
                        @for mode in &MODES {
                            button name="mode" value=(mode.name) { (mode.title) }
                        }
                    }
                }))
                (panel(LOAD, &panels))
            }
            section aria-labelledby="shards-title" {
                h2 id="shards-title" { "Shards of this video’s views" }
                (panel(SHARDS, &panels))
            }
            div.pair {
                section aria-labelledby="resize-title" {
                    (form("resize", "Resize", "Sets how many shards writers choose from, in all processes of the site within 10 seconds.", chosen, &panels, html! {
                        p.fields {
                            label { "Shards " input type="number" name="shards" value=(number) min="1" max=(ShardCount::MAX) required; }
                            button { "Resize" }
                        }
                    }))
                }
                section aria-labelledby="fold-title" {
                    (form("fold", "Fold", "Moves what is on shards into the plain columns. No total changes, even while others count.", chosen, &panels, html! {
                        p.buttons { button { "Fold all videos" } }
                    }))
                }
            }
        };
        Page::new("Admin", main).script(include_str!("admin.js"))
    };
    shared.page(read, show).await
}

fn html_of(id: &str, panels: &Panels) -> Markup {
    PreEscaped(panels.get(id).cloned().unwrap_or_default())
}

fn panel(id: &str, panels: &Panels) -> Markup {
    html! { div id=(id) { (html_of(id, panels)) } }
}

/// A form with its status.
fn form(
    name: &str,
    title: &str,
    note: &str,
    video: i64,
    panels: &Panels,
    controls: Markup,
) -> Markup {
    let (heading, status) = (format!("{name}-title"), format!("{name}-status"));
    html! {
        form method="post" action={ "/admin/" (name) } aria-labelledby=(heading) {
            h2 id=(heading) { (title) }
            p.note { (note) }
            input type="hidden" name="video" value=(video);
            (controls)
            p.status role="status" id=(status) { (html_of(&status, panels)) }
        }
    }
}

/// The database, and on SQLite why its numbers are no reason to think that shards do nothing.
fn about(kind: Kind) -> Markup {
    html! {
        @match kind {
            Kind::Sqlite => {
                aside.banner aria-labelledby="sqlite-title" {
                    h2 id="sqlite-title" { "SQLite has one writer at a time" }
                    p {
                        "All writers queue for the whole database, whatever they count on, and shards cannot shorten that queue; the \
                         coalescer can. On a server writers queue for a row, and shards end that queue. One command starts this site on a \
                         private server, which is deleted at the end:"
                    }
                    ul {
                        @for server in Server::ALL { li { code { (server.command()) } } }
                    }
                    p.note {
                        code { "PRAGMA synchronous = NORMAL" } " holds here: a commit does not wait for the disk, and the last ones may be \
                         lost if the machine loses its power. On a private server every commit waits for the disk."
                    }
                }
            }
            Kind::Postgres | Kind::Mysql => p.lead { "This site runs on " (kind.name()) "." }
        }
    }
}

async fn panels(shared: &Shared, video: i64) -> Result<Panels, PageError> {
    let read = move |conn: &mut _| Ok((Shards::of(video, conn)?, ShardCount::of(views).get(conn)?));
    let (shards, number) = shared.database.run(read).await?;
    let progress = shared.load.progress();
    let apart = progress.shard_of_coalescer(video, &shards);
    let noted =
        |status, otherwise| html! { (shared.noted(status).as_deref().unwrap_or(otherwise)) };
    let panels = [
        (LOAD_STATUS, comparison::status(&progress.stage)),
        (RESIZE_STATUS, noted(RESIZE_STATUS, "Not resized yet.")),
        (FOLD_STATUS, noted(FOLD_STATUS, "Not folded from here yet.")),
        (LOAD, comparison::picture(&progress)),
        (SHARDS, picture(&shards, number, apart)),
    ];
    Ok(panels.map(|(id, html)| (id, html.into_string())).into())
}

/// The coalescer's shard is drawn apart: it takes the counts of all callers, and would flatten the others.
fn picture(of: &Shards, number: u16, coalescers: Option<i32>) -> Markup {
    let is_apart = |(shard, _): &(i32, i64)| Some(*shard) == coalescers;
    let (apart, others): (Vec<_>, Vec<_>) = of.shards.iter().copied().partition(is_apart);
    let greatest = others.iter().map(|(_, value)| *value).max().unwrap_or(0);
    html! {
        dl.sum {
            div { dt { "Plain column" } dd id="base" { (grouped(of.base)) } }
            div { dt { "+ " (counted(of.shards.len() as u64, "shard")) } dd id="on-shards" { (grouped(of.on_shards())) } }
            div { dt { "= Total" } dd id="total" { (grouped(of.total())) } }
        }
        @if of.shards.is_empty() {
            p.empty { "No shards: the video was folded, or nobody has watched it yet." }
        }
        @if !others.is_empty() {
            ol.shards {
                @for (shard, value) in &others {
                    li title={ "shard " (shard) ": " (grouped(*value)) } {
                        span.value { (short(*value)) }
                        (column(*value, greatest))
                        span.shard { span.hidden { "in shard " } (shard) }
                    }
                }
            }
        }
        @for (shard, value) in &apart {
            div.apart id="coalescers-shard" {
                p { strong { "Shard " (shard) } span.unit { ", where the coalescer counts" } }
                (bar(*value as f64, of.on_shards() as f64))
                p.number { (grouped(*value)) span.unit { " of " (grouped(of.on_shards())) " on shards" } }
            }
        }
        p.note {
            "Writers choose from " strong id="number" { (number) } " " (noun(number, "shard")) ", and use as many as they need. The coalescer begins on shard 0, and \
             keeps to one of its own as soon as a video is busy, however many call it."
        }
    }
}

pub async fn events(
    State(shared): Site,
    Query(query): Query<Fields>,
) -> Events<impl Stream<Item = Result<Event, axum::Error>>> {
    let video = chosen(&query)?;
    let reading = Arc::clone(&shared);
    let read = move || {
        let shared = Arc::clone(&reading);
        async move { panels(&shared, video).await }
    };
    shared.live.events(read).await
}

fn again(video: i64) -> Redirect {
    Redirect::to(&format!("/admin?video={video}"))
}

pub async fn fold(State(shared): Site, Form(form): Form<Fields>) -> Result<Redirect, PageError> {
    let video = form.video()?;
    let began = Instant::now();
    let folded = shared.database.run(fold_all).await?;
    let amount = |amount| match amount {
        Amount::Integer(n) => grouped(n),
        other => other.to_string(),
    };
    let text = format!(
        "Folded {} in {} ms: {} views and {} likes moved into the plain columns, {} removed.",
        counted(folded.parents, "video"),
        began.elapsed().as_millis(),
        amount(folded.moved(views)),
        amount(folded.moved(likes)),
        counted(folded.shards_removed, "empty shard"),
    );
    shared.note(FOLD_STATUS, text);
    Ok(again(video))
}

pub async fn resize(State(shared): Site, Form(form): Form<Fields>) -> Result<Redirect, PageError> {
    let video = form.video()?;
    let number = form.number("shards", 1..=ShardCount::MAX)?;
    let resize = move |conn: &mut _| ShardCount::of(views).resize(number, conn);
    shared.database.run(resize).await?;
    let shards = counted(number.into(), "shard");
    shared.note(RESIZE_STATUS, format!("Writers choose from {shards} now."));
    Ok(again(video))
}

pub async fn load(State(shared): Site, Form(form): Form<Fields>) -> Result<Redirect, PageError> {
    let video = form.video()?;
    let mode = form.text("mode")?;
    let of_name = MODES.iter().find(|of| of.name == mode);
    let modes = match (mode, of_name) {
        ("all", _) => &MODES[..],
        (_, Some(of_name)) => std::slice::from_ref(of_name),
        _ => {
            let names = MODES.each_ref().map(|mode| mode.name).join(", ");
            let text = format!("There is no mode {mode:?}: choose all, or one of {names}.");
            return Err(PageError::bad_request(text));
        }
    };
    let plan = Plan {
        modes,
        video,
        writers: form.number("writers", WRITERS)?,
        time: Duration::from_secs(form.number("seconds", SECONDS)?.into()),
    };
    let find = move |conn: &mut _| Totals::of(video, conn);
    shared.database.run(find).await?; // there is such a video
    let (database, coalescer) = (shared.database.clone(), shared.coalescer.clone());
    if !shared.load.start(plan, database, coalescer) {
        let text = "A load is running, and goes on; this one did not start. Start it when that one is finished.";
        return Err(PageError::new(StatusCode::CONFLICT, text));
    }
    Ok(again(video))
}
