//! Diesel's backends, as far as their connections can count on shards, and the values that they bind and read.

use std::fmt;
use std::hash::Hasher;

use diesel::backend::Backend;
use diesel::connection::BoxableConnection;
use diesel::deserialize::{self, FromSqlRow};
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::row::Row;
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Binary, Double, HasSqlType, Integer, Nullable, Text, Untyped};

use super::detached::Detached;
use super::dialect::Dialect;
use crate::model::FieldValues;

/// A Diesel backend whose connections can count on shards.
///
/// Implemented for `Pg`, `Mysql` and `Sqlite` (each behind the feature of its name), and by
/// [`multi_connection!`](crate::multi_connection) for the `MultiBackend` of an application. (Its `Default` is its first
/// variant, in whose SQL filters are compared.) With Diesel's main branch and `--cfg diesel_mariadb`, for its `Mariadb` too.
#[diagnostic::on_unimplemented(
    message = "enable the feature `postgres`, `mysql` or `sqlite` of `diesel_sharded` that belongs to `{Self}`",
    label = "`diesel_sharded` was built without this database",
    note = "`postgres_backend` and `mysql_backend` do without a client library",
    note = "for an enum with `#[derive(MultiConnection)]`, call `diesel_sharded::multi_connection!` beside it"
)]
pub trait ShardedBackend: Backend + Default + Send + Sync + 'static + OwnRows {
    /// Whether the dialect is known without a connection.
    #[doc(hidden)]
    const HAS_ONE_DIALECT: bool = false;

    /// The dialect of this backend.
    fn dialect(&self) -> Dialect;

    /// A builder for SQL in this dialect.
    fn query_builder(&self) -> Self::QueryBuilder;

    /// Writes the SQL of a fragment with its bind values, as [`debug_query`](diesel::debug_query()) shows them.
    ///
    /// # Errors
    /// If the fragment cannot be written in this dialect.
    fn show(&self, fragment: &dyn QueryFragment<Self>, out: &mut dyn fmt::Write) -> fmt::Result
    where
        Self: Sized;

    /// The fragment for any connection of this backend; `None` where no other caller's connection sends it.
    #[doc(hidden)]
    fn detach(_fragment: &dyn QueryFragment<Self>) -> Option<Detached<Self>>
    where
        Self: Sized,
    {
        None
    }

    /// The backend of a connection of unknown type; `None` if this backend does not know the type.
    fn backend_behind(conn: &dyn BoxableConnection<Self>) -> Option<Self>
    where
        Self: Sized;
}

/// Returns the backend of a connection as a value.
///
/// Separate from [`ShardedBackend`] because the backend of a `MultiConnection` enum does not know which variant a
/// connection is; only the connection does.
#[diagnostic::on_unimplemented(
    message = "enable the feature `postgres`, `mysql` or `sqlite` of `diesel_sharded` to count through a `{Conn}`",
    label = "`diesel_sharded` was built without the database of this connection",
    note = "for an enum with `#[derive(MultiConnection)]`, call `diesel_sharded::multi_connection!` beside it"
)]
pub trait BackendOf<Conn>: ShardedBackend {
    /// The backend of `conn`.
    fn backend_of(conn: &Conn) -> Self;
}

macro_rules! backend {
    ($feature:literal, $backend:ty, $dialect:ident $(, $detach:item)?) => {
        #[cfg(feature = $feature)]
        impl<ST> diesel::sql_types::HasSqlType<crate::model::TotalOf<ST>> for $backend
        where
            Self: diesel::sql_types::HasSqlType<ST>,
        {
            fn metadata(lookup: &mut Self::MetadataLookup) -> Self::TypeMetadata {
                <Self as diesel::sql_types::HasSqlType<ST>>::metadata(lookup)
            }
        }

        #[cfg(feature = $feature)]
        impl ShardedBackend for $backend {
            const HAS_ONE_DIALECT: bool = true;

            fn dialect(&self) -> Dialect {
                Dialect::$dialect
            }

            fn query_builder(&self) -> Self::QueryBuilder {
                Default::default()
            }

            fn show(
                &self,
                fragment: &dyn QueryFragment<Self>,
                out: &mut dyn fmt::Write,
            ) -> fmt::Result {
                write!(out, "{}", diesel::debug_query::<Self, _>(&fragment))
            }

            fn backend_behind(_: &dyn BoxableConnection<Self>) -> Option<Self> {
                Some(Self::default())
            }

            $($detach)?
        }

        #[cfg(feature = $feature)]
        impl<Conn> BackendOf<Conn> for $backend {
            fn backend_of(_: &Conn) -> Self {
                Self::default()
            }
        }
    };
}

backend!("postgres_backend", diesel::pg::Pg, Postgres);
backend!("mysql_backend", diesel::mysql::Mysql, Mysql);
#[cfg(diesel_mariadb)]
backend!("mysql_backend", diesel::mariadb::Mariadb, Mysql);
backend!(
    "sqlite",
    diesel::sqlite::Sqlite,
    Sqlite,
    fn detach(fragment: &dyn QueryFragment<Self>) -> Option<Detached<Self>> {
        super::detached::detach(fragment).ok()
    }
);

/// Hashes what is [shown](ShardedBackend::show).
pub(crate) struct Hashed<H>(pub(crate) H);

impl<H: Hasher> fmt::Write for Hashed<H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// A backend that accepts a `U` for a bind of the SQL type `ST`. As a supertrait it spares statements further bounds.
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

macro_rules! alias {
    ($(#[$attribute:meta])* $name:ident: $($bound:path,)+) => {
        $(#[$attribute])*
        pub trait $name: $($bound +)+ {}
        impl<DB> $name for DB where DB: $($bound +)+ {}
    };
}
#[cfg(feature = "numeric")]
alias! {
    /// A backend that binds decimals, if there are any.
    BindsDecimals: Binds<diesel::sql_types::Numeric, bigdecimal::BigDecimal>,
}
#[cfg(not(feature = "numeric"))]
alias! {
    /// A backend that binds decimals, if there are any.
    BindsDecimals: Backend,
}
alias! {
    /// A backend that binds the values and reads the rows of this crate's own statements. Every backend of Diesel's that has these
    /// SQL types is one.
    OwnRows: Binds<Integer, i32>,
    Binds<BigInt, i64>,
    Binds<Double, f64>,
    BindsDecimals,
    Binds<Binary, [u8]>,
    Reads<Integer, i32>,
    Reads<Nullable<Text>, Option<String>>,
    Reads<(Integer, Text), (i32, String)>,
    Reads<Untyped, FieldValues>,
    Reads<(Binary, BigInt), (Vec<u8>, i64)>,
    Reads<(Binary, BigInt, BigInt, BigInt), (Vec<u8>, i64, i64, i64)>,
    Reads<(Binary, Binary, Integer), (Vec<u8>, Vec<u8>, i32)>,
}
