//! Diesel's backends, as far as their connections can count on shards.

use std::fmt;

use diesel::backend::Backend;
use diesel::connection::BoxableConnection;
use diesel::query_builder::QueryFragment;

use crate::backend::{Dialect, OwnRows};

/// A Diesel backend whose connections can count on shards.
///
/// Implemented for `Pg`, `Mysql` and `Sqlite` (each behind the feature of its name), and by
/// [`multi_connection!`](crate::multi_connection) for the `MultiBackend` of an application. (Its `Default` is its first
/// variant, in whose SQL filters are compared.)
#[diagnostic::on_unimplemented(
    message = "enable the feature `postgres`, `mysql` or `sqlite` of `diesel_sharded` that belongs to `{Self}`",
    label = "`diesel_sharded` was built without this database",
    note = "`postgres_backend` and `mysql_backend` do without a client library",
    note = "for an enum with `#[derive(MultiConnection)]`, call `diesel_sharded::multi_connection!` beside it"
)]
pub trait ShardedBackend: Backend + Default + Send + Sync + 'static + OwnRows {
    /// The dialect of this backend.
    fn dialect(&self) -> Dialect;

    /// A builder for SQL in this dialect.
    fn query_builder(&self) -> Self::QueryBuilder;

    /// Writes the SQL of a fragment with its bind values, as [`debug_query`](diesel::debug_query()) shows them.
    ///
    /// # Errors
    /// If the fragment cannot be written in this dialect.
    fn show(fragment: &dyn QueryFragment<Self>, out: &mut dyn fmt::Write) -> fmt::Result
    where
        Self: Sized;

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
    ($feature:literal, $backend:ty, $dialect:ident) => {
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
            fn dialect(&self) -> Dialect {
                Dialect::$dialect
            }

            fn query_builder(&self) -> Self::QueryBuilder {
                Default::default()
            }

            fn show(fragment: &dyn QueryFragment<Self>, out: &mut dyn fmt::Write) -> fmt::Result {
                write!(out, "{}", diesel::debug_query::<Self, _>(&fragment))
            }

            fn backend_behind(_: &dyn BoxableConnection<Self>) -> Option<Self> {
                Some(Self::default())
            }
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
backend!("sqlite", diesel::sqlite::Sqlite, Sqlite);
