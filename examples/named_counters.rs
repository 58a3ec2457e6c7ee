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

#[path = "support/library_tables.rs"]
mod library_tables;
mod support;

use std::process::ExitCode;
use std::sync::Barrier;

use diesel_sharded::Counter;
use library_tables::with_library_tables;
use support::{AnyConnection, Result, connect, join};

const THREADS: usize = 8;
const VISITORS: usize = 400;

/// All names begin with it, so that they clash with nobody else's.
const SITE: &str = "demo.example:";
const PAGES: [&str; 6] = ["/", "/about", "/blog", "/contact", "/jobs", "/press"];

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
    let start = Barrier::new(THREADS);
    let shards = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| serve(url, &start)))
            .collect();
        // The home page is busy: from now on more of its writers find a shard of their own.
        let shards = page("/").increase_shards(256, conn);
        threads.into_iter().try_for_each(join)?;
        Ok::<_, support::Error>(shards?)
    })?;
    let mut all_right = print_table(conn)?;

    let folded = page("/").fold(conn)?;
    let (base, total) = (page("/").estimate(conn)?, page("/").get(conn)?);
    println!(
        "fold: the base of / is {base}, its total still {total}; it had up to {shards} shards"
    );
    all_right &= folded.finished && base == total && total == expected("/");

    page("/jobs").set(1_000_000, conn)?;
    page("/jobs").increment(conn)?;
    let deleted = page("/press").delete(conn)?;
    let names = [signups(), page("/jobs"), page("/press"), page("/never")];
    let totals = Counter::get_many(&names.each_ref().map(Counter::name), conn)?;
    println!("set /jobs, delete /press; signups, /jobs, /press and /never are now {totals:?}");
    all_right &= deleted && totals == [(THREADS * VISITORS / 10) as i64, 1_000_001, 0, 0];

    if all_right {
        println!("nothing was lost");
    }
    Ok(all_right)
}

/// The application's own code. All threads begin at once, so that the first use of each counter is a race.
fn serve(url: &str, start: &Barrier) -> Result<()> {
    let conn = connect(url);
    start.wait();
    let conn = &mut conn?;
    for visitor in 0..VISITORS {
        page(visited_by(visitor)).increment(conn)?;
        if visitor % 10 == 0 {
            signups().increment(conn)?;
        }
    }
    Ok(())
}

fn signups() -> Counter {
    Counter::named(format!("{SITE}signups"))
}

fn page(path: &str) -> Counter {
    Counter::named(format!("{SITE}page:{path}"))
}

/// Every other visitor comes to the first page, every fourth to the second, and so on.
fn visited_by(visitor: usize) -> &'static str {
    PAGES[((visitor + 1).trailing_zeros() as usize).min(PAGES.len() - 1)]
}

fn expected(path: &str) -> i64 {
    let visits = (0..VISITORS).filter(|visitor| visited_by(*visitor) == path);
    (THREADS * visits.count()) as i64
}

/// Lists the pages' counters, four at a time; returns whether each has the value that was counted.
fn print_table(conn: &mut AnyConnection) -> Result<bool> {
    let prefix = format!("{SITE}page:");
    let mut list = Counter::list(&prefix).limit(4);
    let mut listed = 0;
    let mut all_right = true;
    loop {
        let counters = list.load(conn)?;
        let Some((last, _)) = counters.last() else {
            break;
        };
        for (name, total) in &counters {
            let path = &name[prefix.len()..];
            println!("  {path:<10} {total:>6} of {}", expected(path));
            all_right &= *total == expected(path);
        }
        listed += counters.len();
        list = list.after(last);
    }
    Ok(all_right && listed == PAGES.len())
}

fn delete_counters(conn: &mut AnyConnection) -> Result<()> {
    for counter in PAGES.map(page).iter().chain([&signups()]) {
        counter.delete(conn)?;
    }
    Ok(())
}
