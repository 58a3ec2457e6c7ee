//! A process that counts once, and then forks as a server does that forks its workers:
//!
//!     forked postgres|mysql|sqlite URL
//!
//! Each operation of counting is done by children at once, and has a line of output: its name, how many children ended well and what the
//! totals rose by, and what both should be. Then a child tries what its parent made before the fork,
//! and children count that were forked beside threads that count.
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
/// How often each child does it, each time with another key.
const KEYS: i64 = 50;

/// Connections to a server, which children make by themselves.
macro_rules! on_server {
    ($name:ident: $conn:ty) => {
        #[path = "."]
        mod $name {
            type Conn = $conn;
            const SETTINGS: &str = "SELECT 1";
            fn database_of_child(url: &str) -> &str {
                url
            }
            #[path = "inherited.rs"]
            pub mod inherited;
            #[path = "operations.rs"]
            pub mod operations;
            #[path = "storm.rs"]
            pub mod storm;
        }
    };
}

on_server!(postgres: diesel::PgConnection);
on_server!(mysql: diesel::MysqlConnection);

#[path = "."]
mod sqlite {
    type Conn = diesel::SqliteConnection;
    const SETTINGS: &str = "PRAGMA busy_timeout = 5000";
    /// A child cannot open a file that its parent had open at the fork.
    fn database_of_child(_: &str) -> &str {
        ":memory:"
    }
    #[path = "inherited.rs"]
    pub mod inherited;
    #[path = "operations.rs"]
    pub mod operations;
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
        "postgres" => {
            postgres::operations::count(url);
            postgres::inherited::inherit(url);
            postgres::storm::storm(url);
        }
        "mysql" => {
            mysql::operations::count(url);
            mysql::inherited::inherit(url);
            mysql::storm::storm(url);
        }
        _ => {
            sqlite::operations::count(url);
            sqlite::inherited::inherit(url);
        }
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
