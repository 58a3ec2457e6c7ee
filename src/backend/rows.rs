//! Values that a backend binds and reads.

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSqlRow};
use diesel::expression::QueryMetadata;
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;
use diesel::row::Row;
use diesel::serialize::ToSql;
use diesel::sql_types::HasSqlType;

/// A backend that takes a `U` for a bind of the SQL type `ST`. As a supertrait it spares statements further bounds.
pub trait Binds<ST, U: ?Sized>: Backend {
    /// Writes a bind.
    fn push<'b>(value: &'b U, out: AstPass<'_, 'b, Self>) -> QueryResult<()>;
}

impl<DB, ST, U> Binds<ST, U> for DB
where
    DB: Backend + HasSqlType<ST>,
    U: ToSql<ST, DB> + ?Sized,
{
    fn push<'b>(value: &'b U, mut out: AstPass<'_, 'b, Self>) -> QueryResult<()> {
        out.push_bind_param::<ST, U>(value)
    }
}

/// A backend whose rows of the SQL type `ST` are read into a `U`; see [`Binds`].
pub trait Reads<ST, U>: QueryMetadata<ST> {
    /// Reads a row.
    fn read<'r>(row: &impl Row<'r, Self>) -> deserialize::Result<U>;
}

impl<DB, ST, U> Reads<ST, U> for DB
where
    DB: Backend + QueryMetadata<ST>,
    U: FromSqlRow<ST, DB>,
{
    fn read<'r>(row: &impl Row<'r, Self>) -> deserialize::Result<U> {
        U::build_from_row(row)
    }
}
