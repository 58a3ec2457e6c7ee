//! A site of a test's own, and a client that reads its pages as a program does.
#![allow(dead_code, reason = "no test uses all of it")]

pub mod browser;
pub mod program;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use diesel_sharded_tests::Database;
use diesel_sharded_web::{Config, Site};
use reqwest::header::COOKIE;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};

pub struct Started {
    pub database: Database,
    site: Option<Site>,
    client: Client,
    url: String,
}

impl Started {
    /// On a free port. No background fold runs beside the test.
    pub async fn on(database: Database) -> Self {
        let client = Client::builder().redirect(Policy::none()).build();
        let mut started = Started {
            database,
            site: None,
            client: client.expect("a client"),
            url: String::new(),
        };
        started.restart(0).await;
        started
    }

    /// Stops the site if it runs, and starts it on the same database.
    pub async fn restart(&mut self, fold_every: u64) {
        self.stop().await;
        let config = Config {
            database_url: Some(self.database.url().to_owned()),
            addr: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            fold_every,
        };
        let site = Site::start(&config).await.expect("a site");
        self.url = format!("http://{}", site.address());
        self.site = Some(site);
    }

    pub async fn stop(&mut self) {
        if let Some(site) = self.site.take() {
            site.stop().await.expect("it stops");
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(self.url(path))
    }

    pub fn head(&self, path: &str) -> RequestBuilder {
        self.client.head(self.url(path))
    }

    pub fn post(&self, path: &str, form: &str) -> RequestBuilder {
        let request = self.client.post(self.url(path)).body(form.to_owned());
        request.header("content-type", "application/x-www-form-urlencoded")
    }

    pub fn like(&self, video: i64, liked: bool, visitor: u32) -> RequestBuilder {
        self.post(&format!("/watch/{video}/like"), &format!("liked={liked}"))
            .header(COOKIE, cookie_of(visitor))
    }

    /// The page, which must exist.
    pub async fn page(&self, path: &str) -> String {
        answer(self.get(path), StatusCode::OK).await
    }

    /// A number on a page, by the id of its element.
    pub async fn number(&self, path: &str, id: &str) -> i64 {
        number(&self.page(path).await, id)
    }

    /// The total that `/admin` computes.
    pub async fn total(&self, video: i64) -> i64 {
        self.number(&format!("/admin?video={video}"), "total").await
    }

    /// Reads the page without counting a view.
    pub async fn likes(&self, video: i64) -> i64 {
        let path = format!("/watch/{video}?from=like");
        self.number(&path, "likes").await
    }
}

/// The text of an answer that must have this status.
pub async fn answer(request: RequestBuilder, status: StatusCode) -> String {
    let response = send(request).await;
    assert_eq!(response.status(), status, "{}", response.url());
    response.text().await.expect("a text")
}

pub async fn send(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

pub fn cookie_of(visitor: u32) -> String {
    format!("visitor={visitor:032x}")
}

/// The content of an element, up to the next tag.
pub fn text<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, from_id) = page
        .split_once(&format!(" id=\"{id}\""))
        .unwrap_or_else(|| panic!("there is no {id} in {page}"));
    let (_, inside) = from_id.split_once('>').expect("a tag has an end");
    inside.split('<').next().unwrap_or_default()
}

pub fn number(page: &str, id: &str) -> i64 {
    let text = text(page, id).replace(',', "");
    text.parse()
        .unwrap_or_else(|_| panic!("{id} is no number: {text}"))
}

/// Polls until it is true, for 30 seconds at most.
pub async fn eventually<R: Future<Output = bool>>(what: &str, is_so: impl Fn() -> R) {
    let patience = Instant::now() + Duration::from_secs(300);
    while !is_so().await {
        assert!(Instant::now() < patience, "{what}: it never is");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
