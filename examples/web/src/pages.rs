//! The pages and their addresses.

mod admin;
mod comparison;
mod drawing;
mod layout;
mod lists;
mod number;
mod watch;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{Router, get, post};

pub use self::layout::Page;
use crate::error::PageError;
use crate::metrics;
use crate::site::Shared;

/// The argument of all handlers.
type Site = State<Arc<Shared>>;

pub fn router(shared: Arc<Shared>) -> Router {
    let pages = Router::new()
        .route("/", get(lists::all))
        .route("/top", get(lists::top))
        .route("/hot", get(lists::hot))
        .route("/watch/{video}", get(watch::page))
        .route("/admin", get(admin::page))
        .route_layer(from_fn_with_state(Arc::clone(&shared), count_page));
    let others = Router::new()
        .route("/watch/{video}/like", post(watch::like))
        .route("/watch/{video}/numbers", get(watch::numbers))
        .route("/admin/fold", post(admin::fold))
        .route("/admin/resize", post(admin::resize))
        .route("/admin/load", post(admin::load))
        .route("/admin/panels", get(admin::panels))
        .route("/metrics", get(metrics::page));
    pages
        .merge(others)
        .fallback(async || PageError::not_found())
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

/// Refuses forms that another site's page posts. The browser says where a request comes from, and no page can change that; a request
/// that does not comes from no browser. This protects visitors, not the site: anyone who reaches `/admin` may use it.
async fn refuse_other_sites(request: Request, next: Next) -> Response {
    let site = request.headers().get("sec-fetch-site");
    // "none" is the user, who typed it.
    let is_ours = site.is_none_or(|site| site == "same-origin" || site == "none");
    if is_ours || request.method().is_safe() {
        return next.run(request).await;
    }
    let text = "This form was sent by a page of another site.";
    PageError::new(StatusCode::FORBIDDEN, text).into_response()
}
