//! The guard of a kept statement: a value that no other statement takes.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;

use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::Binary;
use fnv::FnvBuildHasher;

use crate::backend::{Dialect, ShardedBackend, TAKEN_FOR_ANOTHER};
use crate::query_builder::{Sql, bind, sql, walk};

/// The value that only the statement of one text takes. Its first bytes are no UTF-8, and no number, date or UUID has its length, so
/// that no column of such a type takes it.
#[derive(Debug)]
pub struct TextGuard([u8; 11]);

impl TextGuard {
    /// The guard of a statement, on PostgreSQL.
    pub(super) fn of<DB, S>(statement: &S, backend: &DB) -> Option<Self>
    where
        DB: ShardedBackend,
        S: QueryFragment<DB> + QueryId,
    {
        match backend.dialect() {
            Dialect::Postgres => Self::of_text(S::query_id(), statement, backend),
            _ => None,
        }
    }

    /// The guard of the statement that is known by `id`.
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
        Some(TextGuard(value))
    }

    /// `CAST(CASE WHEN $n = decode('…', 'hex') THEN '1' ELSE 'diesel_sharded: …' END AS BOOLEAN)`, which is true or fails
    pub(crate) fn condition<'b, DB: ShardedBackend>(&'b self) -> impl Sql<'b, DB> {
        self.cast("'1'", "BOOLEAN")
    }

    /// The same for ` OFFSET`: 0, or the statement fails, even where it has no rows. (It is no `LIMIT`, since the planner takes an
    /// unknown one for a tenth of the rows.)
    pub(crate) fn offset<'b, DB: ShardedBackend>(&'b self) -> impl Sql<'b, DB> {
        self.cast("'0'", "BIGINT")
    }

    /// Its bytes as hexadecimal digits. Diesel walks a statement several times for each count, so nothing is allocated here.
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

/// The hash of a statement's text.
fn hash_of_text<DB: ShardedBackend>(
    statement: &dyn QueryFragment<DB>,
    backend: &DB,
) -> Option<u64> {
    let mut text = backend.query_builder();
    statement.to_sql(&mut text, backend).ok()?;
    Some(fnv_1a(text.finish().as_bytes()))
}

/// The hash of the one text that this query id has on PostgreSQL. It is kept, since writing the text costs more than all other
/// work of a count in this process.
fn known_hash(id: TypeId, hash: &dyn Fn() -> Option<u64>) -> Option<u64> {
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

/// A hash that is the same in each build, so that processes of two releases have one guard for one text.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A statement that can be written with a guard.
pub trait Prepare<DB: ShardedBackend>: QueryFragment<DB> {
    /// Writes the statement with its guard. By default the guard follows the last condition, which has to end the statement.
    fn walk_guarded<'b>(
        &'b self,
        guard: &'b TextGuard,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        sql!(out; walk(self), " AND ", guard.condition())
    }
}

impl<Q: Prepare<DB>, DB: ShardedBackend> Prepare<DB> for &Q {
    fn walk_guarded<'b>(
        &'b self,
        guard: &'b TextGuard,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        (**self).walk_guarded(guard, out)
    }
}
