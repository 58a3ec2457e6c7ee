//! The errors of the crate.

use std::error::Error as StdError;
use std::time::Duration;

use diesel::result::{DatabaseErrorKind, Error as DieselError};

use crate::conflict::Conflict;
use crate::unfit::Unfit;

/// The reason why an increment or another operation failed, or may have failed.
///
/// It converts from and to [`diesel::result::Error`], so `?` works in functions that return a
/// [`QueryResult`](diesel::QueryResult) and in closures of `conn.transaction(..)`. The conversion back loses nothing:
///
/// ```
/// # use std::time::Duration;
/// use diesel_sharded::Error;
///
/// fn report(error: diesel::result::Error) -> String {
///     match Error::from(error) {
///         Error::OutcomeUnknown { .. } => "may have been counted: look first".into(),
///         Error::ConflictPersisted { attempts, .. } => {
///             format!("still contended after {attempts} attempts")
///         }
///         other => other.to_string(),
///     }
/// }
/// # assert_eq!(report(diesel::NotFound), "Record not found");
/// # let lost = Error::OutcomeUnknown { source: diesel::NotFound };
/// # assert!(report(lost.into()).starts_with("may have been counted"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every attempt ended in a conflict, until the policy's attempts or its deadline ran out. Nothing was changed.
    #[error(
        "nothing was changed: {conflict} in the last of {attempts} attempts within {elapsed:?}; \
         allow more attempts or a later deadline, or {} ({source})",
        what_else_helps(*conflict)
    )]
    ConflictPersisted {
        /// The conflict that ended the last attempt.
        conflict: Conflict,
        /// The number of attempts, at least 1.
        attempts: u32,
        /// The time from the first attempt's start to the last one's end. For a caller that [combines](crate::combine), its whole wait.
        elapsed: Duration,
        /// The database's own error of the last attempt.
        source: DieselError,
    },
    /// The connection was lost before anything could have been committed. Nothing was changed; try again on a new
    /// connection.
    #[error(
        "nothing was changed: the connection was lost before the commit; try again on a new one ({source})"
    )]
    ConnectionLost {
        /// The driver's own error.
        source: DieselError,
    },
    /// The change may have happened or not. Either the connection was lost, or the node lost the majority of its cluster, during a commit;
    /// or a statement that commits failed with an error of no known kind. The crate never retries it, because that could count twice. A
    /// caller with an [idempotency key](crate::idempotency) can simply repeat the request.
    ///
    /// An error of no known kind and text may come from a proxy. The crate then asks the session whether the database itself refused the
    /// statement: PostgreSQL's session still answers (an error after its commit would have ended it), MySQL's has an error in its
    /// diagnostics, and SQLite's last statement has changed no row. In these cases the error stays Diesel's, like the error of a trigger.
    /// (One case goes undetected: a proxy in front of PostgreSQL that loses its server, answers with its own error and keeps the client's
    /// session.) At a `COMMIT` on MySQL or SQLite, the outcome after such an error is always unknown. On SQLite a trigger's `RAISE(FAIL)`
    /// keeps the increment, and is reported as this error.
    #[error(
        "the change may have happened or not, because its commit ended by an error that does not tell: check before you repeat it, or \
         use an idempotency key ({source})"
    )]
    OutcomeUnknown {
        /// The database's or the driver's own error.
        source: DieselError,
    },
    /// This server accepts no writes now. It is a standby or has become a reader (PostgreSQL's 25006, MySQL's 1290), it was cut off from
    /// the majority of its cluster's nodes, or it is still joining them (MariaDB Galera's 1047). Nothing was changed; try again on a new
    /// connection to a server that accepts writes.
    ///
    /// PostgreSQL reports the same 25006 for a session with `default_transaction_read_only = on`; `target_session_attrs` avoids servers
    /// with either. A node that left a MySQL group has become a reader too. Inside a caller's transaction the error stays Diesel's own.
    #[error(
        "nothing was changed: this server, or this session, takes no writes now (a standby, a node without its cluster, or \
         `default_transaction_read_only`); try again on a new connection to the server that takes writes ({source})"
    )]
    NodeNotReady {
        /// The database's own error.
        source: DieselError,
    },
    /// The server's connection does not hold the prepared statement, or holds another one under its name. That happens behind a
    /// pooler that gives each transaction another connection, such as PgBouncer in transaction mode. Or a column's type has changed
    /// since the statement was prepared (PostgreSQL's "cached plan must not change result type"). Nothing was changed. Outside
    /// a transaction this is a [conflict](Conflict::StatementLost) and is retried. A caller's transaction is rolled back and may be
    /// retried. From then on this process keeps no statement prepared.
    #[error(
        "nothing was changed: the server's connection does not hold the statement that was prepared on it, or a column has got another \
         type since: try again. Behind a pooler in transaction mode turn prepared statements off \
         (`conn.set_prepared_statement_cache_size(CacheSize::Disabled)`; for `diesel_async` pool sessions), or let PgBouncer 1.21 or later \
         keep them (`max_prepared_statements`) ({source})"
    )]
    StatementLost {
        /// The database's own error.
        source: DieselError,
    },
    /// A setting of the session or the server refuses a statement of this crate: MySQL's `binlog_format = STATEMENT` (1665),
    /// its `sql_safe_updates` (1175), or Group Replication's refusal of cascading foreign keys (3098). Nothing was changed.
    #[error("nothing was changed: the setting `{setting}` refuses it; {remedy} ({source})")]
    RefusedBySetting {
        /// The name of the setting.
        setting: &'static str,
        /// The remedy.
        remedy: &'static str,
        /// The database's own error.
        source: DieselError,
    },
    /// The closure of [`retry::transaction`](crate::retry::transaction) returned `Ok`, but its transaction is no longer open.
    /// Either an error that the closure ignored has ended it, or, on MySQL, a statement that commits (`CREATE TABLE`). PostgreSQL has then
    /// committed nothing. MySQL and SQLite have committed the statements after such an error; MySQL has committed those before such a
    /// statement.
    #[error(
        "the transaction ended before its closure did: at an error that the closure did not return (return every one, by `?`), \
         or on MySQL at a statement that commits; PostgreSQL has committed nothing, MySQL or SQLite may have committed a part"
    )]
    TransactionAborted,
    /// The database has no shards table of this name.
    #[error(
        "there is no table `{table}`: {} ({source})",
        where_it_comes_from(table)
    )]
    MissingShardsTable {
        /// The name in the derive's attribute, or the default.
        table: String,
        /// The database's own error.
        source: DieselError,
    },
    /// The shards table, or its parent, lacks the column of a sharded field. Perhaps the field was declared after the table was created.
    #[error(
        "there is no column `{column}` in `{table}`, or in its parent: add it by `ALTER TABLE {table} ADD COLUMN {column} ..`, as \
         `ShardsTable::of(…::table).create_sql(…)` declares it ({source})"
    )]
    MissingShardsColumn {
        /// The shards table.
        table: String,
        /// The field's column.
        column: String,
        /// The database's own error.
        source: DieselError,
    },
    /// A shard or a base would have left the range of its column, or violated a `CHECK`. A NaN and the infinities are outside every
    /// range. Nothing was changed.
    #[error(
        "nothing was changed: a value is out of the range of its column, or of a CHECK on it, or not a finite number; count less \
         at once, or use a wider type ({source})"
    )]
    Overflow {
        /// The database's own error, or the crate's, which refused the value before it was sent.
        source: DieselError,
    },
    /// A key column of the shards table is narrower than its parent's, perhaps since an `ALTER TABLE … TYPE` of the parent. Nothing was
    /// changed. The tool's `doctor` prints the statement that widens it.
    #[error(
        "nothing was changed: the key column `{column}` of `{table}` is narrower than its parent's, so give it the parent's type \
         (`diesel-sharded doctor` prints the statement): {source}"
    )]
    NarrowKey {
        /// The shards table.
        table: String,
        /// Its key column, or all of them.
        column: String,
        /// The database's error, or Diesel's when it reads a key.
        source: DieselError,
    },
    /// The database's disk is full. Nothing was changed, and the connection stays usable: the same operation succeeds once there is
    /// space. PostgreSQL's error is recognized by its English text. In another language it is [`Diesel`](Self::Diesel)'s own error, and a
    /// server that ends because its write-ahead log is full is a lost connection. If the disk of MariaDB's binary log is full, there is no
    /// error: commits wait for space.
    #[error("nothing was changed: the database's disk is full ({source})")]
    DiskFull {
        /// The database's own error.
        source: DieselError,
    },
    /// The row given to [`or_insert`](crate::operation::UpdateStatement::or_insert) does not match the update's filter. The
    /// insert was rolled back, and nothing was counted.
    #[error(
        "the row given to `or_insert` does not match the filter of the update: give it the key that the update looks for \
         (nothing was inserted or counted)"
    )]
    InsertedOther,
    /// The update was counted and committed, but a row that it returns could not be read: the type's own
    /// [`FromSql`](diesel::deserialize::FromSql) refused a value. Do not repeat the update. Only PostgreSQL commits before the
    /// rows are read.
    #[error("the update was counted, do not repeat it; its row could not be read ({source})")]
    CountedNotRead {
        /// The error of the value.
        source: DieselError,
    },
    /// The coalescer was closed while a [`transaction`](crate::coalescer::Coalescer::transaction) ran, and did not accept its increments. The
    /// transaction is committed: do not repeat it.
    #[error(
        "the transaction was committed, do not repeat it; its counts are lost, because the coalescer was closed meanwhile: close it \
         after its users"
    )]
    CommittedNotCounted,
    /// A key column is a `CHAR(n)`, which PostgreSQL pads with spaces. [`verify`](crate::verify()) cannot compare it with the keys of a
    /// recount. All other operations accept such a key.
    #[error(
        "the parent of `{table}` has a key of type CHAR(n), which a recount may return with or without its spaces: make it \
         VARCHAR(n) or TEXT to verify its totals"
    )]
    PaddedKey {
        /// The shards table.
        table: String,
    },
    /// A row's base does not hold the value that an operation wrote to it. Nothing was changed.
    #[error("nothing was changed: the row {key}, whose shards are in `{table}`, {reason}")]
    Unfit {
        /// The shards table.
        table: String,
        /// The row's key. Commas separate the columns of a composite key.
        key: String,
        /// The reason why the base does not hold the value.
        reason: Unfit,
    },
    /// Triggers that remove shards with their parent are missing from a SQLite database. (Rebuilding the parent's table drops them.) If a
    /// row was deleted meanwhile, a new row may inherit its shards. Nothing was changed.
    #[error(
        "nothing was changed: triggers of `{table}` are missing, as after a rebuild of its parent; check whether rows were \
         deleted or replaced since then, and create the triggers again:\n{sql}"
    )]
    MissingTriggers {
        /// The shards table.
        table: String,
        /// The statements that create the missing triggers.
        sql: String,
    },
    /// MySQL or MariaDB does not let a key column of the shards table refer to the parent's, because their types or collations differ. Or
    /// the column is too short and would cut off keys. No table was created.
    #[error(
        "the key of `{table}` does not have its parent's type, length or collation: write `#[sharded(sql_type = \"{sql_type}\")]` on the field \
         `{column}` ({source})"
    )]
    KeyTypeMismatch {
        /// The shards table.
        table: String,
        /// The column that is too short; otherwise the first one whose type the library chose.
        column: String,
        /// The type of the parent's column.
        sql_type: String,
        /// The database's own error.
        source: DieselError,
    },
    /// The name of a counter is empty or too long.
    #[error("a counter's name has 1 to 255 bytes in UTF-8, this one has {bytes}")]
    InvalidCounterName {
        /// The length of the name.
        bytes: usize,
    },
    /// An idempotency key is empty or too long. Nothing was changed.
    #[error("an idempotency key has 1 to 255 bytes, this one has {bytes}")]
    InvalidIdempotencyKey {
        /// The length of the key.
        bytes: usize,
    },
    /// An idempotency key was used again for a different update. Nothing was changed.
    #[error(
        "nothing was counted: the idempotency key was used for another update; give each update a key of its own, such as \
         the request's id and the counter's name"
    )]
    IdempotencyKeyReused,
    /// A window of a [unique count](crate::unique) is too short, too long, or has a fraction of a second. Nothing was changed.
    #[error("a window has 1 second to 100 years, in whole seconds; this one is {window:?}")]
    InvalidWindow {
        /// The requested length.
        window: Duration,
    },
    /// An event is too far from the landmark of its [`Decay`](crate::trending::Decay) for its weight to be a `Double`: 900 half-lives or
    /// more after it, or more than 100 before it. Nothing was counted.
    #[error(
        "an event cannot be weighed {half_lives} half-lives after its landmark, only from 100 before it to 900 after it: give the scores \
         a new landmark (see `trending`)"
    )]
    LandmarkTooFar {
        /// The time since the landmark in half-lives, rounded down.
        half_lives: i64,
    },
    /// A number of shards out of range.
    #[error("a counter cannot have {number} shards: choose from 1 to 4096")]
    InvalidShardCount {
        /// The requested number.
        number: u16,
    },
    /// No [`Stripe`](crate::shard_choice::Stripe) has this index.
    #[error(
        "there is no stripe {index} of {of}: choose an index below the number of stripes, and 1 to 4096 stripes"
    )]
    InvalidStripe {
        /// The requested index.
        index: u16,
        /// The number of stripes.
        of: u16,
    },
    /// A [`Coalescer`](crate::coalescer::Coalescer) had no room for an increment until the deadline, or could not commit it before it
    /// gave up. Or a caller that [combines](crate::combine) by `execute_with` got no connection, and no other caller counted for it.
    /// Nothing was changed.
    #[error(
        "nothing was counted: no batch could be committed within {waited:?} ({reason}); check the database, or allow a \
         later deadline"
    )]
    DeadlinePassed {
        /// The time that the increment waited.
        waited: Duration,
        /// The reason, as far as it is known.
        reason: String,
    },
    /// The [`Coalescer`](crate::coalescer::Coalescer) is closed. Nothing was counted.
    #[error("nothing was counted: the coalescer is closed")]
    CoalescerClosed,
    /// A [`Coalescer`](crate::coalescer::Coalescer), or another object with a thread, was made before this process was forked. Its thread
    /// runs only in the parent and continues there with the increments that it holds. Nothing was done here: make one in each child, after the
    /// fork.
    #[error(
        "the {what} was made before this process was forked, and its thread runs in the parent alone: nothing was done here; make one \
         in each child, after the fork"
    )]
    MadeBeforeFork {
        /// The object that was made.
        what: &'static str,
    },
    /// An operation on a [connection that tasks share](crate::asynchronous::Shared) needs a transaction. Nothing was changed.
    #[error(
        "tasks share this connection, and their statements would be part of a transaction: use a `&mut` connection of its own"
    )]
    SharedConnection,
    /// Diesel before 2.3.14 does not notice that SQLite has ended a transaction, and each further statement would commit by itself. Nothing
    /// was sent. (On the other databases, every Diesel works that the crate compiles with.)
    #[error(
        "this Diesel does not notice when SQLite ends a transaction: run `cargo update -p diesel`, to 2.3.14 or later"
    )]
    DieselIsTooOld,
    /// A [`Coalescer`](crate::coalescer::Coalescer) was closed before it could commit everything that was added.
    #[error(
        "{lost} counters lost what was added to the coalescer, which could not be committed ({reason})"
    )]
    NotFlushed {
        /// The number of counters that lost additions.
        lost: u64,
        /// The reason.
        reason: String,
    },
    /// A flush or a close of a [`Coalescer`](crate::coalescer::Coalescer) reached its deadline first. The coalescer still holds
    /// the increments: do not add them again.
    #[error(
        "after {waited:?} some of what was added to the coalescer is not committed yet ({reason}); the coalescer still holds it: do not \
         add it again"
    )]
    FlushPending {
        /// The time that the flush or close waited.
        waited: Duration,
        /// The reason, as far as it is known.
        reason: String,
    },
    /// The condition of a [`CounterCache`](crate::CounterCache) contains a bound value. A trigger cannot have one.
    #[error(
        "a trigger holds no bound values: write them by `diesel_sharded::counter_cache::literal(..)`, or the condition by \
         `diesel::dsl::sql`: {sql}"
    )]
    BindInTrigger {
        /// The condition as the trigger would contain it.
        sql: String,
    },
    /// The condition or the summed expression of a [`CounterCache`](crate::CounterCache) contains a query; every total is one. A trigger
    /// counts when its own row changes, so it would miss changes of the rows that the query reads.
    #[error(
        "a trigger counts when its row changes, and not when what a query in it reads does: use columns of the row alone, of a sharded \
         field the base: {sql}"
    )]
    QueryInTrigger {
        /// The condition, or the summed expression, as the trigger would contain it.
        sql: String,
    },
    /// The triggers of a [`CounterCache`](crate::CounterCache) add to the shards table. A field can have only one cache: the repairs of a
    /// second one would remove what the first one counted. And the table cannot be dropped: writes of counted rows would fail without it.
    /// Nothing was changed.
    #[error(
        "nothing was changed: the counter cache `{cache}` adds to `{table}`: drop it first; each field has one cache, so count \
         the rows of another table, others of the same, or those of another foreign key into another field, and read the sum of \
         both totals"
    )]
    HasCounterCache {
        /// The shards table.
        table: String,
        /// The common prefix of the names of the cache's triggers.
        cache: String,
    },
    /// SQLite has no stored functions, so none can add to a shard.
    #[error("SQLite has no stored functions: see `ShardsTable::add_function_sql` for a statement")]
    NoStoredFunctions,
    /// Two tables that must be in one schema are not: a shards table and its parent. On SQLite also a counter cache and the rows that it
    /// counts, because triggers and foreign keys do not reach into another database.
    #[error(
        "`{table}` is not in the schema of `{other}`: in `#[sharded(schema = ..)]`, name the schema that the `table!` names; on SQLite \
         the rows that a counter cache counts have to be in its own database"
    )]
    OtherSchema {
        /// One table.
        table: String,
        /// The other table.
        other: String,
    },
    /// Any other error, as Diesel reports it.
    #[error(transparent)]
    Diesel(DieselError),
}

/// On SQLite more shards do not help: it has one writer at a time.
fn what_else_helps(conflict: Conflict) -> &'static str {
    match conflict {
        Conflict::Busy => {
            "let SQLite wait for other writers by `PRAGMA busy_timeout = 5000` on each connection"
        }
        _ => "use more shards",
    }
}

/// The library's migrations create its own tables; the derive knows the others.
fn where_it_comes_from(table: &str) -> &'static str {
    if table.starts_with("diesel_sharded_") {
        "run the library's own migrations, `conn.run_pending_migrations(diesel_sharded::MIGRATIONS)`"
    } else {
        "run its migration, which `ShardsTable::of(…::table)` returns as a Diesel migration (`.migration(version)`) or as \
         text (`.create_sql(…)`)"
    }
}

impl Error {
    /// Whether the failure is independent of the rows being counted.
    pub(crate) fn is_no_rows_fault(&self) -> bool {
        matches!(
            self,
            Error::ConnectionLost { .. }
                | Error::OutcomeUnknown { .. }
                | Error::ConflictPersisted { .. }
                | Error::NodeNotReady { .. }
                | Error::StatementLost { .. }
                | Error::RefusedBySetting { .. }
                | Error::DiskFull { .. }
        )
    }

    /// The error of a caller whose amount another caller was counting when this happened.
    pub(crate) fn outcome_unknown(why: &str) -> Self {
        let source = database_error(DatabaseErrorKind::Unknown, why);
        Error::OutcomeUnknown { source }
    }

    /// The error for a number that was refused before any statement was sent.
    pub(crate) fn overflow(why: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = DieselError::SerializationError(why.into());
        Error::Overflow { source }
    }
}

/// An error in the form in which a database reports it.
pub(crate) fn database_error(kind: DatabaseErrorKind, text: impl Into<String>) -> DieselError {
    DieselError::DatabaseError(kind, Box::new(text.into()))
}

impl From<DieselError> for Error {
    fn from(error: DieselError) -> Self {
        match error {
            DieselError::QueryBuilderError(boxed) => match boxed.downcast::<Error>() {
                Ok(error) => *error,
                Err(boxed) => Error::Diesel(DieselError::QueryBuilderError(boxed)),
            },
            error => Error::Diesel(error),
        }
    }
}

impl From<Error> for DieselError {
    fn from(error: Error) -> Self {
        match error {
            Error::Diesel(error) => error,
            error => DieselError::QueryBuilderError(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflict::Conflict;
    use std::time::Duration;

    #[test]
    fn the_way_to_diesel_and_back_loses_nothing() {
        let there = DieselError::from(Error::ConflictPersisted {
            conflict: Conflict::Deadlock,
            attempts: 3,
            elapsed: Duration::from_millis(5),
            source: DieselError::NotFound,
        });
        assert!(
            there
                .to_string()
                .starts_with("nothing was changed: deadlock in the last of 3")
        );
        let back = Error::from(there);
        assert!(
            matches!(back, Error::ConflictPersisted { attempts: 3, .. }),
            "{back:?}"
        );
    }

    #[test]
    fn diesels_own_errors_stay_diesels() {
        let error = DieselError::from(Error::from(DieselError::NotFound));
        assert_eq!(error, DieselError::NotFound);
    }
}
