//! A way to count: what each contender does.

use std::error::Error;

pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The function that a thread calls to count once on one row.
pub type Counting<'a, Conn> = Box<dyn FnMut(&mut Conn, i64) -> Outcome + 'a>;

/// One way to count.
pub trait Contender<Conn>: Sync {
    fn name(&self) -> &'static str;

    /// The SQL expression of the total so far.
    fn total(&self) -> String;

    /// The rows that each count adds one to.
    fn rows(&self) -> i64 {
        1
    }

    /// Returns one thread's function, and connects to servers other than the database if it needs any.
    fn counting(&self) -> Outcome<Counting<'_, Conn>>;

    /// Whether a count is in the database only after [`settle`](Self::settle), which then belongs to the time of the counts.
    fn is_buffered(&self) -> bool {
        false
    }

    /// Starts the background work.
    fn begin(&self) {}

    /// Waits until all counts are in the database, and ends the background work.
    fn settle(&self) {}
}

/// The SQL expression of the sum of all counts in a plain table.
pub fn total_of(table: &str) -> String {
    format!("(SELECT SUM(views) FROM {table})")
}

/// The SQL expression of the sum of all counts in a table and its shards.
pub fn total_of_shards(table: &str) -> String {
    format!(
        "((SELECT SUM(views) FROM {table}) + COALESCE((SELECT SUM(views) FROM {table}_shards), 0))"
    )
}
