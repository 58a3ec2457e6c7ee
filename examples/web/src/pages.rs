//! The pages and their addresses.

mod admin;
mod comparison;
mod drawing;
mod layout;
mod lists;
mod number;
mod watch;

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{Router, get, post};
use serde::Deserialize;

pub use self::layout::Page;
use crate::error::PageError;
use crate::metrics;
use crate::origin::refuse_other_sites;
use crate::site::Shared;

/// What all handlers take.
type Site = State<Arc<Shared>>;

pub fn router(shared: Arc<Shared>) -> Router {
    let pages = Router::new()
        .route("/", get(lists::all))
        .route("/top", get(lists::top))
        .route("/trending", get(lists::trending))
        .route("/watch/{video}", get(watch::page))
        .route("/admin", get(admin::page))
        .route_layer(from_fn_with_state(Arc::clone(&shared), count_page));
    let others = Router::new()
        .route("/watch/{video}/like", post(watch::like))
        .route("/watch/{video}/events", get(watch::events))
        .route("/admin/fold", post(admin::fold))
        .route("/admin/resize", post(admin::resize))
        .route("/admin/load", post(admin::load))
        .route("/admin/events", get(admin::events))
        .route("/metrics", get(metrics::page));
    pages
        .merge(others)
        .fallback(async || PageError::not_found())
        .method_not_allowed_fallback(async || PageError::not_found())
        .layer(from_fn(refuse_other_sites))
        .with_state(shared)
}

/// Adds each page that was served to the site's counter.
async fn count_page(State(shared): Site, request: Request, next: Next) -> Response {
    let looks = looks(request.method(), request.headers());
    let response = next.run(request).await;
    if looks && response.status().is_success() {
        shared.page_was_served();
    }
    response
}

/// Whether somebody looks at the page: not a program that asks for the headers alone, nor a browser that prefetches a link.
fn looks(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::GET && !headers.contains_key("sec-purpose")
}

/// The number of a video in an address.
fn video_id(text: &str) -> Result<i64, PageError> {
    text.parse().map_err(|_| PageError::not_found())
}

/// The fields of a form, or of a query.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct Fields(HashMap<String, String>);

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn text(&self, name: &str) -> Result<&str, PageError> {
        let missing = || PageError::bad_request(format!("The form lacks the field {name:?}."));
        self.get(name).ok_or_else(missing)
    }

    fn number(&self, name: &str, range: RangeInclusive<u16>) -> Result<u16, PageError> {
        let text = self.text(name)?;
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (from, to): (&dyn Display, &dyn Display) = (range.start(), range.end());
            PageError::bad_request(format!(
                "The number of {name} is a whole number from {from} to {to}, and {text:?} is none."
            ))
        })
    }

    fn video(&self) -> Result<i64, PageError> {
        video_id(self.text("video")?)
    }
}
