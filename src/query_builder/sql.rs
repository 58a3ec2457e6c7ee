//! SQL in code that reads like SQL, and statements as types.
//!
//! ```text
//! sql!(out; "UPDATE ", table.shards_as_parent(), " SET ", for field in (fields, ", ") { id(&field.name), " = 0" });
//! ```

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment};

use crate::backend::{Binds, Dialect, ShardedBackend};

/// A part of a statement: a text of SQL, [`id`], [`bind`], [`walk`], or a function that writes to a pass, as `sql! { .. }` makes it.
///
/// Binds live as long as the statement (`'b`). Whatever else a part holds is written at once.
pub(crate) trait Sql<'b, DB: Backend> {
    fn push(self, out: AstPass<'_, 'b, DB>) -> QueryResult<()>;
}

impl<'b, DB, F> Sql<'b, DB> for F
where
    DB: Backend,
    F: FnOnce(AstPass<'_, 'b, DB>) -> QueryResult<()>,
{
    fn push(self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self(out)
    }
}

impl<DB: Backend> Sql<'_, DB> for &str {
    fn push(self, mut out: AstPass<'_, '_, DB>) -> QueryResult<()> {
        out.push_sql(self);
        Ok(())
    }
}

/// A part that may be left out.
impl<'b, DB: Backend, P: Sql<'b, DB>> Sql<'b, DB> for Option<P> {
    fn push(self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.map_or(Ok(()), |part| part.push(out))
    }
}

/// A name, quoted as the backend does it.
pub(crate) fn id<'b, DB: Backend>(name: &str) -> impl Sql<'b, DB> {
    move |mut out: AstPass<'_, 'b, DB>| out.push_identifier(name)
}

/// The text of a fragment by itself.
pub(crate) fn text_of<F, DB>(fragment: &F, backend: &DB) -> QueryResult<String>
where
    F: QueryFragment<DB> + ?Sized,
    DB: ShardedBackend,
{
    let mut builder = backend.query_builder();
    fragment.to_sql(&mut builder, backend)?;
    Ok(builder.finish())
}

/// A value of an SQL type: `bind(Integer, &self.shard)` writes `$n`.
pub(crate) fn bind<'b, ST, U: ?Sized, DB: Binds<ST, U>>(_: ST, value: &'b U) -> impl Sql<'b, DB> {
    move |out: AstPass<'_, 'b, DB>| DB::push(value, out)
}

/// A fragment of Diesel's, or one that is a statement of its own.
pub(crate) fn walk<'b, F: QueryFragment<DB> + ?Sized, DB: Backend>(
    fragment: &'b F,
) -> impl Sql<'b, DB> {
    move |out: AstPass<'_, 'b, DB>| fragment.walk_ast(out)
}

/// A part that depends on the dialect, as `on(Dialect::all_rows)`.
pub(crate) fn on<'b, P: Sql<'b, DB>, DB: ShardedBackend>(
    of: impl FnOnce(Dialect) -> P,
) -> impl Sql<'b, DB> {
    move |out: AstPass<'_, 'b, DB>| {
        let dialect = out.backend().dialect();
        of(dialect).push(out)
    }
}

/// Writes the parts of a statement one after the other. Between parentheses stands the pass first, `sql!(out; "SELECT ", id(name))`, and the
/// result is that of a function that writes to it. Between braces, `sql! { "SELECT ", id(name) }` is a part itself.
///
/// Beside values that are parts ([`Sql`]) there are
///
/// - `for item in (items, ", ") { .. }`, with the separator between two items
/// - `if condition { .. } else { .. }`
///
/// (`;` and braces keep rustfmt from writing each part on a line of its own.)
macro_rules! sql {
    ($out:ident; $($parts:tt)*) => {{
        let mut out = $out;
        $crate::query_builder::sql!(@parts out; $($parts)*);
        ::diesel::QueryResult::Ok(())
    }};
    ($out:ident.reborrow(); $($parts:tt)*) => {{
        let mut out = $out.reborrow();
        $crate::query_builder::sql!(@parts out; $($parts)*);
        ::diesel::QueryResult::Ok(())
    }};
    (@parts $out:ident;) => {};
    (@parts $out:ident; $sql:literal $(, $($rest:tt)*)?) => {
        $out.push_sql($sql);
        $crate::query_builder::sql!(@parts $out; $($($rest)*)?);
    };
    (@parts $out:ident; for $item:pat in ($items:expr, $separator:expr) { $($each:tt)* } $(, $($rest:tt)*)?) => {
        for (i, $item) in ::std::iter::IntoIterator::into_iter($items).enumerate() {
            if i > 0 {
                $out.push_sql($separator);
            }
            $crate::query_builder::sql!(@parts $out; $($each)*);
        }
        $crate::query_builder::sql!(@parts $out; $($($rest)*)?);
    };
    (@parts $out:ident; if $($condition_and_rest:tt)+) => {
        $crate::query_builder::sql!(@if $out []; $($condition_and_rest)+);
    };
    (@parts $out:ident; $part:expr $(, $($rest:tt)*)?) => {
        $crate::query_builder::Sql::push($part, $out.reborrow())?;
        $crate::query_builder::sql!(@parts $out; $($($rest)*)?);
    };
    (@if $out:ident [$($condition:tt)+]; { $($then:tt)* } else { $($other:tt)* } $(, $($rest:tt)*)?) => {
        if $($condition)+ {
            $crate::query_builder::sql!(@parts $out; $($then)*);
        } else {
            $crate::query_builder::sql!(@parts $out; $($other)*);
        }
        $crate::query_builder::sql!(@parts $out; $($($rest)*)?);
    };
    (@if $out:ident [$($condition:tt)+]; { $($then:tt)* } $(, $($rest:tt)*)?) => {
        if $($condition)+ {
            $crate::query_builder::sql!(@parts $out; $($then)*);
        }
        $crate::query_builder::sql!(@parts $out; $($($rest)*)?);
    };
    (@if $out:ident [$($condition:tt)*]; $token:tt $($rest:tt)+) => {
        $crate::query_builder::sql!(@if $out [$($condition)* $token]; $($rest)+);
    };
    ($($parts:tt)*) => {
        $crate::query_builder::part(move |out| $crate::query_builder::sql!(out; $($parts)*))
    };
}

pub(crate) use sql;

/// Tells the compiler that a closure is a part.
pub(crate) fn part<'b, DB, F>(push: F) -> F
where
    DB: Backend,
    F: FnOnce(AstPass<'_, 'b, DB>) -> QueryResult<()>,
{
    push
}

/// Implements `Copy` for types whose parameters need not be. Generics stand in brackets before the type.
macro_rules! copies {
    ($([$($generics:tt)*] $type:ty),+ $(,)?) => {$(
        impl<$($generics)*> Clone for $type {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<$($generics)*> Copy for $type {}
    )+};
}

/// Implements `QueryFragment` on every sharded backend, for types that have one SQL. Generics stand in brackets, with a comma behind them.
///
/// `: Query<Integer>` behind a type is for a query of rows of this SQL type. `, no query id []` implements `QueryId` for one whose text
/// differs between values of the type, as by their number of rows or keys: no id stands for one text. Its brackets contain the generics
/// of the type alone.
macro_rules! fragments {
    ($(
        [$($generics:tt)*] $fragment:ty $(: Query<$sql_type:ty>)? $(, no query id [$($plain:tt)*])?;
        |$self:ident, $out:pat_param| $write:expr;
    )+) => {$(
        impl<$($generics)* DB: $crate::backend::ShardedBackend> ::diesel::query_builder::QueryFragment<DB> for $fragment {
            fn walk_ast<'b>(
                &'b $self,
                $out: ::diesel::query_builder::AstPass<'_, 'b, DB>,
            ) -> ::diesel::QueryResult<()> {
                $write
            }
        }
        $(impl ::diesel::query_builder::Query for $fragment {
            type SqlType = $sql_type;
        })?
        $(impl<$($plain)*> ::diesel::query_builder::QueryId for $fragment {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        })?
    )+};
}

/// Declares statements whose parts are known by `dyn`, and so are compiled once for each backend: a struct with the parameter `DB`, and what
/// writes its SQL. Diesel knows them [by their text](fragments), unless they are [`Identified`](crate::query_builder::Identified).
///
/// `: Query<Integer>` behind the struct is for a query of rows of this SQL type, `: Prepare` for a statement that ends in a condition, and
/// so can take a checksum.
macro_rules! statements {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident<$lifetime:lifetime $(, $part:ident $(: $bound:path)?)*> $fields:tt
        $(: $kind:ident $(<$sql_type:ty>)?)?;
        |$self:ident, $out:pat_param| $write:block
    )+) => {$(
        statements!(@struct $fields [
            $(#[$attribute])*
            $visibility struct $name<$lifetime, $($part,)* DB: ::diesel::backend::Backend>
        ]);
        $crate::query_builder::fragments! {
            [$($part $(: $bound)?,)*] $name<'_, $($part,)* DB>, no query id [$($part,)* DB: ::diesel::backend::Backend];
            |$self, $out| $write;
        }
        statements!(@kind $name [$($part)*] $($kind $($sql_type)?)?);
    )+};
    (@struct { $($field:tt)* } [$($head:tt)*]) => { $($head)* { $($field)* } };
    (@struct ($($field:tt)*) [$($head:tt)*]) => { $($head)* ($($field)*); };
    (@kind $name:ident [$($part:ident)*] Query $sql_type:ty) => {
        impl<$($part,)* DB: ::diesel::backend::Backend> ::diesel::query_builder::Query for $name<'_, $($part,)* DB> {
            type SqlType = $sql_type;
        }
    };
    (@kind $name:ident [$($part:ident)*]) => {};
    (@kind $name:ident [] Prepare) => {
        impl<DB: $crate::backend::ShardedBackend> $crate::query_builder::Prepare<DB> for $name<'_, DB> {}
    };
}
pub(crate) use {copies, fragments, statements};
