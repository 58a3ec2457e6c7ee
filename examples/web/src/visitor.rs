//! Who watches and likes: a random name in a cookie.

use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName};

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
        let attributes = "Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax";
        [(SET_COOKIE, format!("{NAME}={name}; {attributes}"))]
    }

    /// The visitor of a request, if its cookie is one of ours.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn visitor(cookies: &str) -> Option<Visitor> {
        let cookies = cookies.parse().expect("a header");
        Visitor::of(&HeaderMap::from_iter([(COOKIE, cookies)]))
    }

    #[test]
    fn a_cookie_comes_back_as_it_was_set() {
        let new = Visitor::new();
        let [(_, set)] = new.cookie();
        let cookie = set.split(';').next().expect("the name and the value");
        assert_eq!(visitor(&format!("a=b; {cookie}; c")), Some(new));
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
