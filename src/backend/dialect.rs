//! The family of SQL that a connection speaks.

/// The family of SQL that a connection speaks.
///
/// It is a value, not a type, so that an application's own `MultiConnection` enum can tell at run time which of its variants it
/// holds. Its methods are the capabilities of each database (`capabilities.rs`), and what follows from them. They know no policy: `classify`
/// says that an error is a deadlock, not what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    /// SQLite.
    Sqlite,
}

#[cfg(any(test, feature = "metrics"))]
impl Dialect {
    pub(crate) const ALL: [Dialect; 3] = [Dialect::Postgres, Dialect::Mysql, Dialect::Sqlite];
}

impl Dialect {
    /// This database's value: of PostgreSQL, MySQL and SQLite.
    pub(crate) const fn its<T>(self, values: &[T; 3]) -> &T {
        &values[self as usize]
    }
}
