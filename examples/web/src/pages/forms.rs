//! The forms of `/admin`: fold, resize, load.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, State};
use axum::http::HeaderMap;
use axum::response::Response;
use diesel_sharded::operation::Amount;
use diesel_sharded::shard_counts::ShardCount;
use serde::Deserialize;

use super::number::{counted, grouped};
use super::panels::{FOLD_STATUS, RESIZE_STATUS, answer};
use super::video_id;
use crate::error::PageError;
use crate::load::{AtWork, Mode, Plan};
use crate::models::{Totals, fold_all};
use crate::schema::videos::dsl::views;
use crate::site::Shared;

pub const WRITERS: RangeInclusive<u16> = 1..=64;
pub const SECONDS: RangeInclusive<u16> = 1..=60;

type Posted<T> = Result<Form<T>, FormRejection>;

#[derive(Deserialize)]
pub struct FoldForm {
    video: String,
}

pub async fn fold(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    form: Posted<FoldForm>,
) -> Result<Response, PageError> {
    let FoldForm { video } = complete(form)?;
    let video = video_id(&video)?;
    let began = Instant::now();
    let folded = shared.database.run(fold_all).await?;
    let text = format!(
        "Folded {} in {} ms: {} views and {} likes moved into the plain columns, {} removed.",
        counted(folded.videos, "video"),
        began.elapsed().as_millis(),
        amount(folded.views),
        amount(folded.likes),
        counted(folded.shards_removed, "empty shard"),
    );
    shared.note(FOLD_STATUS, text);
    answer(&shared, video, &headers).await
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
    headers: HeaderMap,
    form: Posted<ResizeForm>,
) -> Result<Response, PageError> {
    let ResizeForm { video, shards } = complete(form)?;
    let video = video_id(&video)?;
    let number = within("shards", &shards, 1..=ShardCount::MAX)?;
    let resize = move |conn: &mut _| ShardCount::of(views).resize(number, conn);
    shared.database.run(resize).await?;
    let shards = counted(number.into(), "shard");
    shared.note(RESIZE_STATUS, format!("Writers choose from {shards} now."));
    answer(&shared, video, &headers).await
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
    headers: HeaderMap,
    form: Posted<LoadForm>,
) -> Result<Response, PageError> {
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
    let started = shared
        .load
        .start(plan, shared.database.clone(), shared.coalescer.clone());
    started.map_err(|AtWork| {
        let text = "A load is running, and goes on; this one did not start. Start it when that one is finished.";
        PageError::Conflict(text)
    })?;
    answer(&shared, video, &headers).await
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
