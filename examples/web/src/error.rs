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
    fn logged(status: StatusCode, error: impl Into<crate::Error>, text: &str) -> Self {
        eprintln!("{status}: {}", error.into());
        PageError::new(status, text)
    }

    pub fn internal(error: impl Into<crate::Error>) -> Self {
        let text = "The site met a fault. Look before you try again.";
        PageError::logged(StatusCode::INTERNAL_SERVER_ERROR, error, text)
    }

    /// Nothing was changed, and a repeat may succeed.
    pub fn unavailable(error: impl Into<crate::Error>) -> Self {
        let text = "The database is busy or away, and nothing was changed. Try again.";
        PageError::logged(StatusCode::SERVICE_UNAVAILABLE, error, text)
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

/// The statuses of `examples/frameworks`, which the guide has as a table.
impl From<Error> for PageError {
    fn from(error: Error) -> Self {
        match error {
            Error::Diesel(diesel::NotFound) => PageError::not_found(),
            Error::InvalidShardCount { .. } => PageError::bad_request(error.to_string()),
            Error::Overflow { .. } | Error::IdempotencyKeyReused => {
                let text = "Nothing was changed, and another try fails too.";
                PageError::logged(StatusCode::CONFLICT, error, text)
            }
            Error::ConflictPersisted { .. }
            | Error::ConnectionLost { .. }
            | Error::NodeNotReady { .. }
            | Error::StatementLost { .. }
            | Error::DiskFull { .. }
            | Error::DeadlinePassed { .. } => PageError::unavailable(error),
            Error::OutcomeUnknown { .. } => {
                let text = "It may have been counted: look before you try again.";
                PageError::logged(StatusCode::INTERNAL_SERVER_ERROR, error, text)
            }
            error => PageError::internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_nothing_is_to_be_tried_again() {
        let source = || diesel::NotFound;
        let errors = [
            (Error::ConnectionLost { source: source() }, 503),
            (Error::Overflow { source: source() }, 409),
            (Error::OutcomeUnknown { source: source() }, 500),
            (Error::TransactionAborted, 500),
        ];
        for (error, expected) in errors {
            let says = error.to_string();
            let PageError(status, text) = PageError::from(error);
            assert_eq!(status.as_u16(), expected, "{says}");
            assert_eq!(text.ends_with("changed. Try again."), expected == 503);
        }
    }
}
