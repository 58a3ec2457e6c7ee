//! A process that counts once, and then forks as a server does that forks its workers:
//!
//!     forked postgres|mysql|sqlite URL
//!
//! Each operation of counting is done by children at once, and has a line of output: its name, how many children ended well and what the
//! totals rose by, and what both should be. Then a child tries what its parent made before the fork, and children count that were
//! forked beside threads that count, each alone or combined.
#![expect(
    clippy::duplicate_mod,
    reason = "the same operations run on every database"
)]

use std::io::{Read, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::exit;
use std::thread::sleep;
use std::time::{Duration, Instant};

use diesel_sharded::retry::RetryPolicy;
use fork::{Fork, ProcessId, Signal, WEXITSTATUS, WIFEXITED, signal_process, waitpid_nohang};

/// How many children do the same at once.
const CHILDREN: i64 = 4;
/// On how many videos each child does it.
const KEYS: i64 = 25;

/// Connections of one kind, which children make by themselves: what each begins with, and the database of a child.
macro_rules! on {
    ($($name:ident: $conn:ty, $settings:literal, $of_child:expr;)+) => {$(
        #[path = "."]
        mod $name {
            use diesel_sharded as api;

            type Conn = $conn;
            const SETTINGS: &str = $settings;
            const DATABASE_OF_CHILD: fn(&str) -> &str = $of_child;

            #[path = "../../../tests/operations/mod.rs"]
            #[expect(dead_code, reason = "what other programs use")]
            mod all;
            #[path = "combined.rs"]
            mod combined;
            #[path = "inherited.rs"]
            mod inherited;
            #[path = "operations.rs"]
            mod operations;
            #[path = "storm.rs"]
            mod storm;

            pub fn run(url: &str) {
                operations::count(url);
                inherited::inherit(url);
                combined::combine(url);
                if stringify!($name) != "sqlite" {
                    storm::storm(url, "forked beside threads that count", None);
                    let combiner = Some(api::combine::Combiner::new());
                    storm::storm(url, "forked beside threads that combine", combiner);
                }
            }
        }
    )+};
}

on! {
    postgres: diesel::PgConnection, "SELECT 1", |url| url;
    mysql: diesel::MysqlConnection, "SELECT 1", |url| url;
    // A child cannot open a file that its parent had open at the fork.
    sqlite: diesel::SqliteConnection, "PRAGMA busy_timeout = 5000", |_| ":memory:";
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, url] = arguments.as_slice() else {
        panic!("forked postgres|mysql|sqlite URL");
    };
    // Children have it from their parent.
    RetryPolicy::new()
        .with_attempts(u32::MAX)
        .with_deadline(Duration::from_secs(60))
        .set_global();
    match database.as_str() {
        "postgres" => postgres::run(url),
        "mysql" => mysql::run(url),
        _ => sqlite::run(url),
    }
}

/// Runs `work` in children, who call what they are given when they are ready: then they begin together.
/// How many have ended well.
fn in_children(work: impl Fn(&dyn Fn())) -> usize {
    let (waiting, mut begin) = pipe().expect("a pipe");
    let wait = || (&waiting).read_exact(&mut [0]).expect("a sign");
    let children: Vec<_> = (0..CHILDREN).map(|_| in_child(|| work(&wait))).collect();
    begin
        .write_all(&[0; CHILDREN as usize])
        .expect("a sign for each");
    children
        .into_iter()
        .filter(|child| ends_well(*child))
        .count()
}

/// Runs `work` in a child, and returns the child's id.
fn in_child(work: impl FnOnce()) -> i32 {
    match fork::fork().expect("a child") {
        Fork::Parent(child) => child,
        Fork::Child => exit(catch_unwind(AssertUnwindSafe(work)).is_err().into()),
    }
}

/// Waits for a child; one that never ends is killed.
fn ends_well(child: i32) -> bool {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match waitpid_nohang(child).expect("a status") {
            Some(status) => return WIFEXITED(status) && WEXITSTATUS(status) == 0,
            None if Instant::now() < until => sleep(Duration::from_millis(1)),
            None => {
                let child = ProcessId::try_from(child).expect("an id");
                signal_process(child, Signal::KILL).expect("a signal");
                return false;
            }
        }
    }
}
