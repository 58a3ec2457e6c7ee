//! Parents that are held: locked together with their shards, so that no total of theirs can change but by the holder.
//!
//! The parent's row lock comes first and is the mutex: while it is held, nobody else holds the parent, and no shard can be
//! created, since that locks the parent for the foreign key. Then the shards are locked, in the order in which counts lock
//! them. Counts on these shards wait until the holder's transaction ends; nothing is lost or comes in between.

use std::marker::PhantomData;

use diesel::debug_query;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::{Integer, Nullable, Text};

use crate::backend::{ShardedBackend, Strength};
use crate::connection::{Io, Link, LoadIo, TransactionOptions};
use crate::engine::{KeyedTable, RetryLoop};
use crate::error::Error;
use crate::model::{Amount, SHARD, ShardedColumn, ShardedTable, ShardsColumn};
use crate::operation::shards_table::literal;
use crate::policy::RetryPolicy;
use crate::query_builder::{
    KeysAre, push_bind, push_column, push_from_shards, push_key, push_key_to_read, push_shard_is,
    push_shards_as_parent, push_shards_column, push_total, push_zeros,
};
use crate::unfit::{FieldState, Unfit};

/// Parents of `T` that the connection's transaction has locked, with all their shards or with one.
///
/// Only parents whose locks were acquired are in it. A parent that was picked before and is absent when it is to be locked may
/// come back under the same key, with shards of its own.
pub(crate) struct Held<T: KeyedTable<DB>, DB: ShardedBackend> {
    /// In key order.
    locked: Vec<T::Key>,
    keys: KeysAre<T::KeyIs>,
    shard: Option<i32>,
    /// How many of the shards that were locked are not empty, where rows can be locked.
    filled: Option<usize>,
}

/// What each parent that is held holds of each of some fields, in key order.
pub(crate) type States = Vec<Vec<FieldState>>;

/// What was moved from shards to bases.
pub(crate) struct Moved {
    /// The number of parents that had something to move.
    pub(crate) parents: usize,
    /// The number of shards that it was moved from.
    pub(crate) shards: usize,
    /// How much of each field.
    pub(crate) sums: Vec<Amount>,
}

/// Which shards are held, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shards {
    /// The one of this number, or all.
    pub(crate) only: Option<i32>,
    /// A lock that cannot be acquired at once is a [`LockTimeout`](crate::Conflict::LockTimeout).
    pub(crate) at_once: bool,
}

impl Shards {
    /// All, once every lock was acquired.
    pub(crate) const ALL: Self = Shards {
        only: None,
        at_once: false,
    };
}

/// A transaction of its own that may hold parents and is tried again after a conflict, or a savepoint of the caller's.
pub(crate) fn holding<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    retry: RetryPolicy,
) -> QueryResult<RetryLoop>
where
    M: Io<Conn>,
{
    let dialect = link.dialect();
    let options = TransactionOptions {
        isolation: dialect.holding_isolation(),
        ..TransactionOptions::guarded()
    };
    RetryLoop::transaction(link, retry, options)
}

impl<T: KeyedTable<DB>, DB: ShardedBackend> Held<T, DB> {
    /// Parents that the open transaction has locked already.
    pub(crate) fn locked(locked: Vec<T::Key>) -> Self {
        Held {
            keys: KeysAre(locked.iter().cloned().map(T::key_is).collect()),
            locked,
            shard: None,
            filled: None,
        }
    }

    /// Locks the parents that `keys` names and that are there, and then their shards, in the transaction that is open.
    pub(crate) async fn lock<M, Conn>(
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<T::KeyIs>,
        shards: Shards,
    ) -> QueryResult<Self>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let strength = match shards.at_once {
            true => Strength::ExclusiveAtOnce,
            false => Strength::Exclusive,
        };
        let mut held = Self::lock_parents(link, keys, strength).await?;
        held.shard = shards.only;
        let clause = link.dialect().locks_rows(strength);
        if let (Some(clause), false) = (clause, held.is_empty()) {
            let of = held.rows(Rows::Shards);
            let lock = LockShards { of, clause };
            let locked = link.load::<i32, _>(lock).await?;
            held.filled = Some(locked.iter().filter(|filled| **filled != 0).count());
        }
        Ok(held)
    }

    /// Locks the parents that `keys` names and that are there, without their shards. On SQLite, where other writers already
    /// wait, it only finds them.
    pub(crate) async fn lock_parents<M, Conn>(
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<T::KeyIs>,
        strength: Strength,
    ) -> QueryResult<Self>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let clause = link.dialect().locks_rows(strength);
        let lock = LockParents::<T, _> {
            keys,
            clause: clause.unwrap_or_default(),
            table: PhantomData,
        };
        let locked = T::load_keys(link, lock).await?;
        Ok(Self::locked(locked))
    }

    /// Locks the parents that `keys` names and that are there, and then their shards; all that can be seen have to be lockable.
    ///
    /// # Errors
    /// [`Unfit::NotLocked`] for a parent that can be seen and not be locked.
    pub(crate) async fn lock_all<M, Conn>(
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<T::KeyIs>,
    ) -> QueryResult<Self>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let mut tries = 0;
        loop {
            let held = Self::lock(link, keys, Shards::ALL).await?;
            held.refuse_hidden_shards(link).await?;
            let Some(key) = held.not_locked(link, keys).await?.pop() else {
                return Ok(held);
            };
            tries += 1;
            if tries == TRIES_TO_LOCK {
                return Err(Self::unfit(key, Unfit::NotLocked));
            }
        }
    }

    /// The parents among `keys` that can be seen and are not locked, where row security may hide them from locks. One that has come
    /// back since may be among them.
    pub(crate) async fn not_locked<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<T::KeyIs>,
    ) -> QueryResult<Vec<T::Key>>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let all_are_locked = self.locked.len() == keys.0.len();
        if all_are_locked || !link.dialect().hides_rows_from_locks() {
            return Ok(vec![]);
        }
        let not_locked = NotLocked::<T, _> {
            keys,
            locked: &self.keys,
            table: PhantomData,
        };
        T::load_keys(link, not_locked).await
    }

    /// Refuses parents whose totals may be other than this role sees.
    ///
    /// # Errors
    /// [`Unfit::HiddenShards`].
    pub(crate) async fn refuse_hidden_shards<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let hides_rows = link.dialect().hides_rows_from_locks();
        let (true, Some(key)) = (hides_rows, self.locked.first()) else {
            return Ok(());
        };
        let find = FindShardsPolicy::<T>(PhantomData);
        let active = link.load::<i32, _>(find).await?;
        match active.is_empty() {
            true => Ok(()),
            false => Err(Self::unfit(key.clone(), Unfit::HiddenShards)),
        }
    }

    /// Whether no parent is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.locked.is_empty()
    }

    /// The keys of the parents that are held, in their order.
    pub(crate) fn parents(&self) -> &[T::Key] {
        &self.locked
    }

    /// A `WHERE` clause that names the parents that are held.
    pub(crate) fn keys(&self) -> &KeysAre<T::KeyIs> {
        &self.keys
    }

    /// The numbers of the shards that there are, held or not.
    pub(crate) async fn shards<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<i32>>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        shards_of::<T, _, _, _>(link, &self.keys).await
    }

    /// What the parents that are held hold of `fields`: the bases, and the sums of the shards unless these are to be `Replaced`,
    /// whose sum may be out of every range.
    ///
    /// # Errors
    /// [`Unfit::Removed`] if not all of them are there, [`Unfit::Altered`] for a base that is no number.
    pub(crate) async fn states<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields,
        sums: Sums,
    ) -> QueryResult<States>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let of = self.rows(Rows::Parents);
        let read = ReadStates { of, fields, sums };
        let texts = link.load::<Option<String>, _>(read);
        let texts = texts.await?;
        if let (true, Some(key)) = (texts.len() != self.locked.len(), self.locked.first()) {
            return Err(Self::unfit(key.clone(), Unfit::Removed));
        }
        let mut states = Vec::with_capacity(texts.len());
        for (key, text) in self.locked.iter().zip(&texts) {
            match parse_states(fields, text.as_deref().unwrap_or_default()) {
                Ok(state) => states.push(state),
                Err(reason) => return Err(Self::unfit(key.clone(), reason)),
            }
        }
        Ok(states)
    }

    /// Compares what the parents that are held hold with what they are to hold after an operation.
    ///
    /// # Errors
    /// [`Error::Unfit`] if anything differs, whatever the reason.
    async fn check<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields,
        before: &States,
        expected: &States,
    ) -> QueryResult<()>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let dialect = link.dialect();
        let found = self.states(link, fields, Sums::Read).await?;
        let parents = before.iter().zip(expected).zip(&found).zip(&self.locked);
        for (((before, expected), found), key) in parents {
            let fields = before.iter().zip(expected).zip(found).zip(fields);
            for (((before, expected), found), field) in fields {
                let rounds = dialect.rounds_sums(field.column_type);
                if let Some(unfit) = Unfit::between(field.name, before, expected, found, rounds) {
                    return Err(Self::unfit(key.clone(), unfit));
                }
            }
        }
        Ok(())
    }

    /// The error of a parent that is unfit.
    pub(crate) fn unfit(key: T::Key, reason: Unfit) -> DieselError {
        let key = T::key_is(key);
        let shown = debug_query::<DB, _>(&key).to_string();
        let values = shown.split_once(" -- binds: [");
        let values = values.and_then(|(_, values)| values.strip_suffix(']'));
        let key = values.unwrap_or(&shown).to_owned();
        Error::Unfit {
            table: T::SHARDS_TABLE,
            key,
            reason,
        }
        .into()
    }

    /// Adds the shards that are held to the bases and empties them: no total changes.
    ///
    /// # Errors
    /// [`Error::Unfit`] if a base or a shard came to hold anything else.
    pub(crate) async fn fold<M, Conn>(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<Moved>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let mut sums = zeros(T::FIELDS);
        if self.is_empty() {
            return Ok(Moved {
                parents: 0,
                shards: 0,
                sums,
            });
        }
        let fields: Vec<_> = T::FIELDS.iter().collect();
        let before = self.states(link, &fields, Sums::Read).await?;
        let mut added = before.clone();
        let mut expected = before.clone();
        for (added, expected) in added.iter_mut().zip(&mut expected) {
            let states = added.iter_mut().zip(expected).zip(T::FIELDS);
            for (((added, expected), field), sum) in states.zip(&mut sums) {
                added.base += &added.shards;
                *sum += &added.shards;
                *expected = FieldState {
                    base: added.base.clone(),
                    shards: Amount::zero(field.column_type),
                };
            }
        }
        let of = self.rows(Rows::Parents);
        let parents = link.execute(AddShardsToBases { of }).await?;
        // What a trigger on the parent adds to shards must not be emptied with the rest.
        self.check(link, &fields, &before, &added).await?;
        let shards = self.empty(link, fields.clone()).await?;
        if self.filled.is_some_and(|filled| shards > filled) {
            return Err(appeared());
        }
        self.check(link, &fields, &added, &expected).await?;
        Ok(Moved {
            parents,
            shards,
            sums,
        })
    }

    /// Writes columns of the bases, `assignments`, and empties the shards of these `fields` if `empties`, so that the parents hold
    /// what is `expected` of them, and nothing else.
    ///
    /// # Errors
    /// [`Error::Unfit`] if they do not.
    pub(crate) async fn write_bases<A, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        assignments: &A,
        fields: &Fields,
        empties: bool,
        before: &States,
        expected: &States,
    ) -> QueryResult<()>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
        A: QueryFragment<DB>,
    {
        let of = self.rows(Rows::Parents);
        link.execute(Write { of, assignments }).await?;
        if empties {
            self.empty(link, fields.to_vec()).await?;
        }
        self.check(link, fields, before, expected).await
    }

    /// Writes columns of the shards, whatever that does to the totals: the bases are to be [written](Self::write_bases) next.
    pub(crate) async fn write_shards<A, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        assignments: &A,
    ) -> QueryResult<usize>
    where
        M: Io<Conn, Backend = DB>,
        A: QueryFragment<DB>,
    {
        let of = self.rows(Rows::Shards);
        link.execute(Write { of, assignments }).await
    }

    /// Sets fields of the shards to zero. The number of shards that were not.
    async fn empty<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: Vec<&'static ShardsColumn>,
    ) -> QueryResult<usize>
    where
        M: Io<Conn, Backend = DB>,
    {
        let of = self.rows(Rows::Shards);
        link.execute(EmptyShards { of, fields }).await
    }

    /// Removes the shards numbered `first` and above that are empty. The number removed.
    pub(crate) async fn remove_shards<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        first: u16,
    ) -> QueryResult<usize>
    where
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        if self.is_empty() {
            return Ok(0);
        }
        let of = self.rows(Rows::Shards);
        let first = i32::from(first);
        link.execute(RemoveShards { of, first }).await
    }

    fn rows(&self, rows: Rows) -> HeldRows<'_, T, KeysAre<T::KeyIs>> {
        HeldRows {
            rows,
            keys: &self.keys,
            shard: self.shard,
            table: PhantomData,
        }
    }
}

/// A shard that was not locked was emptied. The foreign key keeps new shards away from a parent that is held, unless a
/// connection that counts has switched foreign keys off.
fn appeared() -> DieselError {
    let message = "a shard appeared while its row was locked: a connection counts with foreign keys switched off";
    DieselError::DatabaseError(
        DatabaseErrorKind::SerializationFailure,
        Box::new(message.to_owned()),
    )
}

/// A parent that can be seen and not be locked may have been inserted in between: so often it is tried again.
pub(crate) const TRIES_TO_LOCK: u8 = 3;

/// The numbers of the shards that parents have.
pub(crate) async fn shards_of<T, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    keys: &KeysAre<T::KeyIs>,
) -> QueryResult<Vec<i32>>
where
    T: KeyedTable<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let of = HeldRows::<T, _> {
        rows: Rows::Shards,
        keys,
        shard: None,
        table: PhantomData,
    };
    link.load::<i32, _>(SelectShards { of }).await
}

/// Nothing of each field.
pub(crate) fn zeros(fields: &[ShardsColumn]) -> Vec<Amount> {
    let zeros = fields.iter().map(|field| Amount::zero(field.column_type));
    zeros.collect()
}

/// Some fields of a table, in their order.
pub(crate) type Fields = [&'static ShardsColumn];

/// The field of a column.
pub(crate) fn field<C: ShardedColumn>() -> QueryResult<&'static ShardsColumn> {
    let mut fields = C::Table::FIELDS.iter();
    fields
        .find(|field| field.name == C::NAME)
        .ok_or(DieselError::NotFound) // every sharded column is one
}

/// Whether the sums of shards are read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sums {
    Read,
    /// What the shards hold is going to be thrown away: 0 stands for it.
    Replaced,
}

/// Reads what [`ReadStates`] gives of one parent.
fn parse_states(fields: &Fields, text: &str) -> Result<Vec<FieldState>, Unfit> {
    let mut numbers = text.split(' ');
    let parse = |field: &ShardsColumn, text: Option<&str>| {
        let text = text.unwrap_or_default();
        Amount::parse(text, field.column_type).map_err(|_| Unfit::Altered {
            field: field.name,
            expected: "a number".to_owned(),
            found: format!("`{text}`"),
        })
    };
    let states = fields.iter().map(|field| {
        Ok(FieldState {
            base: parse(field, numbers.next())?,
            shards: parse(field, numbers.next())?,
        })
    });
    states.collect()
}

/// Which of the rows that are held a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    Parents,
    Shards,
}

/// The rows that a statement is about.
struct HeldRows<'a, T, W> {
    rows: Rows,
    keys: &'a W,
    shard: Option<i32>,
    table: PhantomData<T>,
}

impl<T, W> HeldRows<'_, T, W> {
    /// `parent`, or `shards AS parent`
    fn push_table<DB>(&self, out: AstPass<'_, '_, DB>) -> QueryResult<()>
    where
        T: ShardedTable + QueryFragment<DB>,
        DB: ShardedBackend,
    {
        match self.rows {
            Rows::Parents => T::TABLE.walk_ast(out),
            Rows::Shards => push_shards_as_parent::<T, DB>(out),
        }
    }

    /// ` WHERE (keys)`, of shards with ` AND parent.shard = $n` if it is one
    fn push_where<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        T: ShardedTable + QueryFragment<DB>,
        W: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        self.keys.walk_ast(out.reborrow())?;
        match (self.rows, &self.shard) {
            (Rows::Shards, Some(shard)) => {
                out.push_sql(" AND ");
                push_shard_is::<T, DB>(shard, out)
            }
            _ => Ok(()),
        }
    }
}

/// See [`Held::lock_parents`].
///
/// ```sql
/// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE
/// ```
struct LockParents<'a, T, W> {
    keys: &'a W,
    clause: &'static str,
    table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for LockParents<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        push_key_to_read::<T, DB>(out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.keys.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(out.backend().dialect().all_rows());
        out.push_sql(self.clause);
        Ok(())
    }
}

impl<T: Table<PrimaryKey: Expression>, W> Query for LockParents<'_, T, W> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

/// See [`Held::not_locked`].
///
/// ```sql
/// SELECT "videos"."id" FROM "videos" WHERE ("videos"."id" = $1 OR …) AND NOT ("videos"."id" = $2 OR …)
///     AND row_security_active('"videos"')
/// ```
struct NotLocked<'a, T, P> {
    keys: &'a KeysAre<P>,
    locked: &'a KeysAre<P>,
    table: PhantomData<T>,
}

impl<T, P, DB> QueryFragment<DB> for NotLocked<'_, T, P>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    P: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        push_key_to_read::<T, DB>(out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.keys.walk_ast(out.reborrow())?;
        if !self.locked.0.is_empty() {
            out.push_sql(" AND NOT ");
            self.locked.push_any(out.reborrow())?;
        }
        let mut table = out.backend().query_builder();
        T::TABLE.to_sql(&mut table, out.backend())?;
        out.push_sql(" AND row_security_active(");
        out.push_sql(&literal(out.backend().dialect(), &table.finish()));
        out.push_sql(")");
        Ok(())
    }
}

impl<T: Table<PrimaryKey: Expression>, P> Query for NotLocked<'_, T, P> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

/// Reads a row if row security applies to this role's view of the shards table.
///
/// ```sql
/// SELECT 1 WHERE row_security_active('"videos_shards"')
/// ```
struct FindShardsPolicy<T>(PhantomData<T>);

impl<T, DB> QueryFragment<DB> for FindShardsPolicy<T>
where
    DB: ShardedBackend,
    T: ShardedTable,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut table = out.backend().query_builder();
        table.push_identifier(T::SHARDS_TABLE)?;
        out.push_sql("SELECT 1 WHERE row_security_active(");
        out.push_sql(&literal(out.backend().dialect(), &table.finish()));
        out.push_sql(")");
        Ok(())
    }
}

impl<T> Query for FindShardsPolicy<T> {
    type SqlType = Integer;
}

impl<T: 'static> QueryId for FindShardsPolicy<T> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// See [`Held::lock`].
///
/// ```sql
/// SELECT CASE WHEN "videos"."views" <> 0 OR "videos"."likes" <> 0 THEN 1 ELSE 0 END FROM "videos_shards" AS "videos"
/// WHERE … ORDER BY "videos"."id", "videos"."shard" FOR UPDATE
/// ```
struct LockShards<'a, T, W> {
    of: HeldRows<'a, T, W>,
    clause: &'static str,
}

impl<T, W, DB> QueryFragment<DB> for LockShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT CASE WHEN ");
        for (i, field) in T::FIELDS.iter().enumerate() {
            if i > 0 {
                out.push_sql(" OR ");
            }
            push_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(" <> 0");
        }
        out.push_sql(" THEN 1 ELSE 0 END FROM ");
        self.of.push_table(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(", ");
        push_column::<T, DB>(SHARD, out.reborrow())?;
        out.push_sql(out.backend().dialect().all_rows());
        out.push_sql(self.clause);
        Ok(())
    }
}

impl<T, W> Query for LockShards<'_, T, W> {
    type SqlType = Integer;
}

/// See [`Held::shards`].
///
/// ```sql
/// SELECT "videos"."shard" FROM "videos_shards" AS "videos" WHERE …
/// ```
struct SelectShards<'a, T, W> {
    of: HeldRows<'a, T, W>,
}

impl<T, W, DB> QueryFragment<DB> for SelectShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        push_column::<T, DB>(SHARD, out.reborrow())?;
        out.push_sql(" FROM ");
        self.of.push_table(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(out.backend().dialect().all_rows());
        Ok(())
    }
}

impl<T, W> Query for SelectShards<'_, T, W> {
    type SqlType = Integer;
}

/// See [`Held::states`].
///
/// ```sql
/// SELECT CAST("videos"."views" AS TEXT) || ' ' || CAST(COALESCE((SELECT SUM("videos_shards"."views") FROM "videos_shards"
///     WHERE "videos_shards"."id" = "videos"."id"), 0) AS TEXT) || ' ' || … FROM "videos" WHERE … ORDER BY "videos"."id"
/// -- MySQL, MariaDB: CONCAT(CAST(… AS CHAR), ' ', …), and all SELECTs end in FOR UPDATE
/// ```
struct ReadStates<'a, T, W> {
    of: HeldRows<'a, T, W>,
    fields: &'a Fields,
    sums: Sums,
}

impl<T, W, DB> QueryFragment<DB> for ReadStates<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        let [joined, between, end] = dialect.joined_texts();
        out.push_sql("SELECT ");
        out.push_sql(joined);
        for (i, field) in self.fields.iter().enumerate() {
            let (cast, as_text) = dialect.number_as_text(field.column_type);
            if i > 0 {
                out.push_sql(between);
            }
            out.push_sql(cast);
            push_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(as_text);
            out.push_sql(between);
            if self.sums == Sums::Replaced {
                out.push_sql("'0'");
                continue;
            }
            out.push_sql(cast);
            out.push_sql("COALESCE((SELECT SUM(");
            push_shards_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(")");
            push_from_shards::<T, DB>(self.of.shard.as_ref(), out.reborrow())?;
            out.push_sql(dialect.reads_what_is_locked());
            out.push_sql("), 0)");
            out.push_sql(as_text);
        }
        out.push_sql(end);
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(dialect.all_rows());
        out.push_sql(dialect.reads_what_is_locked());
        Ok(())
    }
}

impl<T, W> Query for ReadStates<'_, T, W> {
    type SqlType = Nullable<Text>;
}

/// Writes columns of the parents or of their shards.
///
/// ```sql
/// UPDATE "videos" SET … WHERE …
/// UPDATE "videos_shards" AS "videos" SET … WHERE …
/// ```
struct Write<'a, T, W, A> {
    of: HeldRows<'a, T, W>,
    assignments: &'a A,
}

impl<T, W, A, DB> QueryFragment<DB> for Write<'_, T, W, A>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    A: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        self.of.push_table(out.reborrow())?;
        out.push_sql(" SET ");
        self.assignments.walk_ast(out.reborrow())?;
        self.of.push_where(out)
    }
}

/// Adds shards to their bases where one of them is not zero.
///
/// ```sql
/// UPDATE "videos" SET "views" = total, "likes" = total
/// WHERE … AND EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
///     AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0))
/// ```
struct AddShardsToBases<'a, T, W> {
    of: HeldRows<'a, T, W>,
}

impl<T, W, DB> QueryFragment<DB> for AddShardsToBases<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let shard = self.of.shard.as_ref();
        out.push_sql("UPDATE ");
        T::TABLE.walk_ast(out.reborrow())?;
        for (i, field) in T::FIELDS.iter().enumerate() {
            out.push_sql(if i == 0 { " SET " } else { ", " });
            out.push_identifier(field.name)?;
            out.push_sql(" = ");
            push_total::<T, DB>(field, shard, out.reborrow())?;
        }
        self.of.push_where(out.reborrow())?;
        out.push_sql(" AND EXISTS (SELECT 1");
        push_from_shards::<T, DB>(shard, out.reborrow())?;
        out.push_sql(" AND (");
        for (i, field) in T::FIELDS.iter().enumerate() {
            if i > 0 {
                out.push_sql(" OR ");
            }
            push_shards_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(" <> 0");
        }
        out.push_sql("))");
        Ok(())
    }
}

/// Sets fields of shards to zero where they are not.
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = 0, "likes" = 0
/// WHERE … AND ("videos"."views" <> 0 OR "videos"."likes" <> 0)
/// ```
struct EmptyShards<'a, T, W> {
    of: HeldRows<'a, T, W>,
    fields: Vec<&'static ShardsColumn>,
}

impl<T, W, DB> QueryFragment<DB> for EmptyShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        self.of.push_table(out.reborrow())?;
        out.push_sql(" SET ");
        push_zeros(self.fields.iter().copied(), out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        for (i, field) in self.fields.iter().enumerate() {
            out.push_sql(if i == 0 { " AND (" } else { " OR " });
            push_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(" <> 0");
        }
        out.push_sql(")");
        Ok(())
    }
}

/// Deletes shards from a number on that are empty.
///
/// ```sql
/// DELETE FROM "videos_shards" AS "videos" WHERE … AND "videos"."shard" >= $n AND "videos"."views" = 0 AND …
/// -- MySQL, MariaDB
/// DELETE `videos` FROM `videos_shards` AS `videos` WHERE … AND `videos`.`shard` >= ? AND `videos`.`views` = 0 AND …
/// ```
struct RemoveShards<'a, T, W> {
    of: HeldRows<'a, T, W>,
    first: i32,
}

impl<T, W, DB> QueryFragment<DB> for RemoveShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE ");
        if out.backend().dialect().deletes_by_alias() {
            T::TABLE.walk_ast(out.reborrow())?;
            out.push_sql(" ");
        }
        out.push_sql("FROM ");
        self.of.push_table(out.reborrow())?;
        self.of.push_where(out.reborrow())?;
        out.push_sql(" AND ");
        push_column::<T, DB>(SHARD, out.reborrow())?;
        out.push_sql(" >= ");
        push_bind::<Integer, i32, DB>(&self.first, out.reborrow())?;
        for field in T::FIELDS {
            out.push_sql(" AND ");
            push_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(" = 0");
        }
        Ok(())
    }
}

macro_rules! no_query_id {
    ($($statement:ident<$($part:ident),+>)+) => {$(
        /// Its text has one length for each number of keys.
        impl<$($part),+> QueryId for $statement<'_, $($part),+> {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }
    )+};
}

no_query_id! {
    LockParents<T, W> NotLocked<T, P> LockShards<T, W> SelectShards<T, W> ReadStates<T, W> Write<T, W, A>
    AddShardsToBases<T, W> EmptyShards<T, W> RemoveShards<T, W>
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos::dsl::id;
    use crate::test_schema::{sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    macro_rules! rows {
        ($rows:ident, $keys:expr, $shard:expr) => {
            HeldRows::<table::table, _> {
                rows: Rows::$rows,
                keys: &$keys,
                shard: $shard,
                table: PhantomData,
            }
        };
    }

    #[test]
    fn parents_are_locked_and_then_shards_in_key_order() {
        let keys = KeysAre(vec![id.eq(1), id.eq(2)]);
        let lock = LockParents::<table::table, _> {
            keys: &keys,
            clause: " FOR UPDATE",
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, lock),
            r#"SELECT "videos"."id" FROM "videos" WHERE (("videos"."id" = $1) OR ("videos"."id" = $2)) ORDER BY "videos"."id" FOR UPDATE"#
        );
        let of = rows!(Shards, keys, Some(3));
        let clause = " FOR UPDATE NOWAIT";
        assert_eq!(
            sql!(Mysql, LockShards { of, clause }),
            "SELECT CASE WHEN `videos`.`views` <> 0 OR `videos`.`likes` <> 0 THEN 1 ELSE 0 END FROM `videos_shards` AS `videos` WHERE ((`videos`.`id` = ?) OR (`videos`.`id` = ?)) AND `videos`.`shard` = ? ORDER BY `videos`.`id`, `videos`.`shard` LIMIT 18446744073709551615 FOR UPDATE NOWAIT"
        );
    }

    #[test]
    fn parents_that_are_not_locked_are_looked_for() {
        let (keys, locked) = (KeysAre(vec![id.eq(1), id.eq(2)]), KeysAre(vec![id.eq(1)]));
        let not_locked = NotLocked::<table::table, _> {
            keys: &keys,
            locked: &locked,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, not_locked),
            r#"SELECT "videos"."id" FROM "videos" WHERE (("videos"."id" = $1) OR ("videos"."id" = $2)) AND NOT (("videos"."id" = $3)) AND row_security_active('"videos"')"#
        );
    }

    #[test]
    fn states_are_read_as_they_are_locked() {
        let keys = KeysAre(vec![id.eq(1)]);
        let fields: Vec<_> = table::table::FIELDS.iter().collect();
        let read = |shard| ReadStates {
            of: rows!(Parents, keys, shard),
            fields: &fields,
            sums: Sums::Read,
        };
        assert_eq!(
            sql!(Pg, read(Some(3))),
            r#"SELECT CAST("videos"."views" AS TEXT) || ' ' || CAST(COALESCE((SELECT SUM("videos_shards"."views") FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."shard" = $1), 0) AS TEXT) || ' ' || CAST("videos"."likes" AS TEXT) || ' ' || CAST(COALESCE((SELECT SUM("videos_shards"."likes") FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."shard" = $2), 0) AS TEXT) FROM "videos" WHERE (("videos"."id" = $3)) ORDER BY "videos"."id""#
        );
        let mysql = sql!(Mysql, read(None));
        assert!(
            mysql.starts_with("SELECT CONCAT(CAST(`videos`.`views` AS CHAR), ' ', CAST(COALESCE((SELECT SUM(`videos_shards`.`views`) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` FOR UPDATE), 0) AS CHAR), ' ', "),
            "{mysql}"
        );
        assert!(
            mysql.ends_with("ORDER BY `videos`.`id` LIMIT 18446744073709551615 FOR UPDATE"),
            "{mysql}"
        );
        let bases = ReadStates {
            of: rows!(Parents, keys, None),
            fields: &fields[..1],
            sums: Sums::Replaced,
        };
        assert_eq!(
            sql!(Sqlite, bases),
            "SELECT CAST(`videos`.`views` AS TEXT) || ' ' || '0' FROM `videos` WHERE ((`videos`.`id` = ?)) ORDER BY `videos`.`id`"
        );
    }

    #[test]
    fn states_are_numbers() {
        let fields: Vec<_> = table::table::FIELDS.iter().collect();
        let states = parse_states(&fields, "100 10 1 -2").unwrap();
        let state = |base, shards| FieldState {
            base: Amount::Integer(base),
            shards: Amount::Integer(shards),
        };
        assert_eq!(states, [state(100, 10), state(1, -2)]);
        let unfit = parse_states(&fields, "").unwrap_err();
        assert!(matches!(unfit, Unfit::Altered { field: "views", .. }));
    }

    #[test]
    fn a_fold_adds_and_then_empties() {
        let keys = KeysAre(vec![id.eq(1)]);
        let add = |shard| AddShardsToBases {
            of: rows!(Parents, keys, shard),
        };
        assert_eq!(
            sql!(Mysql, add(None)),
            "UPDATE `videos` SET `views` = (`videos`.`views` + COALESCE((SELECT SUM(`videos_shards`.`views`) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`), 0)), `likes` = (`videos`.`likes` + COALESCE((SELECT SUM(`videos_shards`.`likes`) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`), 0)) WHERE ((`videos`.`id` = ?)) AND EXISTS (SELECT 1 FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` AND (`videos_shards`.`views` <> 0 OR `videos_shards`.`likes` <> 0))"
        );
        let one = sql!(Pg, add(Some(3)));
        assert_eq!(one.matches(r#"AND "videos_shards"."shard" = $"#).count(), 3);
        let empty = EmptyShards {
            of: rows!(Shards, keys, None),
            fields: table::table::FIELDS.iter().collect(),
        };
        assert_eq!(
            sql!(Sqlite, empty),
            "UPDATE `videos_shards` AS `videos` SET `views` = 0, `likes` = 0 WHERE ((`videos`.`id` = ?)) AND (`videos`.`views` <> 0 OR `videos`.`likes` <> 0)"
        );
    }

    #[test]
    fn shards_are_removed_from_a_number_on() {
        let keys = KeysAre(vec![id.eq(1)]);
        let remove = || RemoveShards {
            of: rows!(Shards, keys, None),
            first: 4,
        };
        assert_eq!(
            sql!(Pg, remove()),
            r#"DELETE FROM "videos_shards" AS "videos" WHERE (("videos"."id" = $1)) AND "videos"."shard" >= $2 AND "videos"."views" = 0 AND "videos"."likes" = 0"#
        );
        assert_eq!(
            sql!(Mysql, remove()),
            "DELETE `videos` FROM `videos_shards` AS `videos` WHERE ((`videos`.`id` = ?)) AND `videos`.`shard` >= ? AND `videos`.`views` = 0 AND `videos`.`likes` = 0"
        );
    }
}
