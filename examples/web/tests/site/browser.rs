//! The site on SQLite, as people see it: in Chromium.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::browser::Browser;
use crate::support::{Started, eventually, send};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::trending::Decay;
use diesel_sharded_tests::Database;
use thirtyfour::prelude::*;

/// A site and a browser, for a test that has a time limit.
async fn look(test: impl AsyncFnOnce(&Started, &Browser)) {
    // The next day each visitor counts again: no test runs past midnight.
    let today = SystemTime::now().duration_since(UNIX_EPOCH);
    let left = 86_400 - today.expect("a time").as_secs() % 86_400;
    if left <= 130 {
        tokio::time::sleep(Duration::from_secs(left)).await;
    }
    let looked = tokio::time::timeout(Duration::from_secs(120), async {
        let mut site = Started::on(Database::in_file()).await;
        let browser = Browser::start().await;
        test(&site, &browser).await;
        browser.quit().await;
        site.stop().await;
    });
    looked.await.expect("the test ends within 2 minutes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_counts_once_in_two_tabs() {
    look(async |site, browser| {
        browser.open(site.url("/")).await;
        browser.click("a[href='/watch/7']").await;
        let views = browser.number("#views").await;
        assert_eq!(views, 3_541_121);

        let first = browser.driver.window().await.expect("a tab");
        let second = browser.driver.new_tab().await.expect("another tab");
        let switched = browser.driver.switch_to_window(second).await;
        switched.expect("it is there");
        browser.open(site.url("/watch/7")).await;
        assert_eq!(browser.number("#views").await, views);
        let says = browser.text(".lead").await;
        assert!(says.contains("a visitor counts once a day"), "{says}");
        browser.driver.delete_all_cookies().await.expect("none"); // somebody else
        browser.open(site.url("/watch/7")).await;
        assert_eq!(browser.number("#views").await, views + 1);
        let switched = browser.driver.switch_to_window(first).await;
        switched.expect("it is there");
        let is_live = async || browser.number("#views").await == views + 1;
        eventually("the first tab shows the second one's view", is_live).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn days_are_charted_and_what_is_new_is_hot() {
    look(async |site, browser| {
        // Days of which the chart shows one, and 16 views of three weeks ago, which are worth 2 points.
        let week = Duration::from_secs(7 * 86_400);
        let landmark = UNIX_EPOCH + Duration::from_secs(1_767_225_600); // 2026-01-01
        let weight = Decay::half_life(week, landmark).weight(SystemTime::now() - 3 * week);
        let hot = 16.0 * weight.expect("it is in range");
        let path = site.database.url();
        let mut conn = SqliteConnection::establish(path).expect("the site's file");
        let earlier = format!(
            "PRAGMA busy_timeout = 60000; UPDATE videos SET hot = {hot:e} WHERE id = 20;
             INSERT INTO video_days (video_id, day, views)
             VALUES (7, date('now', '-29 days'), 40), (7, date('now', '-30 days'), 1000)"
        );
        conn.batch_execute(&earlier).expect("it is written");
        for (video, visitors) in [(5, 1), (7, 3)] {
            for _ in 0..visitors {
                browser.driver.delete_all_cookies().await.expect("none");
                for _ in 0..2 {
                    browser.open(site.url(&format!("/watch/{video}"))).await;
                }
            }
        }

        let days = "[...document.querySelectorAll('.days rect')].map(day => day.textContent.split(': ')[1])";
        let days: Vec<String> = browser.eval(days).await;
        let mut expected = ["0 views"; 30];
        (expected[0], expected[29]) = ("40 views", "3 views");
        assert_eq!(days, expected);
        browser.click("a[href='/hot']").await;
        let hot = "[...document.querySelectorAll('.top li')].map(video => ['.title', '.number'].map(part => video.querySelector(part).textContent))";
        let hot: Vec<[String; 2]> = browser.eval(hot).await;
        assert_eq!(
            hot,
            [
                ["Elephants at the watering hole", "3.0 points"],
                ["Rain on a tin roof, ten hours", "2.0 points"],
                ["Why bridges sing in the wind", "1.0 points"],
            ]
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_like_is_given_by_a_key_and_taken_back_by_a_click() {
    look(async |site, browser| {
        browser.open(site.url("/watch/7")).await;
        let likes = browser.number("#likes").await;
        browser.press(Key::Tab).await;
        let skips = "document.activeElement.className == 'skip' && document.activeElement.getBoundingClientRect().top >= 0";
        assert!(browser.eval::<bool>(skips).await, "the link to the content is seen");
        browser.press(Key::Enter).await;
        browser.press(Key::Tab).await;
        let outline = "getComputedStyle(document.activeElement).outlineStyle == 'solid'";
        assert!(browser.eval::<bool>(outline).await, "the focus is seen");
        browser.press(Key::Space).await;
        let is_liked = async || browser.number("#likes").await == likes + 1;
        eventually("the key presses the button", is_liked).await;

        browser.open(site.url("/watch/7")).await;
        let pressed = "document.querySelector('.like button').getAttribute('aria-pressed') == 'true'";
        assert!(browser.eval::<bool>(pressed).await, "it is kept");
        browser.click(".like button").await;
        let is_unliked = async || browser.number("#likes").await == likes;
        eventually("it is taken back", is_unliked).await;
        assert!(!browser.eval::<bool>(pressed).await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_is_seen_and_a_fold_keeps_the_total() {
    look(async |site, browser| {
        browser.open(site.url("/admin")).await;
        let total = browser.number("#total").await;
        let seconds = browser.find("input[name=seconds]").await;
        seconds.clear().await.expect("it is empty");
        seconds.send_keys("1").await.expect("a number");
        assert_eq!(browser.text("#load-status").await, "Not run yet.");
        browser.click("button[value=all]").await;
        let is_over = async || browser.text("#load-status").await == "Finished.";
        eventually("all three ran", is_over).await;
        let counted = browser.number("#total").await;
        assert!(counted > total);
        browser.click("form[action='/admin/fold'] button").await;
        let is_folded = async || browser.text("#on-shards").await == "0";
        eventually("the fold is shown", is_folded).await;
        assert_eq!(browser.number("#base").await, counted);
        assert_eq!(browser.number("#total").await, counted);
    })
    .await;
}

/// The pictures are in `target/screenshots`, for people to look at.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_a_desktop_and_a_phone_in_light_and_in_dark() {
    look(async |site, browser| {
        for video in [7, 7, 7, 20, 20, 5] {
            site.page(&format!("/watch/{video}")).await;
        }
        send(site.post("/admin/load", "video=7&mode=all&writers=16&seconds=1")).await;
        let pages = [
            ("grid", "/"),
            ("top", "/top"),
            ("hot", "/hot"),
            ("watch", "/watch/7"),
            ("admin", "/admin"),
            ("missing", "/nothing"),
        ];
        for (width, scale) in [(1280, 1), (360, 2)] {
            for (scheme, ground) in [("light", "rgb(255, 255, 255)"), ("dark", "rgb(15, 17, 21)")] {
                browser.prefer(scheme).await;
                for (name, path) in pages {
                    browser.size(width, 800, scale).await;
                    browser.open(site.url(path)).await;
                    let of_page: u32 = browser.eval("document.documentElement.scrollWidth").await;
                    assert_eq!(of_page, width, "{path}");
                    let color: String = browser.eval("getComputedStyle(document.body).backgroundColor").await;
                    assert_eq!(color, ground, "{path}");
                    // Large enough to hit with a finger.
                    let small: Vec<String> = browser.eval(
                        "[...document.querySelectorAll('button, input:not([type=hidden]), select, nav a')]
                             .filter(control => control.getBoundingClientRect().height < 38).map(control => control.outerHTML)",
                    ).await;
                    assert!(small.is_empty(), "{path}: {small:?}");
                    // No text leaves the box that it is in.
                    let outside: Vec<String> = browser.eval(
                        "[...document.querySelectorAll('main *:not(svg *, .hidden, option)')].filter(element => {
                             if (element.getClientRects().length === 0) return false; // not shown
                             const [box, parent] = [element, element.parentElement].map(of => of.getBoundingClientRect());
                             return box.right > parent.right + 1 || box.left < parent.left - 1;
                         }).map(element => element.outerHTML)",
                    ).await;
                    assert!(outside.is_empty(), "{path} at {width}: {outside:?}");
                    // Rank, still and title stand side by side.
                    let under: i64 = browser.eval(
                        "[...document.querySelectorAll('.top li')].filter(row => {
                             const [rank, still, title] = ['.rank', '.still', '.title'].map(of => row.querySelector(of).getBoundingClientRect());
                             return rank.right > still.left || still.right > title.left || still.width < 90;
                         }).length",
                    ).await;
                    assert_eq!(under, 0, "{path} at {width}");
                    let height: u32 = browser.eval("document.documentElement.scrollHeight").await;
                    browser.size(width, height, scale).await;
                    browser.screenshot(&format!("{name}-{width}-{scheme}.png")).await;
                }
            }
        }
        // The browser reports each page that is not there, and nothing else.
        let complaints = browser.driver.browser_log().await.expect("a log");
        assert_eq!(complaints.len(), 4, "{complaints:?}");
    })
    .await;
}
