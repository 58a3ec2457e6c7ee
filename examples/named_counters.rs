//! The statistics of a small web site without a table of its own: it counts under names that nobody has created.
//!
//! ```sh
//! cargo run --example named_counters
//! DATABASE_URL=postgres://user@localhost/database cargo run --example named_counters --features postgres
//! DATABASE_URL=mysql://user@127.0.0.1/database cargo run --example named_counters --features mysql
//! ```
//!
//! Without `DATABASE_URL` it runs on a SQLite file in the temporary folder. It leaves behind neither counters nor, where it
//! had to create them, the library's tables.

mod support;

use std::process::ExitCode;

use diesel_sharded::Counter;
use support::{AnyConnection, Result, connect, in_threads, with_library_tables};

const THREADS: i64 = 8;
const VISITORS: i64 = 400;

/// All names begin with it, so that they clash with nobody else's.
const SITE: &str = "demo.example:";
const PAGES: [&str; 4] = ["/", "/about", "/blog", "/jobs"];

fn main() -> Result<ExitCode> {
    support::run("named_counters", &[], |url, conn| {
        with_library_tables(conn, |conn| {
            delete_counters(conn)?; // of a run that was interrupted
            let all_right = statistics(url, conn);
            delete_counters(conn)?;
            all_right
        })
    })
}

fn statistics(url: &str, conn: &mut AnyConnection) -> Result<bool> {
    println!("{THREADS} threads serve {VISITORS} visitors each; none of these counters exists yet");
    in_threads(THREADS, |_| serve(url))?;

    let mut all_right = true;
    for (name, total) in Counter::list(SITE).load(conn)? {
        let path = &name[SITE.len()..];
        println!("  {path:<10} {total:>6} of {}", expected(path));
        all_right &= total == expected(path);
    }
    page("/jobs").set(1_000_000, conn)?;
    let names = ["/", "/jobs", "/never"].map(page);
    let totals = Counter::get_many(&names.each_ref().map(Counter::name), conn)?;
    println!("/jobs is set; /, /jobs and /never are now {totals:?}");
    Ok(all_right && totals == [expected("/"), 1_000_000, 0])
}

/// The application's own code. The first use of each counter is a race.
fn serve(url: &str) -> Result<()> {
    let conn = &mut connect(url)?;
    for visitor in 0..VISITORS {
        page(visited_by(visitor)).increment(conn)?;
    }
    Ok(())
}

fn page(path: &str) -> Counter {
    Counter::named(format!("{SITE}{path}"))
}

/// Every other visitor comes to the first page, every fourth to the second, and so on.
fn visited_by(visitor: i64) -> &'static str {
    PAGES[((visitor + 1).trailing_zeros() as usize).min(PAGES.len() - 1)]
}

fn expected(path: &str) -> i64 {
    let visits = (0..VISITORS).filter(|visitor| visited_by(*visitor) == path);
    THREADS * visits.count() as i64
}

fn delete_counters(conn: &mut AnyConnection) -> Result<()> {
    for counter in PAGES.map(page) {
        counter.delete(conn)?;
    }
    Ok(())
}
