//! The visitor who likes: a random name in a cookie.

use axum::extract::FromRequestParts;
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method};
use std::convert::Infallible;

const NAME: &str = "visitor";

/// 128 random bits in hexadecimal. Nobody can guess another visitor's, so the cookie is not signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor(String);

impl Visitor {
    pub fn new() -> Self {
        Visitor(format!("{:032x}", rand::random::<u128>()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// No script reads it, and no other site's form brings it along.
    pub fn cookie(&self) -> [(HeaderName, String); 1] {
        let Visitor(name) = self;
        [(
            SET_COOKIE,
            format!("{NAME}={name}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax"),
        )]
    }

    fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let cookies = headers.get_all(COOKIE).into_iter();
        cookies
            .filter_map(|cookies| cookies.to_str().ok())
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .find_map(|(name, value)| (name == NAME && is_name(value)).then(|| value.to_owned()))
            .map(Visitor)
    }
}

fn is_name(value: &str) -> bool {
    let is_hexadecimal = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    value.len() == 32 && value.bytes().all(is_hexadecimal)
}

/// The visitor of a request, if its cookie is one of ours.
pub struct Known(pub Option<Visitor>);

impl<S: Sync> FromRequestParts<S> for Known {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Known(Visitor::from_headers(&parts.headers)))
    }
}

/// Whether somebody looks at the page: not a program that asks for the headers alone, nor a browser that prefetches a link.
pub struct Looks(pub bool);

impl<S: Sync> FromRequestParts<S> for Looks {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Looks(looks(&parts.method, &parts.headers)))
    }
}

pub fn looks(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::GET && !headers.contains_key("sec-purpose")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visitor(cookies: &'static str) -> Option<Visitor> {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, cookies.parse().expect("a header"));
        Visitor::from_headers(&headers)
    }

    #[test]
    fn a_cookie_comes_back_as_it_was_set() {
        let visitor = Visitor::new();
        let [(_, set)] = visitor.cookie();
        let mut headers = HeaderMap::new();
        let cookie = set.split(';').next().expect("the name and the value");
        headers.insert(
            COOKIE,
            format!("a=b; {cookie}; c").parse().expect("a header"),
        );
        assert_eq!(Visitor::from_headers(&headers), Some(visitor));
    }

    #[test]
    fn what_we_did_not_set_is_no_visitor() {
        assert!(visitor("visitor=0123456789abcdef0123456789abcdef").is_some());
        for cookies in [
            "visitor=",
            "visitor=0123456789abcdef0123456789abcde",
            "visitor=0123456789ABCDEF0123456789ABCDEF",
            "visitors=0123456789abcdef0123456789abcdef",
            "visitor='; DROP TABLE videos; --aaaaaaaa",
            "visitor",
        ] {
            assert_eq!(visitor(cookies), None, "{cookies}");
        }
    }
}
