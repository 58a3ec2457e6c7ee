//! An update in the parts that its statements are made of.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::{EmptyChangeset, Error as DieselError};

use super::statement::{Settings, UpdateStatement, Values};
use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Io, Link, in_transaction};
use crate::counting::combine::{Combinable, Combined, Combiner, Handed};
use crate::engine::{Plan, SendStep, Statement, Step, explain, send};
use crate::model::{ShardedTable, Terms, type_id};
use crate::placement::ShardChoice;
use crate::policy::RetryPolicy;
use crate::query_builder::{
    AddSums, CountBeforeLoad, CountBeforeLoadId, CountByKey, CountOne, FirstCount, FirstCountId,
    Identified, KeyIs, Names, Parts,
};
use crate::upkeep::shard_counts;
use crate::{observe, placement};

/// An update that can be counted on a database `DB`. It stands for the bounds on the parts of an [`UpdateStatement`].
#[doc(hidden)]
pub trait IntoReady<DB: ShardedBackend> {
    type Ready: Sendable<DB>;

    /// The update in the parts that its statements are made of.
    fn into_ready(self) -> Self::Ready;
}

impl<Q, V, Ret, Ins, Run, T, W, DB> IntoReady<DB> for UpdateStatement<Q, Values<V>, Ret, Ins, Run>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    T: ShardedTable + QueryFragment<DB> + QueryId,
    W: QueryFragment<DB> + QueryId,
    Ins: QueryFragment<DB> + QueryId,
    DB: ShardedBackend,
{
    type Ready = Ready<T, V, W, Ins>;

    fn into_ready(self) -> Self::Ready {
        Ready {
            changes: self.values.changes.as_changeset(),
            table: PhantomData,
            fields: self.values.fields,
            is_nothing: self.values.is_nothing,
            by_key: W::query_id().is_some_and(T::is_key_filter),
            filter: self.query.into_update_target().where_clause,
            shows_key: match self.insert {
                Some(_) => || false, // each caller has a row of its own
                None => || T::shows_key_filter(type_id::<W>()),
            },
            terms: self.values.terms,
            insert: self.insert,
            sums: None,
            settings: self.settings,
            alone: false,
        }
    }
}

/// An update that can be carried out, repeatedly if necessary.
#[doc(hidden)]
#[allow(missing_debug_implementations)] // the parts cannot be shown
pub struct Ready<T, V: AsChangeset, W, I> {
    table: PhantomData<T>,
    pub(crate) changes: V::Changeset,
    /// The names of the fields that the changes count.
    fields: &'static [&'static str],
    /// There are no changes.
    is_nothing: bool,
    /// The filter names the key and nothing else.
    pub(crate) by_key: bool,
    pub(crate) filter: W,
    /// Whether the filter names a key whose value is known; see [`ShardedTable::shows_key_filter`].
    shows_key: fn() -> bool,
    terms: Terms,
    pub(crate) insert: Option<I>,
    /// The sums that are added in the place of `changes`, for several callers.
    sums: Option<AddSums>,
    settings: Settings,
    /// See [`Plan::alone`].
    pub(crate) alone: bool,
}

impl<T: ShardedTable, V: AsChangeset, P, I> Ready<T, V, KeyIs<P>, I> {
    /// Counts `changes`, one amount for each of the fields named, on the one parent that `key` names. If it is not there, inserts it by the
    /// statement, and chooses from the number of shards beside that, from 1 on.
    pub(crate) fn by_key(
        key: KeyIs<P>,
        changes: V,
        fields: &'static [&'static str],
        terms: Terms,
        insert: Option<(I, u16)>,
    ) -> Self {
        let (insert, shards) = insert.unzip();
        Ready {
            changes: changes.as_changeset(),
            table: PhantomData,
            fields,
            is_nothing: false,
            by_key: true,
            filter: key,
            shows_key: T::shows_keys,
            terms,
            insert,
            sums: None,
            // The library's own counts are parts of what their callers do.
            settings: Settings {
                combiner: Some(None),
                shards,
                ..Settings::default()
            },
            alone: false,
        }
    }
}

impl<T, V: AsChangeset, W, I> Ready<T, V, W, I> {
    /// Counts through this combiner or none, or else through the global one.
    pub(crate) fn combine(&mut self, combiner: Option<Option<Combiner>>) {
        self.settings.combiner = combiner;
    }

    pub(crate) fn retry(&self) -> RetryPolicy {
        self.settings.retry.clone().unwrap_or_default()
    }
}

/// An update whose parts a database `DB` can be sent. It stands for the bounds on them.
#[doc(hidden)]
#[allow(private_interfaces, reason = "only this crate calls it")]
pub trait Sendable<DB: ShardedBackend> {
    type Table: ShardedTable + QueryFragment<DB> + QueryId;
    type Changes: AsChangeset<Target = Self::Table, Changeset: QueryFragment<DB>> + QueryId;
    type Filter: QueryFragment<DB> + QueryId;
    type Insert: QueryFragment<DB> + QueryId;

    fn ready(&self) -> &Ready<Self::Table, Self::Changes, Self::Filter, Self::Insert>;

    fn ready_mut(&mut self) -> &mut Ready<Self::Table, Self::Changes, Self::Filter, Self::Insert>;

    /// See [`Plan::loads_apart`].
    fn loads_apart(&self, dialect: Dialect) -> bool {
        Self::Table::SHARDS_TABLE.is_qualified()
            || Self::Table::FIELDS.iter().any(|field| {
                dialect.rounds_sums(field.column_type)
                    && self.ready().fields.contains(&&*field.name)
            })
    }

    /// The parts of its statements.
    fn parts(&self, shard: i32) -> Parts<'_, DB> {
        self.parts_of(&self.ready().filter, shard)
    }

    /// The parts of statements about other parents.
    fn parts_of<'a>(&'a self, filter: &'a dyn QueryFragment<DB>, shard: i32) -> Parts<'a, DB> {
        Parts {
            names: Names::of::<Self::Table>(),
            changes: &self.ready().changes,
            filter,
            shard,
        }
    }

    /// What the count depends on, in a transaction of the caller's or outside any.
    fn plan_of(&self, dialect: Dialect, in_transaction: bool) -> QueryResult<Plan> {
        let ready = self.ready();
        if ready.is_nothing {
            return Err(DieselError::QueryBuilderError(Box::new(EmptyChangeset)));
        }
        let shard_choice = ready.settings.shard_choice;
        let shard_choice = shard_choice.unwrap_or_else(ShardChoice::global);
        let table = Self::Table::SHARDS_TABLE;
        let key = match shard_choice {
            ShardChoice::Adaptive if dialect.has_row_locks() => {
                placement::hash_of::<DB>(table.as_str(), &ready.filter)
            }
            _ => 0,
        };
        let known = || shard_counts::known::<Self::Table>(ready.fields.iter().copied());
        Ok(Plan {
            by_key: ready.by_key,
            filter: Self::Filter::query_id().filter(|_| !ready.by_key),
            returning: false,
            loads_apart: table.is_qualified(), // asked only where rows are wanted
            once: false,
            inserts: ready.insert.is_some(),
            in_transaction,
            alone: ready.alone,
            dialect,
            shard_choice,
            table: table.as_str(),
            key_columns: Self::Table::KEY,
            keys: observe::Keys::of::<Self::Table>(dialect),
            key,
            shards: ready.settings.shards.unwrap_or_else(known),
        })
    }

    /// The count as others on the same counter may share it, if the caller asked for that.
    fn combinable(&self, in_transaction: bool, backend: &DB) -> Option<Combinable> {
        let ready = self.ready();
        let combiner = ready.settings.combiner.clone();
        let combiner = combiner.unwrap_or_else(Combiner::global)?;
        let table = Self::Table::SHARDS_TABLE.as_str();
        let may_be = !in_transaction && ready.by_key && (ready.shows_key)();
        let combinable = may_be.then(|| {
            let statement = (&ready.filter as _, &ready.changes as _);
            let handed = || {
                let plan = self.plan_of(backend.dialect(), false).ok()?;
                let counter = (Names::of::<Self::Table>(), ready.fields);
                let insert = ready.insert.as_ref().map(|insert| insert as _);
                Handed::of(plan, counter, &ready.filter, insert)
            };
            let counter = (table, ready.fields, ready.insert.is_some());
            Combinable::of(combiner, counter, statement, ready.terms, backend, handed)
        });
        let combinable = combinable.flatten();
        if combinable.is_none() {
            observe::not_combined(backend.dialect(), table);
        }
        combinable
    }

    /// Counts by key in a transaction that reads the parents later.
    fn count_before_load<'c, M, Conn>(
        &'c self,
        link: &'c mut Link<'_, M, Conn>,
        shard: i32,
    ) -> M::Future<'c, QueryResult<usize>>
    where
        M: Io<Conn, Backend = DB>,
    {
        let count = CountBeforeLoad(CountByKey(self.parts(shard)));
        let id = Identified::<CountBeforeLoadId<Self::Table, Self::Filter, Self::Changes>, _>::new;
        link.execute_prepared(id(count))
    }
}

impl<T, V, W, I, DB> Sendable<DB> for Ready<T, V, W, I>
where
    T: ShardedTable + QueryFragment<DB> + QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
    DB: ShardedBackend,
{
    type Table = T;
    type Changes = V;
    type Filter = W;
    type Insert = I;

    fn ready(&self) -> &Self {
        self
    }

    fn ready_mut(&mut self) -> &mut Self {
        self
    }
}

impl<M, Conn, R> SendStep<M, Conn> for R
where
    M: Io<Conn>,
    R: Sendable<M::Backend>,
{
    fn send_step<'s>(
        &'s mut self,
        link: &'s mut Link<'_, M, Conn>,
        step: Step,
    ) -> M::Future<'s, QueryResult<usize>> {
        let (ready, mut parts) = (self.ready(), self.parts(step.shard));
        if let Some(sums) = &ready.sums {
            parts.changes = sums;
        }
        match step.statement {
            Statement::CountByKey | Statement::CountOne if ready.sums.is_none() => {
                let count = match ready.by_key {
                    true => FirstCount::ByKey(CountByKey(parts)),
                    false => FirstCount::One(CountOne(parts)),
                };
                let id = Identified::<FirstCountId<R::Table, R::Filter, R::Changes>, _>::new;
                link.execute_prepared(id(count))
            }
            _ => {
                let insert = ready.insert.as_ref().map(|insert| insert as _);
                send(link, step.statement, parts, insert)
            }
        }
    }
}

impl<M, Conn, R> Combined<M, Conn> for R
where
    M: Io<Conn>,
    R: Sendable<M::Backend>,
{
    fn retry(&self) -> RetryPolicy {
        self.ready().retry()
    }

    fn plan(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<Plan> {
        let (dialect, inside) = (link.dialect(), in_transaction(link)?);
        self.plan_of(dialect, inside)
    }

    fn combinable(&self, in_transaction: bool, backend: &M::Backend) -> Option<Combinable> {
        Sendable::combinable(self, in_transaction, backend)
    }

    fn add(&mut self, sums: Option<Vec<i64>>) {
        let ready = self.ready_mut();
        ready.sums = sums.map(|sums| AddSums::new(ready.fields, sums));
    }

    fn explained(&self, backend: &M::Backend, error: DieselError) -> DieselError {
        explain::<R::Table, M::Backend>(backend, error)
    }
}

#[cfg(all(test, feature = "postgres_backend"))]
mod tests {
    use std::fmt;

    use super::*;
    use crate::test_schema::videos::dsl::*;
    use crate::test_schema::{downloads, pages};
    use crate::update;
    use diesel::expression::AsExpression;
    use diesel::pg::Pg;
    use diesel::serialize::{self, Output, ToSql};
    use diesel::sql_types::BigInt;

    /// The text of the key and the amounts by which an update is combined.
    macro_rules! combined {
        ($update:expr) => {{
            let update = $update.combine(&Combiner::new());
            let ready = IntoReady::<Pg>::into_ready(update);
            let combinable = Sendable::combinable(&ready, false, &Pg);
            assert!(Sendable::combinable(&ready, true, &Pg).is_none());
            combinable.map(|count| count.shown())
        }};
    }

    /// An update of these rows is combined under a key by amounts, or is counted alone.
    macro_rules! combines {
        ($rows:expr, $changes:expr => $key:expr, $amounts:expr) => {
            let expected = ($key.to_owned(), $amounts.to_vec());
            assert_eq!(combined!(update($rows).set($changes)), Some(expected));
        };
        ($rows:expr, $changes:expr => alone) => {
            assert_eq!(combined!(update($rows).set($changes)), None);
        };
    }

    #[test]
    fn keys_and_amounts_are_known_as_values() {
        let add = || views.eq(views + 1);
        combines!(videos.find(7), add() => "[7]", [1]);
        combines!(videos.find(&7), add() => "[7]", [1]);
        combines!(videos.filter(id.eq(-7)), add() => "[-7]", [1]);
        let bonus = &5;
        let several = (views.eq(views + 10 - bonus + 1), likes.eq(likes - 3));
        combines!(videos.find(7), several => "[7]", [6, -3]);
        let hit = || pages::hits.eq(pages::hits + 1);
        combines!(pages::table.find("a, \"b"), hit() => r#"["a, \"b"]"#, [1]);
        combines!(pages::table.find("a".to_owned()), hit() => r#"["a"]"#, [1]);
    }

    #[test]
    fn what_is_not_known_for_certain_counts_alone() {
        let add = || views.eq(views + 1);
        combines!(videos, add() => alone);
        combines!(videos.filter(slug.eq("a")), add() => alone);
        combines!(videos.find(7).filter(slug.eq("a")), add() => alone);
        combines!(videos.find(7), Some(add()) => alone);
        combines!(videos.find(7), views.eq(views + i64::MAX + 1) => alone);
        let row = (id.eq(7), slug.eq("a"), views.eq(0), likes.eq(0));
        let inserts = update(videos.find(7)).set(add()).or_insert(row);
        assert_eq!(combined!(inserts), None);
        // Doubles are added in the order in which they come.
        let rounds = downloads::number.eq(downloads::number + 1.0);
        combines!(downloads::table.find((1, "x")), rounds => alone);
    }

    /// `[1, 2]` would be the values of two rows.
    #[test]
    fn a_key_in_another_order_counts_alone() {
        use crate::test_schema::days::dsl::{day, days, number, version};
        let add = || number.eq(number + 1);
        let in_order = days.filter(version.eq(1)).filter(day.eq(2));
        let reversed = days.filter(day.eq(1)).filter(version.eq(2));
        combines!(days.find((1, 2)), add() => "[1, 2]", [1]);
        combines!(days.find((&1, &2)), add() => "[1, 2]", [1]);
        combines!(in_order, add() => "[1, 2]", [1]);
        combines!(reversed, add() => alone);
    }

    diesel::table! {
        secrets (id) {
            id -> BigInt,
            reads -> BigInt,
        }
    }

    /// A type of an application's own, which shows every value as 7.
    #[derive(Clone, Copy, AsExpression)]
    #[diesel(sql_type = BigInt)]
    pub struct Redacted(i64);

    impl fmt::Debug for Redacted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("7")
        }
    }

    impl ToSql<BigInt, Pg> for Redacted {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            <i64 as ToSql<BigInt, Pg>>::to_sql(&self.0, out)
        }
    }

    #[derive(crate::ShardedField)]
    #[diesel(table_name = secrets)]
    #[expect(dead_code, reason = "the derive reads the fields' types")]
    struct Secret {
        id: Redacted,
        #[sharded]
        reads: i64,
    }

    /// It would be counted on a wrong row, or by a wrong amount.
    #[test]
    fn what_shows_itself_as_another_value_counts_alone() {
        let read = secrets::reads.eq(secrets::reads + 1);
        combines!(secrets::table.find(Redacted(1)), read => alone);
        combines!(videos.find(Redacted(1)), views.eq(views + 1) => alone);
        combines!(videos.find(7), views.eq(views + Redacted(1)) => alone);
    }
}
