//! Refuses forms that another site's page posts.
//!
//! The browser says where a request comes from, and no page can change that: `Sec-Fetch-Site` in all of today's, `Origin` in
//! older ones. A request with neither comes from no browser, so nobody was lured into it. Forms then need no token, and sessions
//! neither. This protects visitors, not the site: anyone who reaches `/admin` may use it.

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::PageError;

pub async fn refuse_other_sites(request: Request, next: Next) -> Response {
    if !request.method().is_safe() && !is_our_own(request.headers()) {
        let text = "This form was sent by a page of another site.";
        return PageError::new(StatusCode::FORBIDDEN, text).into_response();
    }
    next.run(request).await
}

fn is_our_own(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin" || site == "none"; // "none" is the user, who typed it
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return true;
    };
    let host = |origin: &str| origin.split_once("://").map(|(_, host)| host.to_owned());
    let origin = origin.to_str().ok().and_then(host);
    let ours = headers.get(HOST).and_then(|host| host.to_str().ok());
    origin.is_some() && origin.as_deref() == ours
}
