//! A contender's way to run the update of one shape.

use diesel::QueryResult;

use crate::contender::{Contender, Counting, Outcome};

/// The function that runs one update and returns the number of rows.
pub type Count<Conn> = Box<dyn Fn(&mut Conn) -> QueryResult<usize> + Send + Sync>;

/// A contender that counts the same rows each time.
pub struct Way<Conn> {
    pub name: &'static str,
    pub total: &'static str,
    /// The rows that each update counts.
    pub rows: i64,
    pub count: Count<Conn>,
}

impl<Conn> Contender<Conn> for Way<Conn> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn total(&self) -> Option<String> {
        Some(self.total.to_owned())
    }

    fn rows(&self) -> i64 {
        self.rows
    }

    fn counting(&self) -> Outcome<Counting<'_, Conn>> {
        Ok(Box::new(|conn, _| match (self.count)(conn)? {
            rows if rows as i64 == self.rows => Ok(()),
            rows => Err(format!("it counted {rows} rows").into()),
        }))
    }
}
