//! Errors as a visitor sees them.

use axum::http::StatusCode;
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
    Stopping,
    /// Details that only the site's operator should read.
    Internal(crate::Error),
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
            PageError::Stopping => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Stopping",
                "The site is being stopped.".to_owned(),
            ),
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
        (status, page).into_response()
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
