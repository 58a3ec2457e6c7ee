//! The fields that have row counters.

use std::marker::PhantomData;

use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::{Expression, QueryMetadata};
use diesel::prelude::*;
use diesel::query_builder::{QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadIo};
use crate::engine::KeyedTable;
use crate::model::{ShardedColumn, ShardedTable, Value};
use crate::query_builder::{
    CountAllAndLoad, CountAllAndLoadId, Identified, Names, Parts, SelectParents,
    ShardedExpressionMethods, Total,
};

use super::add::AddTo;

/// A sharded field of integers whose range fits into an `i64`, on a backend that binds and reads them. Every such field
/// implements the trait, which collects the necessary bounds.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sharded field of integers that fit into an `i64`",
    note = "fields of type `SmallInt`, `Integer`, `BigInt` and MySQL's `Unsigned<SmallInt>` and `Unsigned<Integer>` are"
)]
pub trait IntegerField<DB: ShardedBackend>: ShardedColumn<Table: KeyedTable<DB>> + QueryId {
    /// Reads keys and totals of the rows that `filter` matches.
    #[doc(hidden)]
    type Row: Into<i64> + Send + 'static;

    #[doc(hidden)]
    fn load_totals<'c, W, M, Conn>(
        self,
        link: &'c mut Link<'_, M, Conn>,
        filter: &'c W,
    ) -> M::Future<'c, Totals<Key<Self>, Self::Row>>
    where
        M: LoadIo<Conn, Backend = DB>,
        W: QueryFragment<DB> + QueryId;

    /// Adds to a shard of each row that `filter` matches, and reads their keys and totals, by one statement; of none if a shard is
    /// missing.
    #[doc(hidden)]
    fn count_and_load_totals<'c, W, M, Conn>(
        self,
        link: &'c mut Link<'_, M, Conn>,
        add: &'c AddTo<Self>,
        filter: &'c W,
        shard: i32,
    ) -> M::Future<'c, Totals<Key<Self>, Self::Row>>
    where
        M: LoadIo<Conn, Backend = DB>,
        W: QueryFragment<DB> + QueryId;
}

type Totals<K, R> = QueryResult<Vec<(K, R)>>;

/// The key of the row that a field is in.
pub(super) type Key<C> = <<C as Column>::Table as ShardedTable>::Key;

/// The SQL type of a key and a total.
type Row<T, C> = (SqlTypeOf<<T as Table>::PrimaryKey>, SqlTypeOf<C>);

#[diagnostic::do_not_recommend]
impl<C, T, DB> IntegerField<DB> for C
where
    C: ShardedColumn<Table = T> + QueryId,
    T: KeyedTable<DB>,
    T::PrimaryKey: QueryFragment<DB> + QueryId,
    (T::PrimaryKey, Total<C>): Expression,
    DB: ShardedBackend + QueryMetadata<SqlTypeOf<(T::PrimaryKey, Total<C>)>>,
    (T::Key, Value<C>): FromSqlRow<(SqlTypeOf<T::PrimaryKey>, C::SqlType), DB>,
    Value<C>: Into<i64>,
{
    type Row = Value<C>;

    fn load_totals<'c, W, M, Conn>(
        self,
        link: &'c mut Link<'_, M, Conn>,
        filter: &'c W,
    ) -> M::Future<'c, Totals<T::Key, Value<C>>>
    where
        M: LoadIo<Conn, Backend = DB>,
        W: QueryFragment<DB> + QueryId,
    {
        let select = SelectParents::<T, _, _> {
            selection: (T::TABLE.primary_key(), self.total()),
            filter,
            table: PhantomData,
        };
        M::load_prepared::<Row<T, C>, (T::Key, Value<C>), _>(link.conn, select)
    }

    fn count_and_load_totals<'c, W, M, Conn>(
        self,
        link: &'c mut Link<'_, M, Conn>,
        add: &'c AddTo<C>,
        filter: &'c W,
        shard: i32,
    ) -> M::Future<'c, Totals<T::Key, Value<C>>>
    where
        M: LoadIo<Conn, Backend = DB>,
        W: QueryFragment<DB> + QueryId,
    {
        let count = CountAllAndLoad {
            parts: Parts {
                names: Names::of::<T>(),
                changes: add,
                filter,
                shard,
            },
            selection: (T::TABLE.primary_key(), self.total()),
        };
        let count = Identified::<CountAllAndLoadId<T, W, AddTo<C>, Total<C>>, _>::new(count);
        M::load_prepared::<Row<T, C>, (T::Key, Value<C>), _>(link.conn, count)
    }
}
