//! The pages and their addresses.

mod admin;
mod comparison;
mod drawing;
mod forms;
mod grid;
mod layout;
mod number;
mod panels;
mod ranking;
mod shards;
mod top;
mod trending;
mod watch;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{Router, get, post};

pub use self::layout::Page;
use crate::error::{PageError, answer_scripts_by_text};
use crate::metrics;
use crate::origin::refuse_other_sites;
use crate::site::Shared;
use crate::visitor::looks;

pub fn router(shared: Arc<Shared>) -> Router {
    let pages = Router::new()
        .route("/", get(grid::page))
        .route("/top", get(top::page))
        .route("/trending", get(trending::page))
        .route("/watch/{video}", get(watch::page))
        .route("/admin", get(admin::page))
        .route_layer(from_fn_with_state(Arc::clone(&shared), count_page));
    let forms = Router::new()
        .route("/watch/{video}/like", post(watch::like))
        .route("/admin/fold", post(forms::fold))
        .route("/admin/resize", post(forms::resize))
        .route("/admin/load", post(forms::load));
    let events = Router::new()
        .route("/watch/{video}/events", get(watch::events))
        .route("/admin/events", get(admin::events))
        .route("/metrics", get(metrics::page));
    pages
        .merge(forms)
        .merge(events)
        .fallback(async || PageError::NotFound)
        .method_not_allowed_fallback(async || PageError::NotFound)
        .layer(from_fn(refuse_other_sites))
        .layer(from_fn(answer_scripts_by_text))
        .with_state(shared)
}

/// Adds each page that was served to the site's counter.
async fn count_page(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let looks = looks(request.method(), request.headers());
    let response = next.run(request).await;
    if looks && response.status().is_success() {
        shared.page_was_served();
    }
    response
}

/// The number of a video in an address.
fn video_id(text: &str) -> Result<i64, PageError> {
    text.parse().map_err(|_| PageError::NotFound)
}
