//! Values that a backend binds and reads.

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSqlRow};
use diesel::expression::QueryMetadata;
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;
use diesel::row::Row;
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Binary, HasSqlType, Integer, Nullable, Text};

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

/// A backend that binds the values and reads the rows of this crate's own statements. Every backend of Diesel's that has these
/// SQL types is one.
pub trait OwnRows:
    Binds<Integer, i32>
    + Binds<BigInt, i64>
    + Binds<Binary, [u8]>
    + Reads<Integer, i32>
    + Reads<Nullable<Text>, Option<String>>
    + Reads<(Binary, BigInt), (Vec<u8>, i64)>
    + Reads<(Binary, BigInt, BigInt, BigInt), (Vec<u8>, i64, i64, i64)>
    + Reads<(Binary, Binary, Integer), (Vec<u8>, Vec<u8>, i32)>
{
}

impl<DB> OwnRows for DB where
    DB: Binds<Integer, i32>
        + Binds<BigInt, i64>
        + Binds<Binary, [u8]>
        + Reads<Integer, i32>
        + Reads<Nullable<Text>, Option<String>>
        + Reads<(Binary, BigInt), (Vec<u8>, i64)>
        + Reads<(Binary, BigInt, BigInt, BigInt), (Vec<u8>, i64, i64, i64)>
        + Reads<(Binary, Binary, Integer), (Vec<u8>, Vec<u8>, i32)>
{
}
