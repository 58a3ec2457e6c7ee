//! The change that adds an amount to a field.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, AstPass, QueryFragment, QueryId};
use diesel::sql_types::BigInt;

use crate::backend::ShardedBackend;
use crate::engine::KeyedTable;
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::update::Ready;
use crate::query_builder::{KeyIs, push_bind, push_column};

/// `"views" = ("videos"."views" + $1)`
///
/// The amount is bound as a `BigInt` for every type of column, because it may be negative even if the column is unsigned.
#[derive(Debug)]
pub struct AddTo<C> {
    sum: Sum<C>,
}

/// `("videos"."views" + $1)`
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum<C> {
    n: i64,
    column: PhantomData<C>,
}

impl<C: ShardedColumn> AddTo<C> {
    pub(crate) fn new(n: i64) -> Self {
        AddTo {
            sum: Sum {
                n,
                column: PhantomData,
            },
        }
    }

    /// The sum alone.
    pub(crate) fn sum(&self) -> &Sum<C> {
        &self.sum
    }
}

impl<C, DB> QueryFragment<DB> for Sum<C>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("(");
        push_column::<C::Table, DB>(C::NAME, out.reborrow())?;
        out.push_sql(" + ");
        push_bind::<BigInt, i64, DB>(&self.n, out.reborrow())?;
        out.push_sql(")");
        Ok(())
    }
}

impl<C: ShardedColumn> AsChangeset for AddTo<C> {
    type Target = C::Table;
    type Changeset = Self;

    fn as_changeset(self) -> Self {
        self
    }
}

impl<C, DB> QueryFragment<DB> for AddTo<C>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(C::NAME)?;
        out.push_sql(" = ");
        self.sum.walk_ast(out)
    }
}

impl<C: ShardedColumn + QueryId> QueryId for AddTo<C> {
    type QueryId = AddToId<C::QueryId>;
    const HAS_STATIC_QUERY_ID: bool = C::HAS_STATIC_QUERY_ID;
}

/// The query id of [`AddTo`].
#[derive(Debug)]
pub struct AddToId<C>(PhantomData<C>);

/// The count of `n` on the row with this key, in its parts.
pub(crate) fn ready_to_add<C, DB>(key: <C::Table as ShardedTable>::Key, n: i64) -> ReadyToAdd<C, DB>
where
    C: ShardedColumn<Table: KeyedTable<DB>>,
    DB: ShardedBackend,
{
    let key = KeyIs(C::Table::key_is(key));
    Ready::by_key(key, AddTo::new(n), const { &[C::NAME] })
}

pub(crate) type ReadyToAdd<C, DB, I = ()> = Ready<
    <C as Column>::Table,
    AddTo<C>,
    KeyIs<<<C as Column>::Table as KeyedTable<DB>>::KeyIs>,
    I,
>;
