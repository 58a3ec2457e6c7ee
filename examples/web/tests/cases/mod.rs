//! The cases that must pass on every database.

use std::collections::HashSet;

use reqwest::header::{CONTENT_SECURITY_POLICY, COOKIE, LOCATION, SET_COOKIE};
use reqwest::{RequestBuilder, StatusCode};

use crate::support::{Started, answer, cookie_of, eventually, number, send, text};

/// Makes a test of each case, on the site that `$database` returns.
macro_rules! on {
    ($name:ident, $database:expr) => {
        mod $name {
            use super::*;
            use crate::cases;
            $crate::cases::on!(@ $database; the_pages_show_what_the_database_has, looking_counts_a_view_and_nothing_else_does,
                a_like_is_there_once, what_is_not_there_is_not_found, bad_input_changes_nothing, other_sites_post_nothing, a_burst_is_counted_exactly,
                the_load_counts_exactly_in_every_mode, a_fold_keeps_the_total, a_second_load_is_refused, the_folder_folds, the_metrics_count_updates);
        }
    };
    (@ $database:expr; $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let mut site = $crate::support::Started::on($database).await;
                cases::$case(&mut site).await;
                site.stop().await;
            }
        )+
    };
}
pub(crate) use on;

pub async fn the_pages_show_what_the_database_has(site: &mut Started) {
    let grid = site.page("/").await;
    assert_eq!(grid.matches("<article").count(), 24);
    assert!(grid.contains("Elephants at the watering hole"));
    assert!(grid.contains("3.5M views"));
    assert!(grid.contains("two people and one door"));

    let top = site.page("/top").await;
    let titles: Vec<_> = top.split("class=\"title\"").skip(1).collect();
    assert_eq!(titles.len(), 10);
    assert!(titles[0].contains("Rain on a tin roof") && titles[0].contains("4,210,388"));
    assert!(titles[1].contains("Elephants"), "{}", titles[1]);

    let response = send(site.get("/watch/7")).await;
    let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str();
    let from_nonce = policy.expect("text").split("'nonce-").nth(1);
    let nonce = from_nonce.and_then(|rest| rest.split('\'').next());
    let nonce = nonce.expect("a nonce").to_owned();
    assert_eq!(nonce.len(), 32);
    let watch = response.text().await.expect("a page");
    assert!(watch.contains(&format!("<style nonce=\"{nonce}\">")));
    assert!(watch.contains(&format!("<script nonce=\"{nonce}\">")));
    assert_eq!(number(&watch, "views"), 3_541_121);
    assert_eq!(number(&watch, "likes"), 120_845);
    let hot = site.page("/hot").await;
    assert_eq!(hot.matches("class=\"title\"").count(), 1);
    assert!(
        hot.contains("Elephants") && hot.contains("1.0<span"),
        "{hot}"
    );
    let admin = site.page("/admin").await;
    let is_sqlite = !site.database.url().contains("://");
    let warns = admin.contains("SQLite has one writer at a time");
    assert_eq!(warns, is_sqlite);
    assert!(admin.contains("role=\"status\" id=\"load-status\">Not run yet.<"));
    for page in [&grid, &top, &watch, &hot, &admin] {
        assert!(
            !page.contains(" style=") && !page.contains("http://") && !page.contains("https://")
        );
        for landmark in [
            "<html lang=\"en\">",
            "<header>",
            "<nav aria-label",
            "<main id=\"main\"",
            "<footer>",
            "<h1",
        ] {
            assert!(page.contains(landmark), "{landmark}");
        }
        let ids = page.split(" id=\"").skip(1);
        let ids: Vec<_> = ids.filter_map(|rest| rest.split('"').next()).collect();
        let once: HashSet<_> = ids.iter().collect();
        assert_eq!(ids.len(), once.len(), "{ids:?}");
    }
    // The first visitor's own view came after the page was read.
    assert!(!watch.contains("Last watched"));
    let again = site.page("/watch/7").await;
    assert!(again.contains("<span id=\"last-watched\">just now</span>"));
}

pub async fn looking_counts_a_view_and_nothing_else_does(site: &mut Started) {
    let before = site.total(7).await;
    for views in 1..=3 {
        assert_eq!(site.number("/watch/7", "views").await, before + views);
    }
    answer(site.head("/watch/7"), StatusCode::OK).await;
    let prefetch = site.get("/watch/7").header("sec-purpose", "prefetch");
    answer(prefetch, StatusCode::OK).await;
    site.page("/watch/7?from=like").await;
    site.page("/").await;
    assert_eq!(site.total(7).await, before + 3);
    let by_visitor = |n| site.get("/watch/7").header(COOKIE, cookie_of(n));
    all(many(10, || by_visitor(1)), StatusCode::OK).await;
    assert_eq!(site.total(7).await, before + 4);
    answer(by_visitor(2), StatusCode::OK).await;
    assert_eq!(site.total(7).await, before + 5);
    let chart = site.page("/watch/7?from=like").await;
    assert_eq!(chart.matches("<rect x=").count(), 30);
    assert!(chart.contains("aria-label=\"5 views in 30 days\""));
    site.restart(0).await;

    // 14 looks at the video, twice after a like, the grid, and 4 times `/admin`; a request for headers alone and a prefetch do not count.
    assert_eq!(site.number("/", "served").await, 21);
}

pub async fn a_like_is_there_once(site: &mut Started) {
    let before = site.likes(7).await;

    // As a browser does it without JavaScript.
    let response = send(site.get("/watch/7")).await;
    let set = response.headers()[SET_COOKIE].to_str().expect("text");
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Lax"),
        "{set}"
    );
    let cookie = set.split(';').next().expect("a cookie").to_owned();
    let like = |liked| site.post("/watch/7/like", liked).header(COOKIE, &cookie);
    let response = send(like("liked=true")).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(response.headers()[LOCATION], "/watch/7?from=like");
    let page_again = || {
        answer(
            site.get("/watch/7?from=like").header(COOKIE, &cookie),
            StatusCode::OK,
        )
    };
    let page = page_again().await;
    assert!(page.contains("aria-pressed=\"true\"") && page.contains("value=\"false\""));
    assert_eq!(number(&page, "likes"), before + 1);

    // Ten more of the same at once, as an impatient visitor sends them.
    all(many(10, || like("liked=true")), StatusCode::SEE_OTHER).await;
    assert_eq!(site.likes(7).await, before + 1);

    send(site.like(7, false, 1)).await; // somebody else, who does not like it
    assert_eq!(site.likes(7).await, before + 1);
    all(many(10, || like("liked=false")), StatusCode::SEE_OTHER).await;
    assert_eq!(site.likes(7).await, before);
    assert!(page_again().await.contains("aria-pressed=\"false\""));
}

pub async fn what_is_not_there_is_not_found(site: &mut Started) {
    for path in [
        "/nothing",
        "/watch",
        "/watch/999",
        "/watch/-1",
        "/watch/999/numbers",
        "/admin?video=999",
        "/admin/panels?video=999",
    ] {
        let page = answer(site.get(path), StatusCode::NOT_FOUND).await;
        let says = "There is no such page, or no such video.";
        assert!(page.contains(says), "{path}");
    }
    for (path, form) in [
        ("/watch/999/like", "liked=true"),
        ("/admin/load", "video=999&mode=all&writers=1&seconds=1"),
    ] {
        let post = site.post(path, form).header(COOKIE, cookie_of(1));
        answer(post, StatusCode::NOT_FOUND).await;
    }
}

pub async fn bad_input_changes_nothing(site: &mut Started) {
    let (likes, shards) = (site.likes(7).await, site.number("/admin", "number").await);
    for (path, form) in [
        ("/watch/7/like", "liked=yes"),
        ("/watch/seven/like", "liked=true"),
        ("/admin/resize", "video=7&shards=0"),
        ("/admin/resize", "video=7&shards=4097"),
        ("/admin/resize", "video=7&shards=-1"),
        ("/admin/resize", "video=7"),
    ] {
        let post = site.post(path, form).header(COOKIE, cookie_of(1));
        let status = send(post).await.status();
        assert!(status.is_client_error(), "{path} {form}: {status}");
    }
    let without_cookie = site.post("/watch/7/like", "liked=true");
    let page = answer(without_cookie, StatusCode::BAD_REQUEST).await;
    assert!(page.contains("A like needs a cookie"));
    assert_eq!(site.likes(7).await, likes);
    assert_eq!(site.number("/admin", "number").await, shards);
}

pub async fn other_sites_post_nothing(site: &mut Started) {
    let before = site.likes(7).await;
    for value in ["cross-site", "same-site", ""] {
        for post in [site.like(7, true, 1), site.post("/admin/fold", "video=7")] {
            let post = post.header("sec-fetch-site", value);
            let page = answer(post, StatusCode::FORBIDDEN).await;
            assert!(page.contains("another site"));
        }
    }
    assert_eq!(site.likes(7).await, before);
    let ours = site.like(7, true, 1);
    let ours = ours.header("sec-fetch-site", "same-origin");
    answer(ours, StatusCode::SEE_OTHER).await;
    assert_eq!(site.likes(7).await, before + 1);
}

/// 400 requests at once, each on a connection of its own: views, likes, likes of the same visitor again, likes taken back.
pub async fn a_burst_is_counted_exactly(site: &mut Started) {
    let liked_before = (120..160).map(|visitor| site.like(7, true, visitor));
    all(liked_before.collect(), StatusCode::SEE_OTHER).await;
    let (views, likes) = (site.total(7).await, site.likes(7).await);

    let looks = many(200, || site.get("/watch/7"));
    let likers = (0..120).chain(0..40);
    let mut posts: Vec<_> = likers.map(|visitor| site.like(7, true, visitor)).collect();
    posts.extend((120..160).map(|visitor| site.like(7, false, visitor)));
    assert_eq!(looks.len() + posts.len(), 400);
    tokio::join!(
        all(looks, StatusCode::OK),
        all(posts, StatusCode::SEE_OTHER)
    );

    assert_eq!(site.total(7).await, views + 200);
    assert_eq!(site.likes(7).await, likes + 120 - 40);
    site.restart(0).await;

    // The pages before the site was stopped: 200 of the burst, and twice the total and the likes.
    assert_eq!(site.number("/", "served").await, 204);
    assert_eq!(site.total(7).await, views + 200);
}

pub async fn the_load_counts_exactly_in_every_mode(site: &mut Started) {
    let before = site.total(7).await;
    let post = site.post("/admin/load", "video=7&mode=all&writers=8&seconds=1");
    let response = send(post).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(response.headers()[LOCATION], "/admin?video=7");
    let page = site.page("/admin?video=7").await;
    assert_eq!(text(&page, "load-status"), "Finished.");
    assert!(!page.contains("ended at an error"), "{page}");
    for mode in ["one-row", "sharded", "combined"] {
        assert!(number(&page, &format!("speed-{mode}")) > 0);
        let milliseconds = |percentile: &str| -> f64 {
            let wait = text(&page, &format!("{percentile}-{mode}")).to_owned();
            let number = wait.strip_suffix(" ms").expect("milliseconds");
            number.replace(',', "").parse().expect("a number")
        };
        assert!(0.0 < milliseconds("p50") && milliseconds("p50") <= milliseconds("p99"));
    }
    let outcomes: Vec<_> = page.split(">Counted ").skip(1).collect();
    assert_eq!(outcomes.len(), 3);
    let mut counted = 0;
    for outcome in outcomes {
        let number = |text: &str| -> i64 {
            let digits = text.split([' ', '<']).next().unwrap_or_default();
            digits.replace(',', "").parse().expect("a number")
        };
        let (first, rose) = outcome
            .split_once(", and the total rose by ")
            .expect("it says so");
        assert_eq!(number(first), number(rose));
        assert!(number(first) > 0);
        counted += number(first);
    }
    assert_eq!(site.total(7).await, before + counted);
    let numbers = site.page("/watch/7/numbers").await;
    let numbers: serde_json::Value = serde_json::from_str(&numbers).expect("JSON");
    let views = numbers["views"].as_str().expect("text").replace(',', "");
    assert_eq!(views, (before + counted).to_string());
}

pub async fn a_fold_keeps_the_total(site: &mut Started) {
    all(many(40, || site.get("/watch/7")), StatusCode::OK).await;
    let page = site.page("/admin?video=7").await;
    let total = number(&page, "total");
    assert_eq!(number(&page, "on-shards"), 40);
    assert_eq!(number(&page, "base") + 40, total);

    send(site.post("/admin/resize", "video=7&shards=4")).await;
    assert_eq!(site.number("/admin?video=7", "number").await, 4);
    send(site.post("/admin/fold", "video=7")).await;
    let page = site.page("/admin?video=7").await;
    assert_eq!(number(&page, "on-shards"), 0);
    assert_eq!(number(&page, "base"), total);
    assert_eq!(number(&page, "total"), total);

    all(many(40, || site.get("/watch/7")), StatusCode::OK).await;
    assert_eq!(site.total(7).await, total + 40);
}

pub async fn a_second_load_is_refused(site: &mut Started) {
    let start = |mode| {
        let form = format!("video=7&mode={mode}&writers=4&seconds=5");
        site.post("/admin/load", &form)
    };
    let first = tokio::spawn(answer(start("sharded"), StatusCode::SEE_OTHER));
    eventually("the first one is at work", async || {
        let page = site.page("/admin").await;
        text(&page, "load-status") == "At work: Sharded."
    })
    .await;
    for mode in ["one-row", "all"] {
        let refused = answer(start(mode), StatusCode::CONFLICT).await;
        assert!(refused.contains("A load is running, and goes on; this one did not start."));
    }
    first.await.expect("it goes on");
}

pub async fn the_folder_folds(site: &mut Started) {
    site.restart(1).await;
    site.page("/watch/7").await;
    eventually("the folder moves what was counted", async || {
        site.number("/admin?video=7", "on-shards").await == 0
    })
    .await;
}

fn many(number: usize, request: impl Fn() -> RequestBuilder) -> Vec<RequestBuilder> {
    (0..number).map(|_| request()).collect()
}

/// Sends all of them at once, and checks that each answer has this status.
async fn all(requests: Vec<RequestBuilder>, status: StatusCode) {
    let requests = requests.into_iter();
    let answers: Vec<_> = requests
        .map(|request| tokio::spawn(answer(request, status)))
        .collect();
    for answer in answers {
        answer.await.expect("an answer");
    }
}

/// Other sites of this process count too.
pub async fn the_metrics_count_updates(site: &mut Started) {
    let updates = || async {
        let metrics = site.page("/metrics").await;
        let counted = metrics.lines().filter(|line| {
            line.starts_with("diesel_sharded_updates_total{") && line.contains("videos_shards")
        });
        let numbers = counted.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        numbers.sum::<u64>()
    };
    let before = updates().await;
    site.page("/watch/7").await;
    assert!(updates().await > before);
}
