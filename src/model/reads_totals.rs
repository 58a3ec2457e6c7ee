//! Models that read totals, and the SQL type that keeps them from reading bases.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, Queryable};
use diesel::sql_types::{SingleValue, SqlType};

/// A model whose sharded fields are read as totals. Implemented by
/// [`#[derive(ShardedSelectable)]`](derive@crate::ShardedSelectable).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has sharded fields, but reads no totals",
    label = "a load of this model would show bases without their shards",
    note = "derive `diesel_sharded::ShardedSelectable` in place of Diesel's `Queryable`, `Selectable` and `HasQuery`",
    note = "if it means to read bases, write `#[sharded(no_totals)]` above it"
)]
pub trait ReadsTotals {}

/// A model and a row. The derive calls `(&model).reads_totals()` with both traits below in scope. The compiler resolves it to [`IfRead`] if
/// the model can be read from the row, and to [`IfNotRead`] otherwise.
#[derive(Debug)]
pub struct Model<M, ST, DB>(PhantomData<(M, ST, DB)>);

impl<M, ST, DB> Model<M, ST, DB> {
    /// The one value.
    pub const NEW: Self = Model(PhantomData);
}

/// See [`Model`].
pub trait IfRead {
    /// The model.
    type Model;

    /// Compiles if the model reads totals.
    fn reads_totals(&self)
    where
        Self::Model: ReadsTotals,
    {
    }
}

impl<M, ST, DB> IfRead for Model<M, ST, DB>
where
    DB: Backend,
    M: Queryable<ST, DB>,
{
    type Model = M;
}

/// See [`Model`].
pub trait IfNotRead {
    /// Always compiles.
    fn reads_totals(&self) {}
}

impl<T> IfNotRead for &T {}

/// The SQL type of a total in the selection of a [model that reads totals](ReadsTotals). It is `ST` under another name, so a query that
/// selects the plain column cannot be read into the model.
#[derive(Debug, Clone, Copy)]
pub struct TotalOf<ST>(PhantomData<ST>);

impl<ST: SqlType> SqlType for TotalOf<ST> {
    type IsNull = ST::IsNull;
}

impl<ST: SqlType> SingleValue for TotalOf<ST> {}

/// A sharded field of a [model that reads totals](ReadsTotals) while a row is read. It accepts a [`TotalOf`] and no plain column.
///
/// If the compiler names it (``cannot deserialize a value of the database type `BigInt` as `FromTotal<i64>` ``), the query lacks
/// `.select(Model::as_select())` or `.returning(Model::as_returning())`.
#[derive(Debug, Clone, Copy)]
pub struct FromTotal<T>(T);

impl<T> FromTotal<T> {
    /// Converts the value to the field's type. Diesel's derive calls this.
    ///
    /// # Errors
    /// If the field's type refuses the value.
    pub fn try_into<U>(self) -> Result<U, <T as TryInto<U>>::Error>
    where
        T: TryInto<U>,
    {
        self.0.try_into()
    }
}

impl<T, ST, DB> FromSql<TotalOf<ST>, DB> for FromTotal<T>
where
    T: FromSql<ST, DB>,
    DB: Backend,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        T::from_sql(bytes).map(FromTotal)
    }

    fn from_nullable_sql(bytes: Option<DB::RawValue<'_>>) -> deserialize::Result<Self> {
        T::from_nullable_sql(bytes).map(FromTotal)
    }
}

impl<T, ST, DB> Queryable<TotalOf<ST>, DB> for FromTotal<T>
where
    T: FromSql<ST, DB>,
    ST: SqlType,
    DB: Backend,
{
    type Row = Self;

    fn build(row: Self) -> deserialize::Result<Self> {
        Ok(row)
    }
}
