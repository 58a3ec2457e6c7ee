//! The layout that all pages share.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::number::{grouped, noun};

const STYLE: &str = include_str!("style.css");

/// A page's own part.
pub struct Page {
    title: String,
    main: Markup,
    script: &'static str,
    served: Option<i64>,
}

impl Page {
    pub fn new(title: impl Into<String>, main: Markup) -> Self {
        Page {
            title: title.into(),
            main,
            script: "",
            served: None,
        }
    }

    /// Adds a script that improves the page; the page works without it.
    pub fn script(mut self, script: &'static str) -> Self {
        self.script = script;
        self
    }

    /// Adds the site's counter.
    pub fn served(mut self, served: i64) -> Self {
        self.served = Some(served);
        self
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        // The browser runs style and script only with this number, and loads nothing from elsewhere. No other site may show one of
        // our pages in a frame, where a visitor would click without knowing on what.
        let nonce = format!("{:032x}", rand::random::<u128>());
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; \
             img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        );
        let headers = [
            (CONTENT_SECURITY_POLICY, policy.as_str()),
            (CACHE_CONTROL, "no-cache"), // counts change
            (REFERRER_POLICY, "same-origin"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        (headers, Html(self.html(&nonce).into_string())).into_response()
    }
}

impl Page {
    fn html(&self, nonce: &str) -> Markup {
        let links = [
            ("/", "Videos"),
            ("/top", "Top 10"),
            ("/hot", "Hot"),
            ("/admin", "Admin"),
        ];
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Shardtube" }
                    link rel="icon" href="data:,"; // none, instead of a request for one
                    style nonce=(nonce) { (PreEscaped(STYLE)) }
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    header {
                        a.brand href="/" { span aria-hidden="true" { "▮▮▮" } " Shardtube" }
                        nav aria-label="Site" {
                            @for (address, name) in links {
                                a href=(address) aria-current=[(self.title == name).then_some("page")] { (name) }
                            }
                        }
                    }
                    main id="main" tabindex="-1" { (self.main) }
                    footer {
                        @if let Some(served) = self.served {
                            p { span id="served" { (grouped(served)) } " " (noun(served, "page")) " served" }
                        }
                        p { "An example of the crate diesel_sharded. Nothing here was filmed." }
                    }
                    @if !self.script.is_empty() {
                        script nonce=(nonce) { (PreEscaped(self.script)) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_is_no_plural() {
        for (number, text) in [
            (1, "1</span> page served"),
            (1_234, "1,234</span> pages served"),
        ] {
            let page = Page::new("A title", html! {}).served(number);
            let html = page.html("nonce").into_string();
            assert!(html.contains(text), "{html}");
        }
    }
}
