//! Errors as a visitor sees them.

use axum::extract::Request;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use diesel::r2d2::PoolError;
use diesel_sharded::Error;
use maud::html;
use tokio::sync::AcquireError;
use tokio::task::JoinError;

use crate::pages::Page;

#[derive(Debug)]
pub enum PageError {
    NotFound,
    BadRequest(String),
    Forbidden(&'static str),
    Conflict(&'static str),
    /// Details that only the site's operator should read.
    Internal(crate::Error),
}

/// The text of an error, beside its page.
#[derive(Clone)]
struct Reason(String);

/// Answers a script by the text of an error alone.
pub async fn answer_scripts_by_text(request: Request, next: Next) -> Response {
    let is_script = asks_for_json(request.headers());
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<Reason>() {
        Some(Reason(text)) if is_script => (response.status(), text).into_response(),
        _ => response,
    }
}

/// As our scripts do.
pub fn asks_for_json(headers: &HeaderMap) -> bool {
    headers
        .get(ACCEPT)
        .is_some_and(|types| types == "application/json")
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let (status, title, text) = match self {
            PageError::NotFound => (
                StatusCode::NOT_FOUND,
                "Not found",
                "There is no such page, or no such video.".to_owned(),
            ),
            PageError::BadRequest(text) => (StatusCode::BAD_REQUEST, "That did not work", text),
            PageError::Forbidden(text) => (StatusCode::FORBIDDEN, "Refused", text.to_owned()),
            PageError::Conflict(text) => (StatusCode::CONFLICT, "Not now", text.to_owned()),
            PageError::Internal(error) => {
                eprintln!("500: {error}");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "Something broke",
                    "The site could not reach its database, or met another fault. Try again."
                        .to_owned(),
                )
            }
        };
        let page = Page::new(
            title,
            html! {
                h1 { (title) }
                p { (text) }
                p { a href="/" { "All videos" } }
            },
        );
        let mut response = (status, page).into_response();
        response.extensions_mut().insert(Reason(text));
        response
    }
}

impl From<Error> for PageError {
    fn from(error: Error) -> Self {
        match error {
            Error::Diesel(diesel::NotFound) => PageError::NotFound,
            Error::InvalidShardCount { .. } => PageError::BadRequest(error.to_string()),
            error => PageError::Internal(error.into()),
        }
    }
}

impl From<PoolError> for PageError {
    fn from(error: PoolError) -> Self {
        PageError::Internal(error.into())
    }
}

impl From<AcquireError> for PageError {
    fn from(error: AcquireError) -> Self {
        PageError::Internal(error.into())
    }
}

impl From<JoinError> for PageError {
    fn from(error: JoinError) -> Self {
        PageError::Internal(error.into())
    }
}
