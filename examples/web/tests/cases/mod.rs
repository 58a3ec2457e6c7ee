//! The cases that must pass on every database.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_SECURITY_POLICY, COOKIE, LOCATION, SET_COOKIE};
use reqwest::{RequestBuilder, Response, StatusCode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{
    Started, answer, cookie_of, eventually, number, number_by_sql, run_sql, send, text,
};

/// Makes a test of each case, on the site that `$database` returns.
macro_rules! on {
    ($name:ident, $database:expr) => {
        mod $name {
            use super::*;
            use crate::cases;
            $crate::cases::on!(@ $database; the_pages_show_what_the_database_has, trending_is_a_window_of_hours, looking_counts_a_view_and_nothing_else_does,
                a_like_is_there_once, what_is_not_there_is_not_found, bad_input_is_refused_with_a_reason,
                other_sites_post_nothing, a_burst_is_counted_exactly, the_numbers_are_live,
                the_load_counts_exactly_in_every_mode, a_fold_keeps_the_total, a_second_load_is_refused, the_admin_page_is_live, the_metrics_count_updates);
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
    let admin = site.page("/admin").await;
    match site.database.url().split_once("://") {
        None => {
            assert!(admin.contains("SQLite has one writer at a time"));
            assert!(admin.contains("--features postgres -- --postgres"));
            assert!(admin.contains("PRAGMA synchronous = NORMAL"));
        }
        Some(("postgres", _)) => assert!(admin.contains("This site runs on PostgreSQL.")),
        Some(_) => assert!(admin.contains("This site runs on MySQL or MariaDB.")),
    }
    assert!(admin.contains("role=\"status\" id=\"load-status\">Not run yet.<"));
    for page in [&grid, &top, &watch, &admin, &site.page("/trending").await] {
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

pub async fn trending_is_a_window_of_hours(site: &mut Started) {
    assert!(site.page("/trending").await.contains("Nobody has watched"));
    for video in [8, 7, 8, 7, 8] {
        site.page(&format!("/watch/{video}")).await;
    }
    site.page("/watch/7?from=like").await;
    let expect = |expected: &[(i64, i64)], page: &str| {
        let between = |text: &str, before: &str, after: &str| -> i64 {
            let (_, rest) = text.split_once(before).expect("an element");
            rest.split(after)
                .next()
                .and_then(|text| text.parse().ok())
                .expect("a number")
        };
        let rows = page.split("class=\"title\"").skip(1);
        let rows = rows.map(|row| {
            (
                between(row, "/watch/", "\""),
                between(row, "\"number\">", "<"),
            )
        });
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    };
    let page = site.page("/trending").await;
    assert!(page.contains("<a href=\"/trending\" aria-current=\"page\">"));
    expect(&[(8, 3), (7, 2)], &page);

    // The window's first hour but one, the last hour before it, one that is kept, and one that is not.
    let now = chrono::Utc::now().timestamp() / 3_600;
    let rows = [(9, 22, 5), (10, 24, 9), (8, 700, 50), (11, 721, 100)];
    let rows = rows.map(|(video, ago, views)| format!("({video}, {}, {views})", now - ago));
    let insert = "INSERT INTO views_by_hour (video_id, hour, number) VALUES";
    run_sql(&site.database, &format!("{insert} {}", rows.join(", ")));
    expect(&[(9, 5), (8, 3), (7, 2)], &site.page("/trending").await);
    site.restart(None).await;

    // Buckets are folded and deleted when the site starts, and then every hour.
    let rows = |from: &str| number_by_sql(&site.database, &format!("SELECT COUNT(*) FROM {from}"));
    let old = format!("views_by_hour WHERE hour < {}", now - 1); // the views above may be of two hours
    let is_tidy = async || rows(&old) == 3 && rows("views_by_hour_shards") == 0;
    eventually("old buckets are deleted", is_tidy).await;
    expect(&[(9, 5), (8, 3), (7, 2)], &site.page("/trending").await);
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
    site.restart(None).await;

    // 3 views, once after a like, the grid, and twice `/admin`; a request for headers alone and a prefetch do not count.
    assert_eq!(site.number("/", "served").await, 7);
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
        "/watch/seven",
        "/watch/7.0",
        "/watch/99999999999999999999",
        "/watch/999/events",
        "/watch/x/events",
        "/admin?video=999",
        "/admin?video=x",
        "/admin/events?video=999",
        "/admin/fold",
    ] {
        let page = answer(site.get(path), StatusCode::NOT_FOUND).await;
        assert!(
            page.contains("There is no such page, or no such video."),
            "{path}"
        );
    }
    for (path, form) in [
        ("/", ""),
        ("/watch/999/like", "liked=true"),
        ("/watch/x/like", "liked=true"),
        ("/admin/fold", "video=x"),
        ("/admin/load", "video=999&mode=all&writers=1&seconds=1"),
    ] {
        let post = site.post(path, form).header(COOKIE, cookie_of(1));
        answer(post, StatusCode::NOT_FOUND).await;
    }
}

pub async fn bad_input_is_refused_with_a_reason(site: &mut Started) {
    let (likes, shards) = (site.likes(7).await, site.number("/admin", "number").await);
    let wrong = [
        ("/watch/7/like", "liked=yes", "is sent as"),
        ("/watch/7/like", "", "is sent as"),
        (
            "/admin/resize",
            "video=7&shards=0",
            "from 1 to 4096, and &quot;0&quot; is none",
        ),
        ("/admin/resize", "video=7&shards=4097", "from 1 to 4096"),
        ("/admin/resize", "video=7&shards=-1", "from 1 to 4096"),
        ("/admin/resize", "video=7&shards=", "from 1 to 4096"),
        ("/admin/resize", "video=7&shards=1e3", "from 1 to 4096"),
        ("/admin/resize", "video=7", "lacks the field"),
        (
            "/admin/load",
            "video=7&mode=both&writers=1&seconds=1",
            "one of one-row, sharded, coalesced",
        ),
        (
            "/admin/load",
            "video=7&mode=%3Cscript%3E&writers=1&seconds=1",
            "&lt;script&gt;",
        ),
        (
            "/admin/load",
            "video=7&mode=all&writers=65&seconds=1",
            "writers is a whole number from 1 to 64",
        ),
        (
            "/admin/load",
            "video=7&mode=all&writers=1&seconds=61",
            "seconds is a whole number from 1 to 60",
        ),
    ];
    for (path, form, reason) in wrong {
        let post = site.post(path, form).header(COOKIE, cookie_of(1));
        let page = answer(post, StatusCode::BAD_REQUEST).await;
        assert!(
            page.contains(reason),
            "{path} {form}: {}",
            text(&page, "main")
        );
        assert!(page.contains("<h1>That did not work</h1>"));
    }
    let without_cookie = site.post("/watch/7/like", "liked=true");
    let page = answer(without_cookie, StatusCode::BAD_REQUEST).await;
    assert!(page.contains("A like needs a cookie"));
    assert_eq!(site.likes(7).await, likes);
    assert_eq!(site.number("/admin", "number").await, shards);
}

pub async fn other_sites_post_nothing(site: &mut Started) {
    let before = site.likes(7).await;
    for (header, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", ""),
        ("origin", "http://example.org"),
        ("origin", "null"),
    ] {
        for post in [site.like(7, true, 1), site.post("/admin/fold", "video=7")] {
            let page = answer(post.header(header, value), StatusCode::FORBIDDEN).await;
            assert!(page.contains("another site"));
        }
    }
    assert_eq!(site.likes(7).await, before);
    let ours = site
        .like(7, true, 1)
        .header("sec-fetch-site", "same-origin");
    answer(ours, StatusCode::SEE_OTHER).await;
    assert_eq!(site.likes(7).await, before + 1);
    let by_an_older_browser = site.like(7, false, 1).header("origin", site.url(""));
    answer(by_an_older_browser, StatusCode::SEE_OTHER).await;
    assert_eq!(site.likes(7).await, before);
}

/// 2,000 requests at once, each on a connection of its own: views, likes, likes of the same visitor again, likes taken back.
pub async fn a_burst_is_counted_exactly(site: &mut Started) {
    allow_open_files();
    let liked_before = (600..800).map(|visitor| site.like(7, true, visitor));
    all(liked_before.collect(), StatusCode::SEE_OTHER).await;
    let (views, likes) = (site.total(7).await, site.likes(7).await);

    let looks = many(1_000, || site.get("/watch/7"));
    let likers = (0..600).chain(0..200);
    let mut posts: Vec<_> = likers.map(|visitor| site.like(7, true, visitor)).collect();
    posts.extend((600..800).map(|visitor| site.like(7, false, visitor)));
    assert_eq!(looks.len() + posts.len(), 2_000);
    tokio::join!(
        all(looks, StatusCode::OK),
        all(posts, StatusCode::SEE_OTHER)
    );

    assert_eq!(site.total(7).await, views + 1_000);
    assert_eq!(site.likes(7).await, likes + 600 - 200);
    let trending = site.page("/trending").await;
    assert!(trending.contains("class=\"number\">1,000<"), "{trending}");
    site.restart(None).await;

    // The pages before the site was stopped: 1,000 of the burst, twice the total and the likes, and the trending videos.
    assert_eq!(site.number("/", "served").await, 1_005);
    assert_eq!(site.total(7).await, views + 1_000);
}

pub async fn the_numbers_are_live(site: &mut Started) {
    let mut events = send(site.get("/watch/7/events")).await;
    let first = next_event(&mut events).await;
    assert_eq!(first["views"], "3,541,120");
    site.page("/watch/7").await;
    let second = next_event(&mut events).await;
    assert_eq!(second["views"], "3,541,121");
    send(site.like(7, true, 1)).await;
    let third = next_event(&mut events).await;
    assert_eq!(third["likes"], "120,846");
    // And none of them keeps the site from stopping.
    site.stop().await;
    while let Ok(Some(_)) = events.chunk().await {}
}

pub async fn the_load_counts_exactly_in_every_mode(site: &mut Started) {
    let before = site.total(7).await;
    let post = site.post("/admin/load", "video=7&mode=all&writers=8&seconds=1");
    let response = send(post).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(response.headers()[LOCATION], "/admin?video=7");
    eventually("all three ran", async || {
        let page = site.page("/admin?video=7").await;
        text(&page, "load-status") == "Finished: 8 writers for 1 second in each mode."
    })
    .await;
    let page = site.page("/admin?video=7").await;
    assert!(!page.contains("ended at an error"), "{page}");
    for mode in ["one-row", "sharded", "coalesced"] {
        assert!(number(&page, &format!("speed-{mode}")) > 0);
        let milliseconds = |percentile: &str| -> f64 {
            let wait = text(&page, &format!("{percentile}-{mode}")).to_owned();
            let number = wait.strip_suffix(" ms").expect("milliseconds");
            number.replace(',', "").parse().expect("a number")
        };
        assert!(0.0 < milliseconds("p50") && milliseconds("p50") <= milliseconds("p99"));
    }
    assert!(
        page.contains("id=\"coalescers-shard\""),
        "its shard is drawn apart"
    );
    let outcomes: Vec<_> = page.split("8 writers counted ").skip(1).collect();
    assert_eq!(outcomes.len(), 3);
    let mut counted = 0;
    for outcome in outcomes {
        let number = |text: &str| -> i64 {
            let digits = text.split([' ', '<']).next().unwrap_or_default();
            digits.replace(',', "").parse().expect("a number")
        };
        let (_, rose) = outcome.split_once("total rose by ").expect("it says so");
        assert_eq!(number(outcome), number(rose));
        assert!(number(outcome) > 0);
        counted += number(outcome);
    }
    assert_eq!(site.total(7).await, before + counted);
    assert_eq!(site.number("/watch/7", "views").await, before + counted + 1);
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
    assert!(text(&page, "fold-status").starts_with("Folded 1 video in"));
    assert!(page.contains("40 views and 0 likes"));
    assert_eq!(
        text(&page, "resize-status"),
        "Writers choose from 4 shards now."
    );

    all(many(40, || site.get("/watch/7")), StatusCode::OK).await;
    assert_eq!(site.total(7).await, total + 40);
}

pub async fn a_second_load_is_refused(site: &mut Started) {
    let before = site.total(7).await;
    let start = |mode| {
        site.post(
            "/admin/load",
            &format!("video=7&mode={mode}&writers=4&seconds=60"),
        )
    };
    answer(start("sharded"), StatusCode::SEE_OTHER).await;
    for mode in ["one-row", "all"] {
        let refused = answer(start(mode), StatusCode::CONFLICT).await;
        assert!(refused.contains("A load is running, and goes on; this one did not start."));
    }
    let began = Instant::now();
    eventually("the first one goes on", async || {
        let page = site.page("/admin").await;
        text(&page, "load-status") == "At work: Sharded, 1 of 1." && site.total(7).await > before
    })
    .await;
    site.restart(None).await; // which ends it
    assert!(began.elapsed().as_secs() < 50, "{:?}", began.elapsed());
    assert!(site.total(7).await > before);
}

pub async fn the_admin_page_is_live(site: &mut Started) {
    site.restart(Some(Duration::from_millis(200))).await;
    let mut events = send(site.get("/admin/events?video=7")).await;
    let first = next_event(&mut events).await;
    assert_eq!(first["load-status"], "Not run yet.");
    let start = site.post("/admin/load", "video=7&mode=coalesced&writers=8&seconds=5");
    answer(start, StatusCode::SEE_OTHER).await;
    let mut statuses = vec![];
    let last = loop {
        let event = next_event(&mut events).await;
        let status = event["load-status"].as_str().expect("text").to_owned();
        let is_over = status.starts_with("Finished: ");
        statuses.push(status);
        if is_over {
            break event;
        }
    };
    statuses.dedup();
    let [.., at_work, finished] = &statuses[..] else {
        panic!("{statuses:?}");
    };
    assert_eq!(at_work, "At work: Coalesced, 1 of 1.");
    assert_eq!(finished, "Finished: 8 writers for 5 seconds.");
    assert!(last["load-panel"].as_str().expect("HTML").contains("p99 "));
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

async fn next_event(events: &mut Response) -> serde_json::Value {
    let patience = Duration::from_secs(20);
    let mut text = String::new();
    loop {
        let chunk = tokio::time::timeout(patience, events.chunk()).await;
        let chunk = chunk
            .expect("an event in time")
            .expect("the stream goes on");
        text.push_str(std::str::from_utf8(&chunk.expect("an event")).expect("UTF-8"));
        if let Some(data) = text
            .strip_prefix("data: ")
            .and_then(|text| text.strip_suffix("\n\n"))
        {
            return serde_json::from_str(data).expect("JSON");
        }
        assert!(text.is_empty() || text.starts_with("data: "), "{text}");
    }
}

/// A connection is a file, twice where the client is in the same process.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let enough = 5_000;
    assert!(
        limit.maximum.is_none_or(|maximum| maximum >= enough),
        "allow more open files: ulimit -Hn {enough}"
    );
    if limit.current.is_some_and(|current| current < enough) {
        let raised = Rlimit {
            current: Some(enough),
            ..limit
        };
        setrlimit(Resource::Nofile, raised).expect("the limit of open files can be raised");
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
