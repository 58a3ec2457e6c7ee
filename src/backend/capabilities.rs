//! What each database can do, and the SQL in which they differ.

use diesel::result::DatabaseErrorKind;

use super::dialect::Dialect;
use super::isolation::Isolation;
use super::quoted::{Quoted, plain_literal};
use crate::conflict::{Conflict, ErrorClass};
use crate::model::{ColumnType, ShardsColumn};

/// Declares [`Capabilities`], and a method of [`Dialect`] for each of them.
macro_rules! capabilities {
    ($(
        $(#[$attribute:meta])*
        $name:ident $(($($argument:ident: $of:ty),*))?: $type:ty = $plain:expr,
    )+) => {
        /// The capabilities of a database, each a value or a function; each database's file states its own.
        #[derive(Debug)]
        pub(crate) struct Capabilities {
            $($(#[$attribute])* pub(crate) $name: capability!($type $(; $($of),*)?),)+
        }

        impl Capabilities {
            /// What a database is assumed to do unless its file says otherwise.
            #[allow(unused_doc_comments)]
            pub(super) const PLAIN: Self = Capabilities {
                $($(#[$attribute])* $name: $plain,)+
            };
        }

        impl Dialect {
            $(
                $(#[$attribute])*
                #[inline]
                pub(crate) fn $name(self $($(, $argument: $of)*)?) -> $type {
                    (self.capabilities().$name)$(($($argument),*))?
                }
            )+
        }
    };
}

macro_rules! capability {
    ($type:ty) => { $type };
    ($type:ty; $($of:ty),*) => { fn($($of),*) -> $type };
}

capabilities! {
    // Transactions

    /// Whether `BEGIN IMMEDIATE` exists, which takes the write lock before the first read.
    begins_immediate: bool = false,
    /// Whether a statement that is kept prepared begins a transaction in fewer round trips than Diesel's `BEGIN`.
    begins_by_statement: bool = false,
    /// Whether Diesel notices that the database has ended a transaction by itself.
    notices_ends(): bool = || true,
    /// Whether `ROLLBACK` outside a transaction is no error.
    allows_idle_rollback: bool = true,
    /// Whether a statement that commits by itself creates a missing shard. The shard is zero, so no total changes. And the increment needs no
    /// transaction, before which the library would have to ask whether one is open already. On the other databases that question is free.
    /// MySQL also needs an isolation level of its own for the statement, and SQLite would write to its disk twice.
    creates_without_transaction: bool = false,
    /// Statements that fail before COMMIT unless the transaction that was begun is still open.
    ///
    /// Postgres answers the COMMIT of an aborted transaction with ROLLBACK and no error. MySQL ends the transaction at
    /// a deadlock and runs what follows in autocommit mode; a savepoint set at the start is gone then. SQLite's COMMIT
    /// fails by itself when there is no transaction.
    survival_check: Option<SurvivalCheck> = None,
    /// Statements that make it harmless if the server ends a transaction without an error: nothing that follows is committed, and
    /// the check before COMMIT fails.
    ///
    /// A node of MariaDB Galera reports that another node's write aborted the transaction, but that error is lost if it answers
    /// the close of a statement. In autocommit mode the next statement would commit by itself. Without autocommit it begins a
    /// new transaction, which lacks the savepoint. (`SET autocommit = 1` commits, so that it has to follow a COMMIT or
    /// ROLLBACK.) Afterwards the connection has the mode that it had before.
    guard: Option<Guard> = None,
    /// The isolation level of the crate's own transactions, where it differs from the database's default. MySQL's default would
    /// lock the parent rows that a filter reads, and the gaps between shards.
    own_isolation: Option<Isolation> = None,
    /// The isolation level of a transaction that locks parents. After it waited for a lock it has to read what the lock's holder
    /// committed, whatever the database's default is.
    locking_isolation: Option<Isolation> = Some(Isolation::ReadCommitted),
    /// Whether the isolation level is set before `BEGIN`; `None` where there is only one.
    isolation_precedes_begin: Option<bool> = Some(false),
    /// Takes back the level that was set for the next transaction; refused inside one.
    forgets_isolation: Option<&'static str> = None,

    /// How to ask whether a transaction is open that Diesel does not know.
    asks_whether_open: OpenQuestion = OpenQuestion::Batch("BEGIN; ROLLBACK"),
    /// A query for what a session is: its server, its database, its role, and the settings on which the effect of an increment depends. `NULL`
    /// if no other session can be the same.
    asks_identity: &'static str = "",
    /// Whether a savepoint outside a transaction begins one.
    savepoint_begins: bool = false,
    /// What follows `SET` where the setting ends with the transaction.
    sets_in_transaction: &'static [&'static str] = &[],
    /// Whether a query or a statement on rows, in capitals, may change a setting, or make a temporary table that hides another one.
    changes_session(text: &str): bool = |_| false,
    /// A statement that fails inside a transaction, and on a session whose statements do not commit by themselves. Only where
    /// [`asks_whether_open`](Self::asks_whether_open) does not detect such a session.
    asks_whether_commits: Option<&'static str> = None,
    /// How to ask whether a transaction was open that a deadlock has ended.
    asks_whether_was_open: Option<BegunTransactions> = None,
    /// Whether every statement is refused in a transaction that met an error.
    refuses_after_errors: bool = false,
    /// A statement that fails unless the database itself refused the previous statement, which commits by itself or is a `COMMIT`. It is
    /// sent after an error of no known kind, which a proxy or a fork may have made up; `None` where no answer would tell.
    ///
    /// After a commit PostgreSQL raises only errors that end the session, and an ended session answers nothing. MySQL keeps the errors of
    /// the last statement, but a `COMMIT` may fail after others have it. SQLite keeps the number of rows that the last statement has
    /// changed.
    proves_refusal(is_commit: bool): Option<&'static str> = |_| None,
    /// Whether a statement that fails may keep what it has changed.
    keeps_after_errors: bool = false,

    // Locks

    /// Follow `INSERT INTO shards (key, shard) SELECT …`: shards that exist stay as they are, and are locked in key order.
    ///
    /// Postgres: `DO UPDATE … WHERE FALSE` locks the row without writing a version of it. MySQL: an upsert takes the
    /// exclusive lock at once, where `INSERT IGNORE` would take a shared one first, on which two writers deadlock. SQLite
    /// has one writer at a time.
    keeps_and_locks: KeepsAndLocks = KeepsAndLocks::ConflictIgnored,
    /// Follows a `SELECT` that locks its rows until the transaction ends; `None` where rows cannot be locked, since SQLite has one writer
    /// at a time.
    locks_rows(strength: Strength): Option<&'static str> = |_| None,
    /// Whether the rollback of a savepoint releases the locks that were acquired in it.
    unlocks_at_savepoints: bool = false,
    /// Whether [`ExclusiveIfFree`](Strength::ExclusiveIfFree) leaves out locked rows.
    supports_skip_locked: bool = false,
    /// Bounds each wait for a lock until the open transaction ends, and leaves the session as it was. Only where a bound can be
    /// below a second: MySQL's is in seconds, and SQLite has one lock.
    ///
    /// The bound is shorter than PostgreSQL's `deadlock_timeout`, so that in a deadlock the bounded wait gives way.
    bounds_waits_for_locks: Option<&'static str> = None,
    /// The same for only some statements: what is sent before and after them. If one of them fails, the rollback lifts the bound.
    bounds_some_waits: Option<[&'static str; 2]> = None,
    /// Follows a `SELECT` of rows that are locked already. In MySQL's default isolation a plain one would read the caller's
    /// snapshot, not the rows that were locked.
    reads_what_is_locked: &'static str = "",
    /// Follows a `SELECT` of what an earlier transaction has committed, if the answer tells the caller that the work is done. On
    /// PostgreSQL, once a commit's wait was interrupted, other sessions may see it while the synchronous standby lacks it. A transaction
    /// that only reads waits for no standby. A read that locks a row also writes, so its own commit waits for everything before it.
    reads_what_is_safe: &'static str = "",
    /// How a query whose answer decides what is written reaches the primary. A proxy that splits reads from writes sends a plain one to a
    /// replica, which lags.
    asks_primary: AsksPrimary = AsksPrimary::Plainly,
    /// Ends a query in an `INSERT` that reads a parent. MySQL in `READ COMMITTED` would read the rows of the time at which the statement
    /// around a trigger began, while its foreign keys see those that are committed now.
    shares_lock: &'static str = "",
    /// Whether a row that a query shows may be hidden from a lock and from an update, as PostgreSQL's row security does.
    hides_rows_from_locks: bool = false,
    /// Whether an `UPDATE` that finds no row locks the gap where it would be, as MySQL's does. Two transactions that both lock the
    /// gap before both insert there deadlock. In a caller's transaction a plain read therefore looks for the row first.
    missing_row_locks_gap: bool = false,
    /// Begins the condition of that read, and makes MariaDB from 11.6 on answer that no shard is missing, without looking: no
    /// other server runs such a comment. Its snapshot isolation would end the transaction if the row changed between the read
    /// and the update, as a hot row does. A rare deadlock of two first increments is better.
    finds_without_a_look: &'static str = "",
    /// Whether a plain read may fail a later write of the same transaction, since it begins the snapshot. On MariaDB from 11.6 on, a row that
    /// was changed since, as a hot one is, then ends the transaction. On SQLite a transaction that has read waits for no other writer.
    reads_bind_writes: bool = false,
    /// Whether a transaction may wait for a table's metadata lock in a cycle that no deadlock detector sees: the session that alters the
    /// table holds that lock, and waits for the rows that the transaction has written.
    waits_unseen_for_tables: bool = false,

    // Statements

    /// Whether joined rows are named before `SET`, as MySQL does. The others name them after it in a `FROM` clause.
    joins_before_set: bool = false,
    /// Whether an interrupted update of joined tables may succeed with only the rows that it had met by then, as MariaDB's does.
    joins_end_early: bool = false,
    /// Whether an update joins a list of values in the statement, as PostgreSQL does with the plan of a lookup for each
    /// value. SQLite takes as long as with a `CASE`.
    joins_values: bool = false,
    /// Joins a table to the few rows before it. MySQL may read the table first, and lock all of its rows in an `INSERT`.
    joins_to_few: &'static str = "JOIN",
    /// Ends a derived table that has to keep the order of its rows, so that they are locked in that order. MySQL drops an
    /// `ORDER BY` without a limit. It also merges a derived table without a limit into the update around it, and then refuses
    /// to read the shards table, as a filter on a total does.
    keeps_order: Option<&'static str> = None,
    /// Whether `DELETE` needs the alias before `FROM shards AS parent`. MySQL accepts an alias in a single table's `DELETE` only in
    /// late versions.
    deletes_by_alias: bool = false,
    /// Whether an `INSERT` that keeps existing rows returns the number of rows that it inserted. MySQL's client, as Diesel
    /// sets it up, counts the existing ones too.
    counts_only_inserted: bool = true,
    /// Whether ` ON CONFLICT DO NOTHING` is better after an `INSERT` that may race: PostgreSQL then reports a serialization
    /// failure to a transaction that cannot see the other's row yet, instead of a violation like any other.
    inserts_unless_there: bool = false,
    /// Whether an upsert names its unique key, `ON CONFLICT (..) DO UPDATE SET`. MySQL's applies to any unique key.
    names_conflict_target: bool = true,
    /// Whether every driver reports the number of rows of a query that was executed like a statement.
    tells_rows_of_queries: bool = false,
    /// Whether one statement can lock rows, write them if it has locked all of them, and return what it wrote.
    counts_all_or_none: bool = false,
    /// The form in which one statement claims an idempotency key and counts, or does neither; `None` if there is none. SQLite has no
    /// round trips to save.
    counts_once_by: Option<OnceForm> = None,
    /// How totals are added up, of all parents or of those that a filter matches.
    sums_form(is_filtered: bool): SumsForm = |is_filtered| match is_filtered {
        true => SumsForm::Correlated,
        false => SumsForm::JoinSums,
    },
    /// The SQL before and after a query for one row, as a condition that it finds none. PostgreSQL knows how many parents
    /// pass a `NOT EXISTS`, and so reads the index of the base in its order. MariaDB would read all shards for it.
    finds_none: (&'static str, &'static str) = ("NOT EXISTS (", ")"),
    /// The time at which a statement begins by the database's own clock, which all processes share, as a `BIGINT`.
    seconds_since_1970: &'static str = "",

    // Connections

    /// Whether a statement that is kept prepared may be taken for another one: PostgreSQL knows it by a name, which may stand for another
    /// behind a pooler; see [`prepared`](crate::prepared).
    mistakes_statements: bool = false,
    /// Whether C libraries for this database may fail to execute a kept statement again; see
    /// [`has_faulty_client`](Dialect::has_faulty_client).
    clients_have_faults: bool = false,
    /// Whether a reply that nobody has read breaks the connection: the client takes it for the answer to the next statement.
    unread_reply_breaks_connection: bool = false,

    // Values

    /// Whether the place of a bind has a number, as `$1` has, and is not just a `?`.
    numbers_binds: bool = false,
    /// How a total is written; see [`Total`](crate::Total) for the whole.
    total_form(column: ColumnType): TotalForm = |_| TotalForm::Plain,
    /// Follows `CASE WHEN` and a value that is compared with a shard of this field, a float, where the comparison would not notice a NaN:
    /// SQLite binds it as `NULL`, and on PostgreSQL it is greater than any number.
    nan_refusal(field: &ShardsColumn): Option<&'static str> = |_| None,
    /// Whether a NaN is stored as `NULL`.
    stores_nan_as_null: bool = false,
    /// Whether a `NUMERIC` is a double.
    numerics_are_doubles: bool = false,
    /// Compares two values, either of which may be NULL.
    is_same: &'static str = "IS NOT DISTINCT FROM",
    /// The SQL before and after a value that reads it as a text.
    as_text: (&'static str, &'static str) = ("CAST(", " AS TEXT)"),
    /// The same for a time. Texts of equal times are equal.
    time_as_text: (&'static str, &'static str) = ("CAST(", " AS TEXT)"),
    /// The same for bytes, in hexadecimal.
    bytes_as_text: (&'static str, &'static str) = ("HEX(", ")"),
    /// Whether a `CHAR(n)` is read with spaces up to its length, and then differs from the same text without them.
    pads_text: bool = false,
    /// The SQL before and after a number of rows, or a sum over them, that converts it to a field's type. Diesel reads any type of number
    /// from MySQL and SQLite.
    recounted(field: ColumnType, is_sum: bool): (&'static str, &'static str) = |_, _| ("", ""),

    // Tables and triggers

    /// The quotes of a name.
    quote: &'static str = "`",
    /// A text that contains a backslash as a literal, in every mode of the database.
    literal_with_backslash(text: &str): String = plain_literal,
    /// Whether a backslash in a text between quotes escapes the next character.
    backslash_escapes: bool = false,
    /// Whether each statement that creates or drops something commits, so that no transaction undoes it.
    commits_definitions: bool = false,
    /// Before and after several statements: a program that continues after an error leaves all of them undone.
    makes_one: [&'static str; 2] = ["", ""],
    /// Several statements as one step, where a program may run each of them in a transaction of its own.
    in_a_block(statements: Vec<String>): Vec<String> = |statements| statements,
    /// Whether a column has the collation of another one only if it is created by a query for it.
    copies_collations: bool = false,
    /// Whether a mode of the database cuts a key to the length of its column.
    cuts_keys: bool = false,
    /// Whether the name that the database itself would make for a constraint is too long for it. MariaDB accepts a name of 64 characters
    /// only if it is given.
    refuses_own_name(constraint: &str): bool = |_| false,
    /// The kind of routine that an application's statement calls by its name.
    routine: Option<Routine> = None,
    /// The steps of the text that folds and drops a shards table.
    drop_form: DropForm = DropForm::RenamedFirst,
    /// Reads why the text that drops a shards table failed: a text about a row or a cache. `None` where the error contains it.
    asks_why_not_dropped: Option<&'static str> = None,
    /// The same text in the message of the error.
    reason_not_dropped(message: &str): Option<&str> = |_| None,
    /// The schema of temporary tables, with a dot.
    temporary_schema: &'static str = "",
    /// The type of a column in a shards table, where it is not that of the standard.
    own_type(column: ColumnType): Option<&'static str> = |_| None,
    /// The type of a sum's column with room for a value that a lax mode would cut, so that a `CHECK` sees it.
    roomy_type(column: ColumnType): Option<&'static str> = |_| None,
    /// Whether the database, or a mode of it, keeps an integer that is out of its column's range.
    keeps_any_integer: bool = true,
    /// Follows a double's column in a `CHECK` that refuses what no later increment would repair: SQLite keeps any value, and PostgreSQL a NaN
    /// or an infinity.
    double_check: Option<&'static str> = None,
    /// Follows a column of this type in a `CHECK` where the database cuts values to it.
    check_of_cut_values(sql_type: &str): Option<String> = |_| None,
    /// Follows the column list of `CREATE TABLE`.
    ///
    /// Postgres: a shard that is updated in place (HOT) needs room on its page for the versions to come. A smaller fillfactor
    /// makes it prune the page at nearly every access.
    table_options: &'static str = "",
    /// The actions of the shards' foreign key. On SQLite triggers rename and delete the shards, whether foreign keys are enforced or not.
    /// With actions, a trigger could not tell shards that the foreign key has already renamed from those of a replaced row. And a migration
    /// that rebuilds the parent's table would delete all shards by its `DROP TABLE`.
    foreign_key_actions: &'static str = " ON UPDATE CASCADE ON DELETE CASCADE",
    /// The SQL after `CREATE ` and after the columns of a view that reads with the rights of its reader.
    security_invoker: [&'static str; 2] = ["", ""],
    /// Whether triggers have to delete the shards of a deleted row, or a new row would inherit them. SQLite enforces foreign keys
    /// only where a connection asks for it, reuses a deleted row's id, and replaces rows without deleting them (`REPLACE INTO`).
    has_triggers: bool = false,
    /// Whether a trigger calls a function and belongs to its table, and may fire once for a statement, with all of its rows in tables. The
    /// triggers of the others have a body and a schema, and fire for each row.
    triggers_call_functions: bool = false,
    /// Before and after the body of a trigger that fires for each row.
    body_of_trigger: [&'static str; 2] = [" FOR EACH ROW\n", ""],
    /// Whether triggers name tables without a schema, and reach none in another.
    names_bare_in_triggers: bool = false,
    /// The statements that create the function which the triggers of a shards table call.
    function_of_shards(tables: &Quoted<'_>): Vec<String> = |_| vec![],
    /// The triggers that keep shards with their parents.
    triggers_of_shards(tables: &Quoted<'_>): Vec<Trigger> = |_| vec![],
    /// Asks whether there is a trigger, by the literals of its schema and its name. Only where even the drop of a missing trigger needs a
    /// privilege, as on MySQL.
    asks_for_trigger(schema: &str, trigger: &str): Option<String> = |_, _| None,
    /// The statements before and after those that create the triggers of this table, where readers would see one without the others.
    create_at_once(table: &str): Option<(String, String)> = |_| None,
    /// The name of a trigger in the catalog.
    name_of_trigger: &'static str = "name",
    /// The `FROM` clause that finds, in the catalog, the triggers that contain a text, a literal, and write to this shards table.
    triggers_that_contain(text: &str, tables: &Quoted<'_>): String = |_, _| String::new(),
    /// Narrows them to those that fire once for a statement, and to those that are on, where there are others.
    is_statements_trigger: &'static str = "",
    is_trigger_on: &'static str = "",
    /// The SQL before and after a text that may be NULL.
    text_or_none: [&'static str; 2] = ["", ""],
    /// The SQL that reads one of several texts: before the text, between the text and its source, and after the source.
    any_text: [&'static str; 3] = ["SELECT ", " FROM ", " LIMIT 1"],
    /// The SQL that makes several texts one: before them, between two of them, and after them.
    concatenated: [&'static str; 3] = ["", " || ", ""],
    /// Statements that fail if the query `cache` reads a text about an existing cache. They use the names of the shards table and of a
    /// constraint.
    refuse_second_cache(shards: &str, cache: &str, constraint: &str): String = |_, _, _| String::new(),
    /// Whether a statement may read a table that a trigger of its own writes, as a counter cache's does where a table counts its own
    /// rows. MySQL refuses that (1442).
    reads_what_triggers_write: bool = true,
    /// Returns a row if the table of shard numbers exists. Only where the server logs each statement that fails: a fold reads the numbers,
    /// and the table may be missing.
    asks_for_shard_numbers: Option<&'static str> = None,
    /// The number of the session.
    session_number: Option<&'static str> = None,
    /// Whether a name of this length stays as it is. PostgreSQL cuts longer ones, MySQL and MariaDB refuse them.
    takes_name(name: &str): bool = |_| true,

    // Errors

    /// The texts of its errors; see [`errors`](super::errors).
    error_texts: &'static str = "",
    /// The text of an error without what a proxy has put around it.
    text_behind_proxy(message: &str): &str = |message| message,
    /// The class of a kind that drivers of this database use in their own way.
    class_of_kind(kind: &DatabaseErrorKind): ErrorClass = |kind| match kind {
        DatabaseErrorKind::SerializationFailure => ErrorClass::Conflict(Conflict::Serialization),
        _ => ErrorClass::Other,
    },
    /// Whether a deadlock ends the whole transaction, and what follows runs in none.
    deadlock_ends_transaction: bool = false,
    /// The errors of statements that a session's setting refused, a line each: how the text begins, the setting, and the remedy.
    refusals: &'static str = "",
    /// The text before and after the name of a table that is not there; `None` if the text is in the server's language.
    missing_table_text: Option<(&'static str, &'static str)> = None,
    /// The same of a column.
    missing_column_text: Option<(&'static str, &'static str)> = None,

    // Observability

    /// Its name, as OpenTelemetry names databases.
    name: &'static str = "",
}

/// A trigger beside a shards table: the end of its name, and what follows that name in its statement.
pub(crate) type Trigger = (&'static str, String);

/// Several triggers.
macro_rules! triggers {
    ($($end:ident: $rest:literal;)+) => { vec![$((stringify!($end), format!($rest))),+] };
}
pub(super) use triggers;

/// See [`Dialect::drop_form`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropForm {
    /// One block, which a transaction encloses.
    Block,
    /// Under locks of tables, with a transaction only for the fold.
    UnderLocks,
    /// Statements of a savepoint, of which the first one renames the table.
    RenamedFirst,
}

/// See [`Dialect::routine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Routine {
    Function,
    Procedure,
}

/// See [`Dialect::survival_check`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SurvivalCheck {
    pub(crate) at_begin: Option<&'static str>,
    pub(crate) before_commit: &'static str,
}

/// See [`Dialect::guard`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    pub(crate) before: &'static str,
    pub(crate) at_begin: &'static str,
    pub(crate) before_commit: &'static str,
    /// Sent before Diesel's own `ROLLBACK`. The first one may fail because nothing is left to roll back, and Diesel would give up the
    /// connection for that.
    pub(crate) rollback: &'static str,
    pub(crate) after: &'static str,
}

/// See [`Dialect::asks_whether_was_open`]. A session counts its statements: a `BEGIN` that none of its `COMMIT`s and `ROLLBACK`s has ended
/// was open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BegunTransactions {
    /// Reads the numbers of these statements into variables.
    pub(crate) reads: &'static str,
    /// Fails if one was open, and where that is not known.
    pub(crate) asks: &'static str,
    /// While none is open: notes how many `COMMIT`s and `ROLLBACK`s have ended nothing, as after a `COMMIT` that failed. They would hide as
    /// many transactions that begin later.
    pub(crate) notes: &'static str,
}

/// See [`Dialect::asks_whether_open`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum OpenQuestion {
    /// The first query returns a row if the transaction is older than the query. That is always so if a query is prepared and executed in one
    /// go. The second query returns a row if the transaction is the one in which the first was asked.
    Rows {
        is_older: &'static str,
        is_same: &'static str,
    },
    /// A statement that is refused inside a transaction.
    Statement(&'static str),
    /// Statements of which the first is refused inside a transaction.
    Batch(&'static str),
}

/// How rows are locked; see [`Dialect::locks_rows`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strength {
    /// On PostgreSQL rows that refer to these may still be inserted.
    Exclusive,
    /// Fails at once if a row is locked.
    ExclusiveAtOnce,
    /// The same, but without an error where an error would abort the open transaction: there it leaves out locked rows.
    ExclusiveIfFree,
    /// No rows that refer to these may be inserted.
    Full,
}

/// See [`Dialect::keeps_and_locks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepsAndLocks {
    /// `ON CONFLICT (key, shard) DO UPDATE SET shard = excluded.shard WHERE FALSE`
    ConflictLocks,
    /// `ON CONFLICT (key, shard) DO NOTHING`
    ConflictIgnored,
    /// `ON DUPLICATE KEY UPDATE shard = shards.shard`
    DuplicateKeyLocks,
}

/// See [`Dialect::asks_primary`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsksPrimary {
    /// No proxy is in front of the database.
    Plainly,
    /// After a write of no row: its SQL before and after the shards table's name. It locks no row, and needs no privilege that increments and
    /// folds do not need.
    BehindWrite(&'static str, &'static str),
    /// In a transaction.
    InTransaction,
}

/// See [`Dialect::counts_once_by`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnceForm {
    /// Data-modifying `WITH` clauses.
    With,
    /// MariaDB's compound statement, a transaction of its own. MySQL does not know its syntax.
    Compound,
}

/// How the totals of the parents with shards are added up; `docs/decisions/0006-totals-and-top.md` has the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SumsForm {
    /// All shards are grouped by their parents, and the parents are joined: the fastest where all parents are asked for.
    JoinSums,
    /// Shards and parents are joined and then grouped. MariaDB needs no second temporary table for that, and may begin with the
    /// parents where a filter leaves few of them. Without a filter, `STRAIGHT_JOIN` keeps it at the order of the shards' key.
    GroupJoined { straight: bool },
    /// Each parent's shards are added up on their own, as a total does it: no shard of a parent that the filter leaves out is
    /// read.
    Correlated,
}

/// How a total is converted back to its column's type, so that no overflow passes unseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TotalForm {
    /// `(base + sum)`: the client checks the range as it reads.
    Plain,
    /// `CAST(base + sum AS type)`, which fails out of range.
    Cast(&'static str),
    /// SQLite makes a float of an integer that grew too large, and Diesel cuts it to the column's width. Where this
    /// condition on `total` does not hold, `abs` of the smallest integer raises "integer overflow": no other function
    /// of SQLite's raises an error.
    Checked(&'static str),
}

/// The words of an SQL text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// How many shards [`session_shard`](Dialect::session_shard) uses by default.
pub(crate) const SESSION_SHARDS: u16 = 16;

impl Dialect {
    /// The statement that sets the isolation level, and whether it is sent before `BEGIN`.
    pub(crate) fn set_isolation(self, isolation: Isolation) -> Option<(&'static str, bool)> {
        let sql = match isolation {
            Isolation::ReadCommitted => "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            Isolation::RepeatableRead => "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            Isolation::Serializable => "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        };
        self.isolation_precedes_begin()
            .map(|precedes| (sql, precedes))
    }

    /// Whether rows can be locked at all.
    pub(crate) fn has_row_locks(self) -> bool {
        self.locks_rows(Strength::Exclusive).is_some()
    }

    /// Ends a query that has to return all of its rows, whatever `sql_select_limit` MySQL's session has.
    pub(crate) fn all_rows(self) -> &'static str {
        self.keeps_order().unwrap_or_default()
    }

    /// The shard that statements inside the database add to: by the number of the session, since they know no process. SQLite has
    /// one writer at a time.
    pub(crate) fn session_shard(self, shards: u16) -> String {
        match self.session_number() {
            Some(number) => format!("{number} % {shards}"),
            None => "0".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_begin_as_each_database_needs() {
        let immediate = Dialect::ALL.map(Dialect::begins_immediate);
        assert_eq!(immediate, [false, false, true]);
        let checks = Dialect::ALL.map(|dialect| dialect.survival_check().is_some());
        assert_eq!(checks, [true, true, false]);
        let guards = Dialect::ALL.map(|dialect| dialect.guard().is_some());
        assert_eq!(guards, [false, true, false]);
    }

    #[test]
    fn only_sqlite_locks_no_rows() {
        let locks = Dialect::ALL.map(Dialect::has_row_locks);
        assert_eq!(locks, [true, true, false]);
    }

    #[test]
    fn transactions_have_the_isolation_that_each_database_needs() {
        let committed = Some(Isolation::ReadCommitted);
        let own = Dialect::ALL.map(Dialect::own_isolation);
        assert_eq!(own, [None, committed, None]);
        let locking = Dialect::ALL.map(Dialect::locking_isolation);
        assert_eq!(locking, [committed, committed, None]);
        let levels = [
            (Isolation::ReadCommitted, "READ COMMITTED"),
            (Isolation::RepeatableRead, "REPEATABLE READ"),
            (Isolation::Serializable, "SERIALIZABLE"),
        ];
        for (isolation, level) in levels {
            let sql = format!("SET TRANSACTION ISOLATION LEVEL {level}");
            let set = Dialect::ALL.map(|dialect| dialect.set_isolation(isolation));
            assert_eq!(set, [Some((&*sql, false)), Some((&*sql, true)), None]);
        }
    }
}
