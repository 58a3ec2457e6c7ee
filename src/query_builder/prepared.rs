//! The statements that a connection keeps prepared.
//!
//! PostgreSQL knows a prepared statement by a name, which the driver numbers. A pooler in transaction mode (PgBouncer) may send each
//! transaction over another connection to the server. On that one the same name may belong to another statement, of this application or
//! of another process. Therefore:
//!
//! - A statement is kept only if it has a checksum: a bind that must equal a hash of the statement's text, or the statement fails. If
//!   it is executed by mistake instead of another statement, it fails and changes nothing. If another statement is executed instead of it,
//!   that one gets binds that it does not accept, and fails too.
//! - Every other statement is prepared and executed in one go, without a name.
//! - After the first such failure, the process keeps no statement on its connections to PostgreSQL. The checksums stay: `diesel_async`
//!   prepares each statement under a name and executes it in a separate message, perhaps on another connection.
//!
//! MariaDB's client waits forever if a kept statement failed in the middle of its rows and is executed again. Oracle's client keeps the
//! error of every kept statement that failed. So MariaDB's client keeps no statement that returns rows, and Oracle's keeps none, unless the
//! process [says](crate::backend::keep_queries_on_mysql) that it has no such client.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, Ordering};

use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{Error as DieselError, QueryResult};
use diesel::sql_types::Binary;
use fnv::{FnvBuildHasher, FnvHasher};

use crate::backend::{Dialect, ShardedBackend, TAKEN_FOR_ANOTHER};
use crate::query_builder::{Sql, bind, fragments, on, sql, text_of, walk};

/// Whether the server has mistaken a statement of this process for another one.
static WAS_LOST: AtomicBool = AtomicBool::new(false);

/// Stops keeping statements: a server's connection did not hold a statement of this process.
pub(crate) fn statement_was_lost() {
    WAS_LOST.store(true, Ordering::Relaxed);
}

/// A statement that is sent again and again, and therefore kept prepared.
#[derive(QueryId)]
pub(crate) struct Prepared<Q> {
    statement: Q,
    checksum: Option<TextChecksum>,
}

impl<Q> Prepared<Q> {
    pub(crate) fn new<DB>(statement: Q, backend: &DB) -> Self
    where
        DB: ShardedBackend,
        Q: Prepare<DB> + QueryId,
    {
        let checksum = TextChecksum::of(&statement, backend);
        Prepared {
            statement,
            checksum,
        }
    }
}

fragments! {
    [Q: Prepare<DB>,] Prepared<Q>;
    |self, out| walk_prepared(&self.statement, self.checksum.as_ref(), out);
}

/// Writes a kept statement of any type, so that this is compiled only once.
fn walk_prepared<'b, DB: ShardedBackend>(
    statement: &'b dyn Prepare<DB>,
    checksum: Option<&'b TextChecksum>,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    begin(checksum, Dialect::keeps_statements, out.reborrow())?;
    statement.walk_checked(checksum, out)
}

/// A `SELECT` without a limit that is sent again and again, and therefore kept prepared; on MySQL only if the process
/// [allows it](crate::backend::keep_queries_on_mysql).
#[derive(QueryId)]
pub(crate) struct PreparedQuery<Q> {
    query: Q,
    checksum: Option<TextChecksum>,
}

impl<Q> PreparedQuery<Q> {
    pub(crate) fn new<DB>(query: Q, backend: &DB) -> Self
    where
        DB: ShardedBackend,
        Q: QueryFragment<DB> + QueryId,
    {
        let checksum = TextChecksum::of(&query, backend);
        PreparedQuery { query, checksum }
    }
}

fragments! {
    [Q: QueryFragment<DB>,] PreparedQuery<Q>;
    |self, mut out| {
        begin(self.checksum.as_ref(), Dialect::keeps_queries, out.reborrow())?;
        sql!(out;
            walk(&self.query),
            if let Some(checksum) = &self.checksum { " OFFSET ", checksum.offset() } else { on(Dialect::all_rows) })
    };
}

/// A statement or a query without a checksum. It is kept only where no statement can be mistaken for another.
#[derive(QueryId)]
pub(crate) struct Unchecked<Q> {
    statement: Q,
    keeps: fn(Dialect) -> bool,
}

impl<Q> Unchecked<Q> {
    pub(crate) fn statement(statement: Q) -> Self {
        Unchecked {
            statement,
            keeps: Dialect::keeps_statements,
        }
    }

    pub(crate) fn query(statement: Q) -> Self {
        Unchecked {
            statement,
            keeps: Dialect::keeps_queries,
        }
    }
}

fragments! {
    [Q: QueryFragment<DB>,] Unchecked<Q>;
    |self, mut out| {
        begin(None, self.keeps, out.reborrow())?;
        self.statement.walk_ast(out)
    };
}

macro_rules! query_like_its_content {
    ($($wrapper:ident)+) => {$(
        impl<Q: Query> Query for $wrapper<Q> {
            type SqlType = Q::SqlType;
        }
    )+};
}
query_like_its_content!(Prepared PreparedQuery Unchecked);

thread_local! {
    /// Whether a statement is written only to learn whose it is.
    static ASKS_WHOSE: Cell<bool> = const { Cell::new(false) };
}

/// Begins the writing of a statement of this crate's, and ends it if that is only to learn whose it is. Without a checksum, the connection
/// keeps the statement prepared where the dialect `keeps` such ones.
fn begin<DB: ShardedBackend>(
    checksum: Option<&TextChecksum>,
    keeps: fn(Dialect) -> bool,
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    if ASKS_WHOSE.replace(false) {
        // Nothing but an error ends Diesel's walk. No caller sees it.
        return Err(DieselError::RollbackTransaction);
    }
    let is_kept = match checksum {
        Some(_) => !WAS_LOST.load(Ordering::Relaxed),
        None => keeps(out.backend().dialect()),
    };
    if !is_kept {
        out.unsafe_to_cache_prepared();
    }
    Ok(())
}

/// The text of a statement that Diesel shows, without its binds; empty if Diesel cannot write it. `None` if it is one of the statements of
/// this file: then nothing of it was written.
pub(crate) fn text_of_others(shown: &dyn fmt::Display) -> Option<String> {
    struct Text {
        text: String,
        is_whole: bool,
    }
    impl Write for Text {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.is_whole = part == " -- binds: ";
            match self.is_whole {
                true => Err(fmt::Error), // the rest is not needed
                false => self.text.write_str(part),
            }
        }
    }
    struct Asks;
    impl Drop for Asks {
        fn drop(&mut self) {
            ASKS_WHOSE.set(false);
        }
    }
    let asks = Asks;
    ASKS_WHOSE.set(true);
    let mut text = Text {
        text: String::new(),
        is_whole: false,
    };
    let shown = write!(text, "{shown}");
    let is_others = ASKS_WHOSE.get();
    drop(asks);
    is_others.then(|| match shown.is_ok() || text.is_whole {
        true => text.text,
        false => String::new(),
    })
}

/// A value that only a statement with the right text accepts. No column accepts it: its first bytes are not UTF-8, and no number, date or
/// UUID has its length.
#[derive(Debug)]
pub struct TextChecksum([u8; 11]);

impl TextChecksum {
    /// The checksum of a statement. `None` where a kept statement cannot be mistaken for another; on PostgreSQL it can.
    pub(super) fn of<DB, S>(statement: &S, backend: &DB) -> Option<Self>
    where
        DB: ShardedBackend,
        S: QueryFragment<DB> + QueryId,
    {
        match backend.dialect().mistakes_statements() {
            true => Self::of_text(S::query_id(), statement, backend),
            false => None,
        }
    }

    /// The checksum of the statement with this query id.
    fn of_text<DB: ShardedBackend>(
        id: Option<TypeId>,
        statement: &dyn QueryFragment<DB>,
        backend: &DB,
    ) -> Option<Self> {
        let hash = match id {
            Some(id) => known_hash(id, &|| hash_of_text(statement, backend))?,
            None => hash_of_text(statement, backend)?,
        };
        let mut value = [0xff; 11];
        value[3..].copy_from_slice(&hash.to_be_bytes());
        Some(TextChecksum(value))
    }

    /// `CAST(CASE WHEN $n = decode('…', 'hex') THEN '1' ELSE 'diesel_sharded: …' END AS BOOLEAN)`, which is true or fails
    pub(crate) fn condition<'b, DB: ShardedBackend>(&'b self) -> impl Sql<'b, DB> {
        self.cast("'1'", "BOOLEAN")
    }

    /// The same after ` OFFSET`: it is 0, or the statement fails, even if it has no rows. (Not after `LIMIT`, because the planner assumes
    /// that an unknown limit leaves a tenth of the rows.)
    pub(crate) fn offset<'b, DB: ShardedBackend>(&'b self) -> impl Sql<'b, DB> {
        self.cast("'0'", "BIGINT")
    }

    /// The bytes as hexadecimal digits. Nothing is allocated here, because Diesel walks a statement several times for each increment.
    fn digits(&self) -> [u8; 22] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 22];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        digits
    }

    fn cast<'b, DB: ShardedBackend>(&'b self, value: &str, sql_type: &str) -> impl Sql<'b, DB> {
        let digits = self.digits();
        sql! {
            "CAST(CASE WHEN ", bind(Binary, &self.0[..]),
            " = decode('", std::str::from_utf8(&digits).unwrap_or_default(), "', 'hex') THEN ", value, // they are ASCII
            " ELSE '", TAKEN_FOR_ANOTHER, "' END AS ", sql_type, ")"
        }
    }
}

/// The hash of a statement's text. It is the same in every build, so that two releases agree on the checksum of a text.
fn hash_of_text<DB: ShardedBackend>(
    statement: &dyn QueryFragment<DB>,
    backend: &DB,
) -> Option<u64> {
    let mut hash = FnvHasher::default();
    hash.write(text_of(statement, backend).ok()?.as_bytes());
    Some(hash.finish())
}

/// The hash of the text that this query id has on PostgreSQL. It is cached, because writing the text costs more than all other work of a
/// increment in this process.
fn known_hash(id: TypeId, hash: &dyn Fn() -> Option<u64>) -> Option<u64> {
    thread_local! {
        static KNOWN: RefCell<HashMap<TypeId, u64, FnvBuildHasher>> = RefCell::default();
    }
    // The map is gone when the thread is ending.
    let known = KNOWN.try_with(|known| known.borrow().get(&id).copied());
    if let Ok(Some(hash)) = known {
        return Some(hash);
    }
    let hash = hash()?;
    let _ = KNOWN.try_with(|known| known.borrow_mut().insert(id, hash));
    Some(hash)
}

/// A statement that can be written with a checksum.
pub trait Prepare<DB: ShardedBackend>: QueryFragment<DB> {
    /// Writes the statement, with its checksum if it has one. By default the checksum follows a condition at the statement's end.
    ///
    /// If a statement has its checksum elsewhere, its `walk_ast` calls this without one.
    fn walk_checked<'b>(
        &'b self,
        checksum: Option<&'b TextChecksum>,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        sql!(out; walk(self), if let Some(checksum) = checksum { " AND ", checksum.condition() })
    }
}

impl<Q: Prepare<DB>, DB: ShardedBackend> Prepare<DB> for &Q {
    fn walk_checked<'b>(
        &'b self,
        checksum: Option<&'b TextChecksum>,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        (**self).walk_checked(checksum, out)
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use std::marker::PhantomData;

    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::prelude::*;
    use diesel::sqlite::Sqlite;

    use super::*;
    use crate::backend::TAKEN_FOR_ANOTHER;
    use crate::query_builder::{CreateShards, KeyIs, Names, SelectParents};
    use crate::test_schema::{sql, videos};

    /// The hexadecimal digits of the hash in a statement with a checksum.
    fn hash(text: &str) -> &str {
        let (_, behind) = text.split_once("decode('ffffff").expect("a checksum");
        behind.split_once('\'').expect("its end").0
    }

    fn create<DB: ShardedBackend>(filter: &dyn QueryFragment<DB>) -> CreateShards<'_, DB>
    where
        videos::table: QueryFragment<DB>,
    {
        CreateShards {
            names: Names::of::<videos::table>(),
            filter,
            shard: 3,
            locks: true,
        }
    }

    #[test]
    fn a_checksum_stands_where_it_is_always_evaluated() {
        let filter = KeyIs(videos::id.eq(7));
        let kept = sql!(Pg, Prepared::new(create(&filter), &Pg));
        let checksum = format!(
            "CAST(CASE WHEN $3 = decode('ffffff{}', 'hex') THEN '0' ELSE '{TAKEN_FOR_ANOTHER}' END AS BIGINT)",
            hash(&kept)
        );
        assert_eq!(
            kept,
            format!(
                r#"INSERT INTO "videos_shards" ("id", "shard") SELECT "videos"."id", $1 FROM "videos" WHERE ("videos"."id" = $2) ORDER BY "videos"."id" OFFSET {checksum} ON CONFLICT ("id", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE"#
            )
        );
        let select = |selection| SelectParents::<videos::table, _, _> {
            selection,
            filter: &filter,
            table: PhantomData,
        };
        let views = sql!(Pg, PreparedQuery::new(select(videos::views), &Pg));
        assert!(views.contains(r#"("videos"."id" = $1) OFFSET CAST(CASE WHEN $2 = decode("#));
        assert_ne!(hash(&views), hash(&kept));
        let limited = sql!(Mysql, PreparedQuery::new(select(videos::views), &Mysql));
        assert!(limited.ends_with("(`videos`.`id` = ?) LIMIT 18446744073709551615"));
        let plain = sql!(Sqlite, Prepared::new(create::<Sqlite>(&filter), &Sqlite));
        assert_eq!(plain, sql!(Sqlite, create(&filter)));
    }

    /// Nobody pays for the text of this crate's statements, and others are told apart by theirs.
    #[test]
    fn only_others_statements_are_written() {
        let text = |statement: &dyn QueryFragment<Sqlite>| {
            text_of_others(&diesel::debug_query::<Sqlite, _>(&statement))
        };
        let filter = KeyIs(videos::id.eq(7));
        for own in [
            &Prepared::new(create::<Sqlite>(&filter), &Sqlite) as &dyn QueryFragment<Sqlite>,
            &PreparedQuery::new(create::<Sqlite>(&filter), &Sqlite),
            &Unchecked::statement(create::<Sqlite>(&filter)),
        ] {
            assert_eq!(text(own), None);
            assert!(text_of(own, &Sqlite).is_ok());
        }
        let named = diesel::sql_query("SELECT ?").bind::<diesel::sql_types::Text, _>("-- binds: ;");
        assert_eq!(text(&named).as_deref(), Some("SELECT ?"));
        assert_eq!(text_of_others(&"BEGIN").as_deref(), Some("BEGIN"));
    }

    #[test]
    fn a_statement_without_a_checksum_is_kept_where_none_is_mistaken() {
        let filter = KeyIs(videos::id.eq(7));
        let kept = [
            Unchecked::statement(create(&filter)).is_safe_to_cache_prepared(&Pg),
            Unchecked::statement(create(&filter)).is_safe_to_cache_prepared(&Mysql),
            Unchecked::statement(create(&filter)).is_safe_to_cache_prepared(&Sqlite),
            Unchecked::query(create(&filter)).is_safe_to_cache_prepared(&Pg),
            Unchecked::query(create(&filter)).is_safe_to_cache_prepared(&Mysql),
            Unchecked::query(create(&filter)).is_safe_to_cache_prepared(&Sqlite),
        ];
        let kept = kept.map(Result::unwrap);
        assert_eq!(kept, [false, true, true, false, false, true]);
    }
}
