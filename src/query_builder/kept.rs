//! Which statements a connection keeps prepared, and what guards those against another one of the same name.
//!
//! PostgreSQL knows a kept statement by a name that the driver numbers. A pooler in transaction mode (PgBouncer) sends each
//! transaction over another connection to the server, on which that name may stand for another statement: of this
//! application, or of another process. Therefore
//!
//! - a statement is kept only if its text says which one it is. It takes a bind that has to equal a hash of that text, or it
//!   fails. In the place of another it changes nothing, and another in its place is given binds that it does not take.
//! - every other statement is prepared and executed at once, under no name.
//! - after the first of these failures in a process, nothing is kept on its connections to PostgreSQL. The guards stay:
//!   `diesel_async` prepares each statement under a name and executes it in a message of its own, perhaps elsewhere.
//!
//! MariaDB's and MySQL's clients wait for ever if a kept statement is executed again after it failed in the middle of its rows.
//! There a statement with rows is never kept.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::Binary;
use fnv::FnvBuildHasher;

use crate::backend::{Dialect, ShardedBackend, TAKEN_FOR_ANOTHER};
use crate::query_builder::push_bind;

/// Whether a statement of this process was taken for another one.
static WAS_LOST: AtomicBool = AtomicBool::new(false);

/// Keeps nothing from now on: a server's connection did not hold a statement of this process.
pub(crate) fn statement_was_lost() {
    WAS_LOST.store(true, Ordering::Relaxed);
}

/// The value that one text of a statement alone takes. Its first bytes are no UTF-8, and its length is that of no number, date
/// or UUID, so that no column of such a type takes it.
#[derive(Debug)]
pub struct Guard([u8; 11]);

impl Guard {
    /// The guard of a statement, on PostgreSQL.
    fn of<DB, S>(statement: &S, backend: &DB) -> Option<Self>
    where
        DB: ShardedBackend,
        S: QueryFragment<DB> + QueryId,
    {
        if backend.dialect() != Dialect::Postgres {
            return None;
        }
        let hash = match S::query_id() {
            Some(id) => known_hash(id, || hash_of_text(statement, backend))?,
            None => hash_of_text(statement, backend)?,
        };
        let mut value = [0xff; 11];
        value[3..].copy_from_slice(&hash.to_be_bytes());
        Some(Guard(value))
    }

    /// `CAST(CASE WHEN $n = decode('…', 'hex') THEN '1' ELSE 'diesel_sharded: …' END AS BOOLEAN)`, which is true or fails
    pub(crate) fn push_condition<'b, DB: ShardedBackend>(
        &'b self,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        self.push("'1'", "BOOLEAN", out)
    }

    /// The same behind ` OFFSET`: 0, or the statement fails, also where it has no rows. (The planner takes an unknown `LIMIT` for a
    /// tenth of the rows.)
    pub(crate) fn push_offset<'b, DB: ShardedBackend>(
        &'b self,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        self.push("'0'", "BIGINT", out)
    }

    fn push<'b, DB: ShardedBackend>(
        &'b self,
        value: &str,
        sql_type: &str,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        out.push_sql("CAST(CASE WHEN ");
        push_bind::<Binary, [u8], DB>(&self.0, out.reborrow())?;
        out.push_sql(" = decode('");
        for byte in self.0 {
            out.push_sql(&format!("{byte:02x}"));
        }
        out.push_sql("', 'hex') THEN ");
        out.push_sql(value);
        out.push_sql(" ELSE '");
        out.push_sql(TAKEN_FOR_ANOTHER);
        out.push_sql("' END AS ");
        out.push_sql(sql_type);
        out.push_sql(")");
        Ok(())
    }
}

/// The hash of a statement's text.
fn hash_of_text<DB: ShardedBackend>(
    statement: &impl QueryFragment<DB>,
    backend: &DB,
) -> Option<u64> {
    let mut text = backend.query_builder();
    statement.to_sql(&mut text, backend).ok()?;
    Some(fnv_1a(text.finish().as_bytes()))
}

/// The hash of the one text that PostgreSQL gets for this query id: writing a text costs more than all else that a count does in
/// this process.
fn known_hash(id: TypeId, hash: impl FnOnce() -> Option<u64>) -> Option<u64> {
    thread_local! {
        static KNOWN: RefCell<HashMap<TypeId, u64, FnvBuildHasher>> = RefCell::default();
    }
    // While the thread ends there is no map any more.
    let known = KNOWN.try_with(|known| known.borrow().get(&id).copied());
    if let Ok(Some(hash)) = known {
        return Some(hash);
    }
    let hash = hash()?;
    let _ = KNOWN.try_with(|known| known.borrow_mut().insert(id, hash));
    Some(hash)
}

/// The same in each build, so that processes of two releases have one guard for one text.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A statement that says where its guard stands.
pub trait Keep<DB: ShardedBackend>: QueryFragment<DB> {
    /// Writes the statement with its guard: behind its last condition, if it ends in that.
    fn walk_guarded<'b>(
        &'b self,
        guard: &'b Guard,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        self.walk_ast(out.reborrow())?;
        out.push_sql(" AND ");
        guard.push_condition(out)
    }
}

impl<Q: Keep<DB>, DB: ShardedBackend> Keep<DB> for &Q {
    fn walk_guarded<'b>(&'b self, guard: &'b Guard, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        (**self).walk_guarded(guard, out)
    }
}

/// A statement that is sent again and again, and so is kept prepared.
pub(crate) struct Kept<Q> {
    statement: Q,
    guard: Option<Guard>,
}

impl<Q> Kept<Q> {
    pub(crate) fn new<DB>(statement: Q, backend: &DB) -> Self
    where
        DB: ShardedBackend,
        Q: Keep<DB> + QueryId,
    {
        let guard = Guard::of(&statement, backend);
        Kept { statement, guard }
    }
}

impl<Q: Keep<DB>, DB: ShardedBackend> QueryFragment<DB> for Kept<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        match &self.guard {
            Some(guard) => {
                if WAS_LOST.load(Ordering::Relaxed) {
                    out.unsafe_to_cache_prepared();
                }
                self.statement.walk_guarded(guard, out)
            }
            None => {
                if !out.backend().dialect().keeps_statements() {
                    out.unsafe_to_cache_prepared();
                }
                self.statement.walk_ast(out)
            }
        }
    }
}

/// A `SELECT` without a limit that is sent again and again, and so is kept prepared, but on MySQL.
pub(crate) struct KeptQuery<Q> {
    query: Q,
    guard: Option<Guard>,
}

impl<Q> KeptQuery<Q> {
    pub(crate) fn new<DB>(query: Q, backend: &DB) -> Self
    where
        DB: ShardedBackend,
        Q: QueryFragment<DB> + QueryId,
    {
        let guard = Guard::of(&query, backend);
        KeptQuery { query, guard }
    }
}

impl<Q: QueryFragment<DB>, DB: ShardedBackend> QueryFragment<DB> for KeptQuery<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let is_kept = match self.guard {
            Some(_) => !WAS_LOST.load(Ordering::Relaxed),
            None => out.backend().dialect().keeps_queries(),
        };
        if !is_kept {
            out.unsafe_to_cache_prepared();
        }
        self.query.walk_ast(out.reborrow())?;
        match &self.guard {
            Some(guard) => {
                out.push_sql(" OFFSET ");
                guard.push_offset(out)
            }
            None => {
                let all_rows = out.backend().dialect().all_rows();
                out.push_sql(all_rows);
                Ok(())
            }
        }
    }
}

/// A statement or a query without a guard, which is kept where nothing can be taken for another.
pub(crate) struct Passing<Q> {
    statement: Q,
    has_rows: bool,
}

impl<Q> Passing<Q> {
    pub(crate) fn statement(statement: Q) -> Self {
        Passing {
            statement,
            has_rows: false,
        }
    }

    pub(crate) fn query(statement: Q) -> Self {
        Passing {
            statement,
            has_rows: true,
        }
    }
}

impl<Q: QueryFragment<DB>, DB: ShardedBackend> QueryFragment<DB> for Passing<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        let is_kept = match self.has_rows {
            true => dialect.keeps_queries(),
            false => dialect.keeps_statements(),
        };
        if !is_kept {
            out.unsafe_to_cache_prepared();
        }
        self.statement.walk_ast(out)
    }
}

macro_rules! as_what_it_holds {
    ($($wrapper:ident)+) => {$(
        impl<Q: QueryId> QueryId for $wrapper<Q> {
            type QueryId = $wrapper<Q::QueryId>;
            const HAS_STATIC_QUERY_ID: bool = Q::HAS_STATIC_QUERY_ID;
        }

        impl<Q: Query> Query for $wrapper<Q> {
            type SqlType = Q::SqlType;
        }
    )+};
}

as_what_it_holds!(Kept KeptQuery Passing);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::{CreateShards, KeyIs, SelectParents};
    use crate::test_schema::{sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::prelude::*;
    use diesel::sqlite::Sqlite;
    use std::marker::PhantomData;

    /// What stands in the place of `…` in a text with a guard.
    fn hash(text: &str) -> &str {
        let (_, behind) = text.split_once("decode('ffffff").expect("a guard");
        behind.split_once('\'').expect("its end").0
    }

    fn create(
        filter: &KeyIs<diesel::dsl::Eq<videos::id, i64>>,
    ) -> CreateShards<'_, videos::table, KeyIs<diesel::dsl::Eq<videos::id, i64>>> {
        CreateShards {
            filter,
            shard: 3,
            table: PhantomData,
        }
    }

    #[test]
    fn a_guard_stands_where_it_is_always_looked_at() {
        let filter = KeyIs(videos::id.eq(7));
        let kept = sql!(Pg, Kept::new(create(&filter), &Pg));
        let guard = format!(
            "CAST(CASE WHEN $3 = decode('ffffff{}', 'hex') THEN '0' ELSE '{TAKEN_FOR_ANOTHER}' END AS BIGINT)",
            hash(&kept)
        );
        assert_eq!(
            kept,
            format!(
                r#"INSERT INTO "videos_shards" ("id", "shard") SELECT "videos"."id", $1 FROM "videos" WHERE ("videos"."id" = $2) ORDER BY "videos"."id" OFFSET {guard} ON CONFLICT ("id", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE"#
            )
        );
        let select = |selection| SelectParents::<videos::table, _, _> {
            selection,
            filter: &filter,
            table: PhantomData,
        };
        let views = sql!(Pg, KeptQuery::new(select(videos::views), &Pg));
        assert!(views.contains(r#"("videos"."id" = $1) OFFSET CAST(CASE WHEN $2 = decode("#));
        assert_ne!(hash(&views), hash(&kept));
        let limited = sql!(Mysql, KeptQuery::new(select(videos::views), &Mysql));
        assert!(limited.ends_with("(`videos`.`id` = ?) LIMIT 18446744073709551615"));
        let plain = sql!(Sqlite, Kept::new(create(&filter), &Sqlite));
        assert_eq!(plain, sql!(Sqlite, create(&filter)));
    }

    #[test]
    fn what_has_no_guard_is_kept_where_nothing_is_mistaken() {
        let filter = KeyIs(videos::id.eq(7));
        let statement = Passing::statement(create(&filter));
        let query = Passing::query(create(&filter));
        let kept = [
            statement.is_safe_to_cache_prepared(&Pg),
            statement.is_safe_to_cache_prepared(&Mysql),
            statement.is_safe_to_cache_prepared(&Sqlite),
            query.is_safe_to_cache_prepared(&Pg),
            query.is_safe_to_cache_prepared(&Mysql),
            query.is_safe_to_cache_prepared(&Sqlite),
        ];
        let kept = kept.map(Result::unwrap);
        assert_eq!(kept, [false, true, true, false, false, true]);
    }
}
