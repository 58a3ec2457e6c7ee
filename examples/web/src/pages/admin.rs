//! The shards of a video, and a load that shows why they exist. It has no login: the site is meant for the machine that it runs on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Form, Query, State};
use axum::http::StatusCode;
use axum::response::{Json, Redirect};
use diesel_sharded::shard_counts::ShardCount;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::drawing::{bar, column};
use super::number::{counted, grouped, noun, short};
use super::{Page, Site, comparison};
use crate::error::PageError;
use crate::load::{MODES, Plan};
use crate::models::{Shards, Totals, Video, fold_all};
use crate::schema::videos::dsl::views;
use crate::site::Shared;

/// The live parts: HTML by the id of its element.
type Panels = BTreeMap<&'static str, String>;

/// Screen readers announce it whenever it changes.
const STATUS: &str = "load-status";
const LOAD: &str = "load-panel";
const SHARDS: &str = "shards-panel";

#[derive(Deserialize)]
pub struct Chosen {
    #[serde(default = "seven")]
    video: i64,
}

fn seven() -> i64 {
    7
}

pub async fn page(
    State(shared): Site,
    Query(Chosen { video: chosen }): Query<Chosen>,
) -> Result<Page, PageError> {
    let panels = read(&shared, chosen).await?;
    let about = match shared.database.is_sqlite() {
        true => {
            "SQLite has one writer at a time: all writers queue for the whole database, whatever they count on. Shards cannot shorten that \
             queue; combining can. (By default there is one shard; this site spreads them so that they can be seen.) On a server writers \
             queue for a row, and shards end that queue."
        }
        false => "On a server writers queue for a row, and shards end that queue.",
    };
    let read = |conn: &mut _| Ok((Video::list(conn)?, ShardCount::of(views).get(conn)?));
    let show = |(videos, number): (Vec<Video>, u16)| {
        let main = html! {
            h1 { "Admin" }
            p.lead { (about) }
            form.choice method="get" action="/admin" {
                label for="video" { "Video" }
                select id="video" name="video" {
                    @for video in &videos {
                        option value=(video.id) selected[video.id == chosen] { (video.title) }
                    }
                }
                button { "Show" }
            }
            section.load data-video=(chosen) {
                (form("load", "Load", "Writers count views of this video, and each waits for its commit.", chosen, html! {
                    p.fields {
                        label { "Writers " input type="number" name="writers" value="64" min="1" max="64" required; }
                        label { "Seconds " input type="number" name="seconds" value="5" min="1" max="5" required; }
                    }
                    p.buttons {
                        button.primary name="mode" value="all" { "Compare all three" }
                        @for mode in &MODES {
                            button name="mode" value=(mode.name) { (mode.title) }
                        }
                    }
                    p.status role="status" id=(STATUS) { (panels[STATUS]) }
                }))
                (panel(LOAD, &panels))
            }
            section {
                h2 { "Shards of this video’s views" }
                (panel(SHARDS, &panels))
            }
            div.pair {
                section {
                    (form("resize", "Resize", "Sets how many shards writers choose from, in all processes of the site within 10 seconds.", chosen, html! {
                        p.fields {
                            label { "Shards " input type="number" name="shards" value=(number) min="1" max=(ShardCount::MAX) required; }
                            button { "Resize" }
                        }
                    }))
                }
                section {
                    (form("fold", "Fold", "Moves what is on shards into the plain columns. No total changes, even while others count.", chosen, html! {
                        p.buttons { button { "Fold all videos" } }
                    }))
                }
            }
        };
        Page::new("Admin", main).script(include_str!("admin.js"))
    };
    shared.page(read, show).await
}

fn panel(id: &str, panels: &Panels) -> Markup {
    html! { div id=(id) { (PreEscaped(&panels[id])) } }
}

fn form(name: &str, title: &str, note: &str, video: i64, controls: Markup) -> Markup {
    let heading = format!("{name}-title");
    html! {
        form method="post" action={ "/admin/" (name) } aria-labelledby=(heading) {
            h2 id=(heading) { (title) }
            p.note { (note) }
            input type="hidden" name="video" value=(video);
            (controls)
        }
    }
}

pub async fn panels(
    State(shared): Site,
    Query(Chosen { video }): Query<Chosen>,
) -> Result<Json<Panels>, PageError> {
    Ok(Json(read(&shared, video).await?))
}

async fn read(shared: &Shared, video: i64) -> Result<Panels, PageError> {
    let read = move |conn: &mut _| Ok((Shards::of(video, conn)?, ShardCount::of(views).get(conn)?));
    let (shards, number) = shared.database.run(read).await?;
    let progress = shared.load.progress();
    let status = match &*progress.status {
        "" => "Not run yet.",
        status => status,
    };
    Ok(BTreeMap::from([
        (STATUS, status.to_owned()),
        (LOAD, comparison::picture(&progress).into_string()),
        (SHARDS, picture(&shards, number).into_string()),
    ]))
}

/// The shard on which callers combine is drawn apart: it gets the increments of all of them, and would flatten the others.
fn picture(of: &Shards, number: u16) -> Markup {
    let mut values: Vec<_> = of.shards.iter().map(|(_, value)| *value).collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    let far_ahead = match values[..] {
        [first, second, ..] => first > 4 * second.max(25),
        _ => false,
    };
    let is_apart = |(_, value): &(i32, i64)| far_ahead && *value == values[0];
    let (apart, others): (Vec<_>, Vec<_>) = of.shards.iter().copied().partition(is_apart);
    let greatest = others.iter().map(|(_, value)| *value).max().unwrap_or(0);
    html! {
        dl.sum {
            div { dt { "Plain column" } dd id="base" { (grouped(of.base)) } }
            div { dt { "+ " (counted(of.shards.len() as u64, "shard")) } dd id="on-shards" { (grouped(of.on_shards())) } }
            div { dt { "= Total" } dd id="total" { (grouped(of.base + of.on_shards())) } }
        }
        @if of.shards.is_empty() {
            p.empty { "No shards: the video was folded, or nobody has watched it yet." }
        }
        ol.shards {
            @for (shard, value) in &others {
                li title={ "shard " (shard) ": " (grouped(*value)) } {
                    span.value { (short(*value)) }
                    (column(*value, greatest))
                    span.shard { span.hidden { "in shard " } (shard) }
                }
            }
        }
        @for (shard, value) in &apart {
            div.apart {
                p { strong { "Shard " (shard) } span.unit { ", far ahead, as the one of callers who combine is" } }
                (bar(*value as f64, of.on_shards() as f64))
                p.number { (grouped(*value)) span.unit { " of " (grouped(of.on_shards())) " on shards" } }
            }
        }
        p.note {
            "Writers choose from " strong id="number" { (number) } " " (noun(number, "shard")) ", and use as many as they need. Callers who combine need one."
        }
    }
}

fn again(video: i64) -> Redirect {
    Redirect::to(&format!("/admin?video={video}"))
}

pub async fn fold(
    State(shared): Site,
    Form(Chosen { video }): Form<Chosen>,
) -> Result<Redirect, PageError> {
    shared.database.run(fold_all).await?;
    Ok(again(video))
}

#[derive(Deserialize)]
pub struct Resize {
    video: i64,
    shards: u16,
}

pub async fn resize(
    State(shared): Site,
    Form(Resize { video, shards }): Form<Resize>,
) -> Result<Redirect, PageError> {
    let resize = move |conn: &mut _| ShardCount::of(views).resize(shards, conn);
    shared.database.run(resize).await?;
    Ok(again(video))
}

#[derive(Deserialize)]
pub struct Loaded {
    video: i64,
    mode: String,
    writers: u16,
    seconds: u8,
}

pub async fn load(State(shared): Site, Form(form): Form<Loaded>) -> Result<Redirect, PageError> {
    let video = form.video;
    let one = MODES.iter().position(|mode| mode.name == form.mode);
    let plan = Plan {
        modes: one.map_or(&MODES[..], |one| &MODES[one..=one]),
        video,
        writers: form.writers.clamp(1, 64),
        time: Duration::from_secs(form.seconds.clamp(1, 5).into()),
    };
    let find = move |conn: &mut _| Totals::of(video, conn);
    shared.database.run(find).await?; // there is such a video
    let at_work = Arc::clone(&shared);
    let run = move || at_work.load.run(&plan, &at_work.database);
    let ran = spawn_blocking(run).await.map_err(PageError::internal)?;
    if !ran.map_err(PageError::internal)? {
        let text = "A load is running, and goes on; this one did not start. Start it when that one is finished.";
        return Err(PageError::new(StatusCode::CONFLICT, text));
    }
    Ok(again(video))
}
