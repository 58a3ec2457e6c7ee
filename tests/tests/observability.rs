//! Tracing spans and events, and metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Barrier, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::cached::{CacheError, Cached, CachedCounter, MokaCache};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::combine::Combiner;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{
    Error, MIGRATIONS, RowCounter, ShardsTable, fold, observability::describe_metrics, update,
};
use diesel_sharded_tests::documents::documented;
use diesel_sharded_tests::refusing::Refusing;
use diesel_sharded_tests::{Database, TestConnection, assert_matches, conflict, pool, until};
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, SpanRef};
use tracing_subscriber::{Layer, Registry};

mod schema {
    diesel_sharded_tests::counted_table! {
        /// One shard, so that two writers are too many.
        #[sharded(shards = 1)]
        Seat of seats (code) {
            code -> Text = String,
            #[sharded] taken -> BigInt = i64,
        }
    }
}
use schema::seats::dsl::*;

/// A key and an amount that occur nowhere else in the output.
const MARKER: &str = "x7-marker-x7";
const AMOUNT: i64 = 773_317_733;

/// A span or an event that was recorded.
#[derive(Debug, Clone)]
struct Told {
    name: String,
    is_span: bool,
    level: Level,
    parent: Option<usize>,
    declared: BTreeSet<String>,
    fields: BTreeMap<String, String>,
}

impl Told {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// The fields of these names.
    fn fields<const N: usize>(&self, names: [&str; N]) -> [Option<&str>; N] {
        names.map(|name| self.field(name))
    }
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// Records all spans and events of this crate.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Told>>>);

/// The number of a recorded span.
struct Number(usize);

impl Recorder {
    fn add<'a, S: LookupSpan<'a>>(
        &self,
        metadata: &Metadata<'_>,
        parent: Option<SpanRef<'a, S>>,
        record: impl FnOnce(&mut Fields),
    ) -> Number {
        let mut fields = BTreeMap::new();
        record(&mut Fields(&mut fields));
        let name = match metadata.is_span() {
            true => metadata.name().to_owned(),
            false => fields.remove("message").unwrap_or_default(),
        };
        let declared = metadata
            .fields()
            .iter()
            .map(|field| field.name().to_owned());
        let mut told = self.0.lock().unwrap();
        told.push(Told {
            name,
            is_span: metadata.is_span(),
            level: *metadata.level(),
            parent: parent.map(|span| number(&span)),
            declared: declared.filter(|name| name != "message").collect(),
            fields,
        });
        Number(told.len() - 1)
    }

    /// A subscriber that records here.
    fn subscriber(&self) -> impl Subscriber + Send + Sync + use<> {
        let of_this_crate = Targets::new().with_target("diesel_sharded", Level::TRACE);
        Registry::default().with(of_this_crate).with(self.clone())
    }

    fn told(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }
}

fn number<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> usize {
    let extensions = span.extensions();
    extensions.get::<Number>().expect("it was recorded").0
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).expect("it is new");
        let number = self.add(attributes.metadata(), span.parent(), |fields| {
            attributes.record(fields)
        });
        span.extensions_mut().insert(number);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let number = number(&context.span(id).expect("it is open"));
        values.record(&mut Fields(&mut self.0.lock().unwrap()[number].fields));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        self.add(event.metadata(), context.event_span(event), |fields| {
            event.record(fields)
        });
    }
}

/// The recorders of threads that have none of their own. They are set before anything else: tracing may lose a span that is
/// met for the first time while the first subscriber is being set.
static THE_REST: LazyLock<(Recorder, Snapshotter)> = LazyLock::new(|| {
    let (recorder, metrics) = (Recorder::default(), DebuggingRecorder::new());
    let snapshotter = metrics.snapshotter();
    tracing::subscriber::set_global_default(recorder.subscriber()).unwrap();
    metrics.install().unwrap();
    (recorder, snapshotter)
});

/// The spans, events and metrics that `work` records on this thread.
fn told_by<T>(work: impl FnOnce() -> T) -> (T, Vec<Told>, Snapshotter) {
    let (recorder, metrics) = (Recorder::default(), DebuggingRecorder::new());
    let snapshotter = metrics.snapshotter();
    let done = tracing::subscriber::with_default(recorder.subscriber(), || {
        metrics::with_local_recorder(&metrics, work)
    });
    (done, recorder.told(), snapshotter)
}

/// Counters as `name{label=value,…}`.
fn counters(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let recorded = snapshotter.snapshot().into_vec().into_iter();
    recorded
        .filter_map(|(key, _, _, value)| {
            let DebugValue::Counter(value) = value else {
                return None;
            };
            let labels = key.key().labels();
            let labels: Vec<_> = labels
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            Some((
                format!("{}{{{}}}", key.key().name(), labels.join(",")),
                value,
            ))
        })
        .collect()
}

fn spans<'a>(told: &'a [Told], name: &str) -> Vec<&'a Told> {
    told.iter()
        .filter(|t| t.is_span && t.name == name)
        .collect()
}

/// The only span of this name.
fn span<'a>(told: &'a [Told], name: &str) -> &'a Told {
    match spans(told, name)[..] {
        [span] => span,
        _ => panic!("{told:?}"),
    }
}

/// The name of a counter with these labels.
fn total(name: &str, labels: &[&str]) -> String {
    format!("diesel_sharded_{name}_total{{{}}}", labels.join(","))
}

/// The name of the span that a span or an event is in.
fn parent<'a>(told: &'a [Told], of: &Told) -> Option<&'a str> {
    of.parent.map(|parent| told[parent].name.as_str())
}

fn set_up<Conn>(conn: &mut Conn)
where
    Conn: SimpleConnection,
{
    conn.batch_execute(&format!(
        "CREATE TABLE seats (code VARCHAR(64) PRIMARY KEY, taken BIGINT NOT NULL DEFAULT 0);
         INSERT INTO seats (code) VALUES ('{MARKER}'), ('other');"
    ))
    .unwrap();
}

macro_rules! on {
    ($database:ident, $conn:ty, $backend:literal, $impatient:literal, $conflict:literal) => {
        mod $database {
            use super::*;

            type Conn = $conn;

            const OF: &str = concat!("backend=", $backend, ",table=seats_shards");

            /// Two connections that do not wait for each other for long.
            fn connect() -> (Database, Conn, Conn) {
                LazyLock::force(&THE_REST);
                let database = Conn::database();
                let mut conns = [Conn::connect(&database), Conn::connect(&database)];
                set_up(&mut conns[0]);
                ShardsTable::of(seats).create(&mut conns[0]).unwrap();
                for conn in &mut conns {
                    conn.batch_execute($impatient).unwrap();
                }
                let [one, other] = conns;
                (database, one, other)
            }

            fn count(conn: &mut Conn) -> QueryResult<usize> {
                update(seats.find(MARKER))
                    .set(taken.eq(taken + AMOUNT))
                    .shard_choice(ShardChoice::Striped)
                    .retry(RetryPolicy::new().with_attempts(2))
                    .execute(conn)
            }

            /// Counts on one connection while a transaction on another holds the shards: not by this crate, which would tell of it.
            fn count_beside_a_lock(conn: &mut Conn, other: &mut Conn) -> QueryResult<usize> {
                let held = other.transaction(|other| {
                    let lock = diesel::sql_query("UPDATE seats_shards SET taken = taken");
                    lock.execute(other)?;
                    QueryResult::Ok(count(conn))
                });
                held.unwrap()
            }

            #[test]
            fn an_update_is_a_span_with_its_attempts_and_statements() {
                let (_database, mut conn, _other) = connect();
                let (counted, told, numbers) = told_by(|| count(&mut conn));
                assert_eq!(counted, Ok(1));
                let update = span(&told, "update");
                let fields = ["backend", "table", "attempts", "rows", "outcome"];
                let expected = [$backend, "seats_shards", "1", "1", "ok"];
                assert_eq!(update.fields(fields), expected.map(Some));
                assert_eq!(update.field("conflict"), None);
                let attempt = span(&told, "attempt");
                assert_eq!(parent(&told, attempt), Some("update"));
                let fields = attempt.fields(["attempt", "shard"]);
                assert_eq!(fields, [Some("1"), Some("0")]);
                let statements = spans(&told, "statement");
                let kinds = statements
                    .iter()
                    .map(|s| (s.field("kind").unwrap(), s.field("rows")));
                let created = [("create", Some("1")), ("count_by_key", Some("1"))];
                let mut expected = vec![("count_by_key", Some("0"))];
                match $backend {
                    "postgresql" => expected.extend(created),
                    _ => {
                        expected.push(("begin", None));
                        expected.extend(created);
                        expected.push(("commit", None));
                    }
                }
                assert_eq!(kinds.collect::<Vec<_>>(), expected);
                for statement in statements {
                    assert_eq!(parent(&told, statement), Some("attempt"));
                }
                let (again, told, again_numbers) = told_by(|| count(&mut conn));
                assert_eq!((again, spans(&told, "statement").len()), (Ok(1), 1));
                let updates = total("updates", &[OF, "outcome=ok"]);
                let mut expected = BTreeMap::from([(updates, 1), (total("attempts", &[OF]), 1)]);
                assert_eq!(counters(&again_numbers), expected);
                expected.insert(total("shards_created", &[OF]), 1);
                assert_eq!(counters(&numbers), expected);
            }

            #[test]
            fn a_conflict_shows_its_kind() {
                let (_database, mut conn, mut other) = connect();
                count(&mut conn).unwrap();
                let (counted, told, numbers) =
                    told_by(|| count_beside_a_lock(&mut conn, &mut other));
                let error = Error::from(counted.unwrap_err());
                assert_matches!(error, Error::ConflictPersisted { attempts: 2, .. });
                let fields = ["attempts", "conflict", "outcome", "rows"];
                let fields = span(&told, "update").fields(fields);
                assert_eq!(fields, [Some("2"), Some($conflict), Some("error"), None]);
                let attempts = spans(&told, "attempt").into_iter();
                let attempts = attempts.map(|attempt| attempt.fields(["attempt", "conflict"]));
                let expected = ["1", "2"].map(|attempt| [Some(attempt), Some($conflict)]);
                assert_eq!(attempts.collect::<Vec<_>>(), expected);
                let conflicts: Vec<_> = told
                    .iter()
                    .filter(|told| !told.is_span && told.name == "conflict")
                    .map(|told| (told.field("attempt"), told.field("delay_ms").is_some()))
                    .collect();
                assert_eq!(conflicts, [(Some("1"), true), (Some("2"), false)]);
                let numbers = counters(&numbers);
                let conflict = concat!("conflict=", $conflict);
                for (name, number) in [
                    (total("updates", &[OF, "outcome=error"]), 1),
                    (total("attempts", &[OF]), 2),
                    (total("conflicts", &[OF, conflict]), 2),
                ] {
                    assert_eq!(numbers.get(&name), Some(&number), "{name}: {numbers:?}");
                }
            }

            #[test]
            fn a_transaction_that_is_tried_again_holds_its_updates() {
                let (_database, mut conn, _other) = connect();
                let (counted, told, numbers) = told_by(|| {
                    let mut attempts = 0;
                    retry::transaction(&mut conn, RetryPolicy::default(), |conn| {
                        attempts += 1;
                        count(conn)?;
                        match attempts {
                            1 => Err(conflict()),
                            _ => Ok(()),
                        }
                    })
                });
                assert_eq!(counted, Ok(()));
                let transaction = span(&told, "transaction");
                let fields = transaction.fields(["backend", "kind", "attempts", "outcome"]);
                assert_eq!(fields, [$backend, "closure", "2", "ok"].map(Some));
                assert!(transaction.field("conflict").is_some());
                let updates = spans(&told, "update");
                assert_eq!(updates.len(), 2);
                for update in updates {
                    let attempt = &told[update.parent.unwrap()];
                    assert_eq!(attempt.name, "attempt");
                    assert_eq!(parent(&told, attempt), Some("transaction"));
                }
                let of = concat!("backend=", $backend, ",kind=closure");
                let name = total("transaction_attempts", &[of]);
                assert_eq!(counters(&numbers).get(&name), Some(&2));
            }

            #[test]
            fn neither_keys_nor_amounts_are_told_at_info() {
                let (_database, mut conn, mut other) = connect();
                let (_, told, _) = told_by(|| {
                    count(&mut conn).unwrap();
                    update(seats.filter(code.eq(MARKER).and(taken.lt(AMOUNT))))
                        .set(taken.eq(taken + AMOUNT))
                        .returning((code, taken))
                        .get_results::<(String, i64)>(&mut conn)
                        .unwrap();
                    let overflow = update(seats.find(MARKER))
                        .set(taken.eq(taken + i64::MAX))
                        .execute(&mut conn);
                    assert!(overflow.is_err());
                    count_beside_a_lock(&mut conn, &mut other).unwrap_err();
                    fold(seats.find(MARKER)).run(&mut conn).unwrap();
                    use_broken_caches(&mut conn);
                });
                let at_info: Vec<_> = told.iter().filter(|t| t.level <= Level::INFO).collect();
                for what in ["update", "fold", "folded", "transaction"] {
                    assert!(at_info.iter().any(|told| told.name == what), "{what}");
                }
                let secrets = [MARKER.to_owned(), AMOUNT.to_string(), i64::MAX.to_string()];
                let tells = |told: &Told| {
                    let text = format!("{told:?}");
                    secrets.iter().any(|secret| text.contains(secret))
                };
                assert!(!at_info.iter().any(|told| tells(told)), "{at_info:#?}");
                // At DEBUG the cache's error has the key, so that this would see it.
                assert!(told.iter().any(tells));
            }
        }
    };
}

on!(
    sqlite,
    SqliteConnection,
    "sqlite",
    "PRAGMA busy_timeout = 0",
    "busy"
);
on!(
    postgres,
    PgConnection,
    "postgresql",
    "SET lock_timeout = 50",
    "lock_timeout"
);

/// Reads from a cache whose errors name the key, and counts through one that is not there.
fn use_broken_caches<Conn: Connection>(conn: &mut Conn) {
    let not_a_total = Refusing(|key: &str| CacheError::NotATotal {
        key: key.to_owned(),
        source: "somebody else's".into(),
    });
    Cached::new(not_a_total).get(&Seat, conn).unwrap();
    let unavailable = Refusing(|_: &str| CacheError::Unavailable {
        source: MARKER.into(),
    });
    Cached::new(unavailable).add(&Seat, 1, conn).unwrap();
}

/// Runs everything that records a span, an event or a metric.
fn everything() {
    type Conn = PgConnection;
    let database = Conn::database();
    let url = format!("{}?options=-c%20lock_timeout%3D50", database.url());
    let connect = || Conn::establish(&url).unwrap();
    let (mut conn, mut other) = (connect(), connect());
    set_up(&mut conn);
    ShardsTable::of(seats).create(&mut conn).unwrap();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let count = |conn: &mut Conn| {
        update(seats.find(MARKER))
            .set(taken.eq(taken + 1))
            .retry(RetryPolicy::new().with_attempts(2))
            .execute(conn)
    };
    count(&mut conn).unwrap();
    // Two writers for one shard, and the second one meets the first.
    retry::transaction(&mut conn, RetryPolicy::default(), |conn| {
        count(conn)?;
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                assert!(count(&mut other).is_err());
                retry::transaction(&mut other, RetryPolicy::new().with_attempts(2), count)
                    .unwrap_err();
            });
            second.join().unwrap();
        });
        QueryResult::Ok(())
    })
    .unwrap();
    fold(seats).keep_shards(0).run(&mut conn).unwrap();
    fold_without_a_connection();
    coalesce(&url);
    combine(database.url(), &mut other);
    cache(&mut conn);
}

fn fold_without_a_connection() {
    let folder = fold(seats)
        .every(Duration::from_millis(10))
        .start(|| Err::<PgConnection, _>("no connection is left"))
        .unwrap();
    until("a pass has failed", || folder.stats().failed_passes > 0);
}

fn coalesce(url: &str) {
    let coalescer = Coalescer::new(pool::<PgConnection>(url)).unwrap();
    let seat = RowCounter::of(taken, MARKER.to_owned());
    coalescer.add_later(&seat, 2).unwrap();
    coalescer.flush().unwrap();
    coalescer.add_later(&seat, i64::MAX).unwrap();
    assert!(coalescer.close().is_err());
}

fn combine(url: &str, other: &mut PgConnection) {
    let combiner = Combiner::new();
    until("callers have combined", || {
        // More callers than may lead, none of whom can count before the lock is free.
        other
            .batch_execute(
                "BEGIN; UPDATE seats_shards SET taken = taken; SELECT FROM seats FOR UPDATE",
            )
            .unwrap();
        let mut conns: Vec<_> = (0..24)
            .map(|_| PgConnection::establish(url).unwrap())
            .collect();
        let callers = Barrier::new(conns.len() + 1);
        thread::scope(|scope| {
            for conn in &mut conns {
                scope.spawn(|| {
                    let seat = RowCounter::of(taken, MARKER.to_owned()).combine(&combiner);
                    callers.wait();
                    assert_eq!(seat.add(1, conn), Ok(1));
                });
            }
            callers.wait();
            thread::sleep(Duration::from_millis(100));
            other.batch_execute("ROLLBACK").unwrap();
        });
        let numbers = counters(&THE_REST.1);
        let mut names = numbers.keys();
        names.any(|name| name.starts_with("diesel_sharded_combined_total"))
    });
    let all = update(seats).set(taken.eq(taken + 1)).combine(&combiner);
    assert!(all.execute(other).is_ok_and(|rows| rows > 0));
}

/// A seat of which nobody asks the database.
struct Seat;

impl<Conn> CachedCounter<Conn> for Seat {
    fn cache_key(&self) -> String {
        MARKER.to_owned()
    }

    fn read(&self, _: &mut Conn) -> QueryResult<i64> {
        Ok(1)
    }

    fn add(&self, _: i64, _: &mut Conn) -> QueryResult<usize> {
        Ok(1)
    }
}

fn cache(conn: &mut PgConnection) {
    let cached = Cached::new(MokaCache::new(10));
    cached.get(&Seat, conn).unwrap();
    cached.get(&Seat, conn).unwrap();
    conn.transaction(|conn| cached.get(&Seat, conn)).unwrap();
    use_broken_caches(conn);
}

#[test]
fn what_is_documented_is_what_is_told() {
    let (recorder, snapshotter) = &*THE_REST;
    describe_metrics();
    everything();

    let mut metrics = BTreeMap::new();
    for (key, unit, description, _) in snapshotter.snapshot().into_vec() {
        let kind = match key.kind() {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels: BTreeSet<_> = key.key().labels().map(|l| l.key().to_owned()).collect();
        let metric = key.key().name().to_owned();
        assert!(unit.is_some() && description.is_some(), "{metric}");
        let known = metrics.insert(metric.clone(), (kind.to_owned(), labels.clone()));
        if let Some(known) = known {
            assert_eq!(
                known,
                (kind.to_owned(), labels),
                "{metric}: the same labels always"
            );
        }
    }
    assert_eq!(metrics, documented(&["counter", "gauge", "histogram"]));

    let mut spans_and_events = BTreeMap::new();
    for told in recorder.told() {
        let level = told.level.to_string();
        let fields = spans_and_events
            .entry(told.name)
            .or_insert_with(|| (level.clone(), BTreeSet::new()));
        assert_eq!(fields.0, level);
        fields.1.extend(told.declared);
    }
    let documented = documented(&["ERROR", "WARN", "INFO", "DEBUG", "TRACE"]);
    assert_eq!(spans_and_events, documented);
}
