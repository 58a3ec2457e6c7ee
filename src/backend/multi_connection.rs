//! An application's own enum of connections.

/// Lets an enum with Diesel's `#[derive(MultiConnection)]` count on shards: the same statements then run on whichever
/// database it is connected to.
///
/// Call it once beside the enum, with the enum's name and each variant's dialect, under the variant's own `#[cfg]` where it
/// has one:
///
/// ```
/// # use diesel::prelude::*;
/// #[derive(diesel::MultiConnection)]
/// pub enum AnyConnection {
///     Sqlite(SqliteConnection),
///     // Postgres(PgConnection), Mysql(MysqlConnection)
/// }
///
/// diesel_sharded::multi_connection!(AnyConnection { Sqlite: Sqlite });
/// # fn main() {}
/// ```
///
/// The dialects are [`Postgres`](crate::backend::Dialect::Postgres), [`Mysql`](crate::backend::Dialect::Mysql) and
/// [`Sqlite`](crate::backend::Dialect::Sqlite). With the feature `r2d2`, the enum counts from inside a pool too.
#[macro_export]
macro_rules! multi_connection {
    ($connection:ident { $($(#[$attribute:meta])* $variant:ident: $dialect:ident),+ $(,)? }) => {
        const _: () = {
            use $crate::__diesel as diesel;
            type Backend = MultiBackend; // named by the derive, beside the enum
            type Builder = <Backend as diesel::backend::Backend>::QueryBuilder;

            impl $crate::backend::ShardedBackend for Backend {
                fn dialect(&self) -> $crate::backend::Dialect {
                    match self {
                        $($(#[$attribute])* Backend::$variant(_) => $crate::backend::Dialect::$dialect,)+
                    }
                }

                fn query_builder(&self) -> Builder {
                    match self {
                        $($(#[$attribute])* Backend::$variant(_) => Builder::$variant(::std::default::Default::default()),)+
                    }
                }

                // Without `diesel::debug_query`, which asks for a query builder that is `Default`: an implementation for the enum's, to
                // which Diesel gives no name, would conflict with every other one in the crates that depend on this one (E0119).
                fn show(
                    &self,
                    fragment: &dyn diesel::query_builder::QueryFragment<Self>,
                    out: &mut dyn ::std::fmt::Write,
                ) -> ::std::fmt::Result {
                    use diesel::internal::derives::multiconnection::AstPassHelper;
                    use diesel::query_builder::{AstPass, QueryBuilder};
                    let mut binds = ::std::vec::Vec::new();
                    let pass = <AstPass<'_, '_, Self> as AstPassHelper<'_, '_, Self>>::collect_debug_binds_pass(&mut binds, self);
                    let mut text = $crate::backend::ShardedBackend::query_builder(self);
                    fragment
                        .walk_ast(pass)
                        .and_then(|()| fragment.to_sql(&mut text, self))
                        .map_err(|_| ::std::fmt::Error)?;
                    ::std::write!(out, "{} -- binds: {binds:?}", text.finish())
                }

                fn backend_behind(
                    conn: &dyn diesel::connection::BoxableConnection<Self>,
                ) -> ::std::option::Option<Self> {
                    conn.downcast_ref::<$connection>()
                        .map(<Self as $crate::backend::BackendOf<$connection>>::backend_of)
                }
            }

            impl<ST> diesel::sql_types::HasSqlType<$crate::model::TotalOf<ST>> for Backend
            where
                Self: diesel::sql_types::HasSqlType<ST>,
            {
                fn metadata(lookup: &mut Self::MetadataLookup) -> Self::TypeMetadata {
                    <Self as diesel::sql_types::HasSqlType<ST>>::metadata(lookup)
                }
            }

            impl ::std::default::Default for Backend {
                #[allow(unreachable_code)] // the first variant that is there
                fn default() -> Self {
                    $($(#[$attribute])* return Backend::$variant(::std::default::Default::default());)+
                }
            }

            impl $crate::backend::BackendOf<$connection> for Backend {
                fn backend_of(conn: &$connection) -> Self {
                    match conn {
                        $($(#[$attribute])* $connection::$variant(_) => Backend::$variant(::std::default::Default::default()),)+
                    }
                }
            }

            $crate::__pooled_connection!($connection);
        };
    };
}

#[doc(hidden)]
#[macro_export]
#[cfg(feature = "r2d2")]
macro_rules! __pooled_connection {
    ($connection:ident) => {
        type Pooled = diesel::r2d2::PooledConnection<diesel::r2d2::ConnectionManager<$connection>>;

        impl $crate::backend::BackendOf<Pooled> for Backend {
            fn backend_of(conn: &Pooled) -> Self {
                <Self as $crate::backend::BackendOf<$connection>>::backend_of(conn)
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "r2d2"))]
macro_rules! __pooled_connection {
    ($connection:ident) => {};
}
