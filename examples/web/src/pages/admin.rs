//! The shards of a video, and a load that shows why they exist. It has no login: the site is meant for the machine that it runs on.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use diesel_sharded::shard_counts::ShardCount;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use tokio_stream::{Stream, StreamExt};

use super::forms::{SECONDS, WRITERS};
use super::layout::Page;
use super::panels::{self, FOLD_STATUS, LOAD, LOAD_STATUS, RESIZE_STATUS, SHARDS};
use super::video_id;
use crate::error::PageError;
use crate::load::Mode;
use crate::models::Video;
use crate::schema::videos::dsl::views;
use crate::site::{Panels, Shared};
use crate::source::{Kind, Server};

/// The video that is shown unless another one is chosen.
const FIRST_CHOICE: &str = "7";

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
    let panels = panels::read(&shared, chosen).await?;
    let main = html! {
        h1 { "Admin" }
        (about(shared.database.kind))
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
            (load(chosen, &panels))
            (part(LOAD, &panels))
        }
        section aria-labelledby="shards-title" {
            h2 id="shards-title" { "Shards of this video’s views" }
            (part(SHARDS, &panels))
        }
        div.pair {
            (resize(chosen, number, &panels))
            (fold(chosen, &panels))
        }
    };
    let page = Page::new("Admin", main).script(include_str!("admin.js"));
    Ok(page.served(served))
}

fn html_of(id: &str, panels: &Panels) -> Markup {
    PreEscaped(panels.get(id).cloned().unwrap_or_default())
}

fn part(id: &str, panels: &Panels) -> Markup {
    html! { div id=(id) { (html_of(id, panels)) } }
}

/// The result of a form, beside its buttons: of the last action, and why the last one was refused.
fn result(id: &str, panels: &Panels) -> Markup {
    html! {
        p.status role="status" id=(id) { (html_of(id, panels)) }
        p.failed role="alert" {}
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

fn load(video: i64, panels: &Panels) -> Markup {
    html! {
        form method="post" action="/admin/load" aria-labelledby="load-title" {
            h2 id="load-title" { "Load" }
            p.note { "Writers count views of this video, and each waits for its commit." }
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
            (result(LOAD_STATUS, panels))
        }
    }
}

fn resize(video: i64, number: u16, panels: &Panels) -> Markup {
    html! {
        section aria-labelledby="resize-title" {
            form method="post" action="/admin/resize" aria-labelledby="resize-title" {
                h2 id="resize-title" { "Resize" }
                p.note { "Sets how many shards writers choose from, in all processes of the site within 10 seconds." }
                input type="hidden" name="video" value=(video);
                p.fields {
                    label { "Shards " input type="number" name="shards" value=(number) min="1" max=(ShardCount::MAX) required; }
                    button { "Resize" }
                }
                (result(RESIZE_STATUS, panels))
            }
        }
    }
}

fn fold(video: i64, panels: &Panels) -> Markup {
    html! {
        section aria-labelledby="fold-title" {
            form method="post" action="/admin/fold" aria-labelledby="fold-title" {
                h2 id="fold-title" { "Fold" }
                p.note { "Moves what is on shards into the plain columns. No total changes, even while others count." }
                input type="hidden" name="video" value=(video);
                p.buttons { button { "Fold all videos" } }
                (result(FOLD_STATUS, panels))
            }
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
        async move { panels::read(&shared, video).await }
    };
    let first = read().await?;
    let panels = shared.live.look(first, read);
    let events = panels.map(|panels| Event::default().json_data(panels));
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
