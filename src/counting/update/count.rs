//! An update as a count: what it depends on, how it is combined, and what its statements are made of.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::{EmptyChangeset, Error as DieselError};

use super::send::{Fragments, TypedUpdate};
use super::statement::{UpdateStatement, Values};
use crate::backend::{Dialect, ShardedBackend};
use crate::counting::combine::Combine;
use crate::engine::{Facts, PartOf};
use crate::model::{ShardedTable, Terms, type_id};
use crate::placement::ShardChoice;
use crate::policy::RetryPolicy;
use crate::query_builder::{AddSums, KeyIs};
use crate::upkeep::shard_counts;
use crate::{observe, placement};

/// A count, described once. It is passed down to the engine as it is, behind a `dyn` that hides the update's types, and can be carried out
/// repeatedly.
#[doc(hidden)]
#[allow(missing_debug_implementations)] // the fragments cannot be shown
#[derive(Clone)]
pub struct Count<U: ?Sized> {
    pub(crate) facts: Facts,
    pub(crate) retry: RetryPolicy,
    pub(crate) combine: Combine,
    /// The amounts among the binds of the changes.
    pub(crate) terms: Terms,
    /// Whether the filter names a key whose value is known; see [`ShardedTable::shows_key_filter`].
    pub(crate) shows_key: fn() -> bool,
    /// Whether the row to insert is this caller's alone. Then it does not insert it for others.
    pub(crate) inserts_own: bool,
    /// The sums of several callers, which replace the update's own amounts.
    pub(crate) sums: Option<AddSums>,
    pub(crate) update: U,
}

/// An update that can be counted on a database `DB`. It stands for the bounds on the parts of an [`UpdateStatement`].
#[doc(hidden)]
pub trait IntoCount<DB: ShardedBackend> {
    type Update: TypedUpdate<DB>;

    /// Fails if there is nothing to count.
    fn into_count(self, dialect: Dialect) -> QueryResult<Count<Self::Update>>;
}

impl<Q, V, Ret, Ins, Run, T, W, DB> IntoCount<DB> for UpdateStatement<Q, Values<V>, Ret, Ins, Run>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    T: ShardedTable + QueryFragment<DB> + QueryId,
    W: QueryFragment<DB> + QueryId,
    Ins: QueryFragment<DB> + QueryId,
    DB: ShardedBackend,
{
    type Update = Fragments<T, V, W, Ins>;

    fn into_count(self, dialect: Dialect) -> QueryResult<Count<Self::Update>> {
        if self.values.is_nothing {
            return Err(DieselError::QueryBuilderError(Box::new(EmptyChangeset)));
        }
        let filter = self.query.into_update_target().where_clause;
        let Values { fields, terms, .. } = self.values;
        let mut facts = facts_of::<T, DB>(&filter, fields, self.settings.shard_choice, dialect);
        facts.by_key = W::query_id().is_some_and(T::is_key_filter);
        facts.inserts = self.insert.is_some();
        Ok(Count {
            facts,
            retry: self.settings.retry.unwrap_or_default(),
            combine: self.settings.combine,
            terms,
            shows_key: || T::shows_key_filter(type_id::<W>()),
            inserts_own: facts.inserts,
            sums: None,
            update: Fragments {
                table: PhantomData,
                changes: self.values.changes.as_changeset(),
                filter,
                insert: self.insert,
            },
        })
    }
}

impl<U: ?Sized> Count<U> {
    /// The facts of a count for several callers.
    pub(crate) fn facts_for_all(&self) -> Facts {
        Facts {
            inserts: self.facts.inserts && !self.inserts_own,
            ..self.facts
        }
    }
}

/// A count by key that inserts no row.
pub(crate) const NO_INSERT: Option<((), u16)> = None;

impl<T: ShardedTable, V: AsChangeset, P, I> Count<Fragments<T, V, KeyIs<P>, I>> {
    /// Counts `changes`, one amount for each of the fields named, on the one parent that `key` names, without a combiner. If the parent is
    /// missing, the statement in `insert` inserts it. The number beside the statement, at least 1, is that of the shards to choose from.
    pub(crate) fn by_key<DB>(
        key: KeyIs<P>,
        changes: V,
        fields: &'static [&'static str],
        terms: Terms,
        insert: Option<(I, u16)>,
        dialect: Dialect,
    ) -> Self
    where
        KeyIs<P>: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        let mut facts = facts_of::<T, DB>(&key, fields, None, dialect);
        facts.by_key = true;
        facts.inserts = insert.is_some();
        let (insert, shards) = insert.unzip();
        facts.shards = shards.unwrap_or(facts.shards);
        Count {
            facts,
            retry: RetryPolicy::default(),
            combine: Combine::Alone,
            terms,
            shows_key: T::shows_keys,
            inserts_own: false,
            sums: None,
            update: Fragments {
                table: PhantomData,
                changes: changes.as_changeset(),
                filter: key,
                insert,
            },
        }
    }
}

/// The facts of a count of these fields of `T`, on rows that any filter may name.
fn facts_of<T: ShardedTable, DB: ShardedBackend>(
    filter: &dyn QueryFragment<DB>,
    fields: &'static [&'static str],
    shard_choice: Option<ShardChoice>,
    dialect: Dialect,
) -> Facts {
    let shards_table = T::SHARDS_TABLE;
    let shard_choice = shard_choice.unwrap_or_else(ShardChoice::global);
    let key = match shard_choice {
        ShardChoice::Adaptive if dialect.has_row_locks() => {
            placement::hash_of::<DB>(shards_table.as_str(), &filter)
        }
        _ => 0,
    };
    let mut rounded = T::FIELDS
        .iter()
        .filter(|field| dialect.rounds_sums(field.column_type));
    let rounds = rounded.any(|field| fields.contains(&&*field.name));
    Facts {
        by_key: false,
        returning: false,
        loads_apart: rounds || shards_table.is_qualified(),
        once: false,
        inserts: false,
        part_of: PartOf::Nothing,
        dialect,
        shard_choice,
        shards_table,
        key_columns: T::KEY,
        columns: T::FIELDS,
        fields,
        keys: observe::Keys::of::<T>(dialect),
        key,
        shards: shard_counts::known::<T>(fields.iter().copied()),
    }
}

#[cfg(all(test, feature = "postgres_backend"))]
mod tests {
    use std::fmt;

    use super::*;
    use crate::counting::combine::Combiner;
    use crate::query_builder::Addend;
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
            let mut count = IntoCount::<Pg>::into_count(update, Dialect::Postgres).unwrap();
            let meeting = count.combine.anywhere().unwrap();
            let combinable = count.combinable(&meeting, count.update.clauses(0), &Pg);
            count.facts.part_of = PartOf::CallersTransaction;
            assert!(
                count
                    .combinable(&meeting, count.update.clauses(0), &Pg)
                    .is_none()
            );
            combinable.map(|count| count.shown())
        }};
    }

    /// An update of these rows is combined under a key by amounts, or is counted alone.
    macro_rules! combines {
        ($rows:expr, $changes:expr => $key:expr, $amounts:expr) => {
            let expected = ($key.to_owned(), $amounts.map(Addend::Integer).to_vec());
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
        let endless = downloads::number.eq(downloads::number + f64::INFINITY);
        combines!(downloads::table.find((1, "x")), endless => alone);
    }

    #[test]
    fn doubles_and_rows_to_insert_are_combined() {
        let number = downloads::number.eq(downloads::number + 1.0 - 0.25);
        let found = combined!(update(downloads::table.find((1, "x"))).set(number));
        assert_eq!(
            found,
            Some((r#"[1, "x"]"#.to_owned(), vec![Addend::Double(0.75)]))
        );
        let row = (id.eq(7), slug.eq("a"), views.eq(0), likes.eq(0));
        let inserts = update(videos.find(7))
            .set(views.eq(views + 1))
            .or_insert(row);
        assert_eq!(
            combined!(inserts),
            Some(("[7]".to_owned(), vec![Addend::Integer(1)]))
        );
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
