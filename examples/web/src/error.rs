//! Errors as a visitor sees them.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use diesel_sharded::Error;
use maud::html;

use crate::pages::Page;

/// An answer in place of a page, with a reason.
#[derive(Debug)]
pub struct PageError(StatusCode, String);

impl PageError {
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        PageError(status, text.into())
    }

    pub fn bad_request(text: impl Into<String>) -> Self {
        PageError::new(StatusCode::BAD_REQUEST, text)
    }

    pub fn not_found() -> Self {
        let text = "There is no such page, or no such video.";
        PageError::new(StatusCode::NOT_FOUND, text)
    }

    /// A failure whose details only the site's operator should read.
    pub fn internal(error: impl Into<crate::Error>) -> Self {
        eprintln!("500: {}", error.into());
        let text = "The site could not reach its database, or met another fault. Try again.";
        PageError::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let PageError(status, text) = self;
        let title = status.canonical_reason().unwrap_or("Error");
        let main = html! {
            h1 { (title) }
            p { (text) }
            p { a href="/" { "All videos" } }
        };
        (status, Page::new(title, main)).into_response()
    }
}

impl From<Error> for PageError {
    fn from(error: Error) -> Self {
        match error {
            Error::Diesel(diesel::NotFound) => PageError::not_found(),
            Error::InvalidShardCount { .. } => PageError::bad_request(error.to_string()),
            error => PageError::internal(error),
        }
    }
}
