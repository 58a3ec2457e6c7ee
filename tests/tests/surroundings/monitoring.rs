//! The dashboard and the alerts in docs/operations: their metrics and labels exist, Prometheus understands their queries, and
//! the queries have results where the library was used.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::cached::{Cached, MokaCache};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::combine::Combiner;
use diesel_sharded::observability::describe_metrics;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{RowCounter, fold, update};
use diesel_sharded_tests::documents::{self, file, read};
use diesel_sharded_tests::fixture::Fixture;
use diesel_sharded_tests::prometheus::{Prometheus, promtool};
use diesel_sharded_tests::schema::videos::{self, dsl::*};
use diesel_sharded_tests::{Database, count, pool, until};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::Value;

/// The queries of the dashboard, as Grafana sends them where all tables are chosen.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("docs/operations/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let queries = targets.map(|target| target["expr"].as_str().expect("a query"));
    let queries = queries.map(|query| {
        query
            .replace("$__rate_interval", "1m")
            .replace("$table", ".*")
    });
    queries.collect()
}

/// The expressions of the alerts, which stand on the lines below `expr:`.
fn alerts() -> Vec<String> {
    let rules = read("docs/operations/alerts.yml");
    let expressions = rules.split("expr: >-\n").skip(1).map(|rest| {
        let lines = rest
            .lines()
            .take_while(|line| line.starts_with("          "));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    });
    expressions.collect()
}

/// The documented metrics, with their labels.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let metrics = documents::documented(&["counter", "gauge", "histogram"]).into_iter();
    let metrics = metrics.flat_map(|(name, (kind, labels))| match &*kind {
        "histogram" => {
            let parts = ["_sum", "_count"].map(|part| (name.clone() + part, labels.clone()));
            let mut quantiles = labels.clone();
            quantiles.insert("quantile".into());
            let mut all = parts.to_vec();
            all.push((name, quantiles));
            all
        }
        _ => vec![(name, labels)],
    });
    metrics.collect()
}

fn is_of_a_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The metrics of a query.
fn metrics_of(query: &str) -> BTreeSet<&str> {
    let words = query.split(|c| !is_of_a_word(c));
    words
        .filter(|word| word.starts_with("diesel_sharded_"))
        .collect()
}

/// The words of PromQL in these queries.
const PROMQL: [&str; 9] = [
    "and", "by", "increase", "max", "offset", "or", "rate", "sum", "unless",
];

/// Each word of a query is a metric, a label of one of its metrics, or a word of PromQL; and each metric stands in a query.
#[test]
fn metrics_and_labels_exist() {
    let documented = documented();
    let queries = [dashboard(), alerts()].concat();
    assert!(queries.len() > 25, "{queries:?}");
    let mut used = BTreeSet::new();
    for query in &queries {
        let metrics = metrics_of(query);
        let labels = metrics.iter().flat_map(|metric| {
            let labels = documented.get(*metric);
            labels.unwrap_or_else(|| panic!("no metric {metric}: {query}"))
        });
        let labels: BTreeSet<_> = labels.map(String::as_str).collect();
        let outside_of_quotes = query.split('"').step_by(2);
        for word in outside_of_quotes.flat_map(|part| part.split(|c| !is_of_a_word(c))) {
            let is_known =
                metrics.contains(word) || labels.contains(word) || PROMQL.contains(&word);
            let is_number = word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit());
            assert!(is_known || is_number, "no {word}: {query}");
        }
        // The sum and the count of a histogram stand for it.
        let names = ["_sum", "_count"];
        let base = |metric: &&str| {
            names
                .iter()
                .fold(*metric, |m, end| m.trim_end_matches(end))
                .to_owned()
        };
        used.extend(metrics.iter().map(base));
    }
    let ends = |metric: &str| metric.ends_with("_sum") || metric.ends_with("_count");
    let unused: Vec<_> = documented
        .keys()
        .filter(|metric| !ends(metric) && !used.contains(*metric))
        .collect();
    assert!(unused.is_empty(), "on no dashboard: {unused:?}");
}

#[test]
fn alerts_fire_where_they_should() {
    let test = file("tests/tests/surroundings/monitoring/alerts_test.yml");
    let ran = Command::new(promtool())
        .args(["test", "rules"])
        .arg(test)
        .output()
        .expect("promtool starts");
    assert!(ran.status.success(), "{ran:?}");
}

/// Metrics that only the other tests of this process may have: nothing is lost here, no cache fails, no shard is crowded.
const RARE: [&str; 3] = [
    "diesel_sharded_cache_failures_total",
    "diesel_sharded_coalescer_losses_total",
    "diesel_sharded_crowded_total",
];

/// Uses most of the library once.
fn use_it(database: &Database, conn: &mut SqliteConnection, other: &mut SqliteConnection) {
    let views_of_1 = RowCounter::of(videos::views, 1);
    let count_2 = |conn: &mut SqliteConnection| {
        let count = update(videos.find(2)).set(views.eq(views + 1));
        count.execute(conn)
    };
    count!(videos.find(1), views.eq(views + 1), conn);
    retry::transaction(conn, RetryPolicy::new(), count_2).unwrap();

    let coalescer = Coalescer::new(pool::<SqliteConnection>(database.url())).unwrap();
    coalescer.add_later(&views_of_1, 1).unwrap();
    coalescer.close().unwrap();

    let cached = Cached::new(MokaCache::new(10));
    cached.get(&views_of_1, conn).unwrap();
    fold(videos).run(conn).unwrap();

    let url = database.url().to_owned();
    let folder = fold(videos)
        .every(Duration::from_millis(20))
        .start(move || SqliteConnection::establish(&url))
        .unwrap();
    until("it has folded twice", || folder.stats().passes >= 2);
    drop(folder);

    // Both meet a lock that nobody releases in time.
    conn.batch_execute("PRAGMA busy_timeout = 1").unwrap();
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    let twice = RetryPolicy::new().with_attempts(2);
    let refused = update(videos.find(1)).set(views.eq(views + 1));
    refused.retry(twice.clone()).execute(conn).unwrap_err();
    retry::transaction(conn, twice, count_2).unwrap_err();
    other.batch_execute("ROLLBACK").unwrap();
    conn.batch_execute("PRAGMA busy_timeout = 5000").unwrap();
}

#[test]
fn a_prometheus_answers_all_queries() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder).expect("no other test has a recorder");
    describe_metrics();

    let own = &mut Fixture::<SqliteConnection, 2>::with_counters();
    let (database, [conn, other]) = own.parts();
    use_it(database, conn, other);
    let combiner = Combiner::new();
    until("callers have combined", || {
        thread::scope(|scope| {
            for conn in [&mut *conn, &mut *other] {
                let count = update(videos.find(1)).set(views.eq(views + 1));
                let count = count.combine(&combiner);
                scope.spawn(move || assert_eq!(count.execute(conn), Ok(1)));
            }
        });
        metrics.render().contains("diesel_sharded_combined_total")
    });
    let by_slug = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
    assert_eq!(by_slug.combine(&combiner).execute(conn), Ok(1));

    let rendered = metrics.clone();
    let render = move || {
        rendered.run_upkeep();
        rendered.render()
    };
    let prometheus = Prometheus::start(render, &file("docs/operations/alerts.yml"));

    let page = metrics.render();
    for metric in documented().keys() {
        let is_there =
            page.contains(&format!("\n{metric}{{")) || page.contains(&format!("\n{metric} "));
        assert!(is_there || RARE.contains(&&**metric), "{metric}: {page}");
    }
    // A rate needs two scrapes.
    until("it has scraped twice", || {
        has_result(&prometheus.query("rate(diesel_sharded_updates_total[1m])"))
    });
    for query in [dashboard(), alerts()].concat() {
        let answer = prometheus.query(&query);
        assert!(answer.contains("\"success\""), "{query}: {answer}");
    }
    for query in dashboard() {
        let is_rare = metrics_of(&query)
            .iter()
            .any(|metric| RARE.contains(metric));
        let answer = prometheus.query(&query);
        assert!(has_result(&answer) || is_rare, "{query}: {answer}");
    }
}

fn has_result(answer: &str) -> bool {
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    let result = answer["data"]["result"].as_array();
    !result.unwrap_or_else(|| panic!("{answer}")).is_empty()
}
