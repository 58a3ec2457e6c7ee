//! Code that writes SQL and reads like SQL, and statements as types.
//!
//! ```text
//! sql!(out; "UPDATE ", table.shards_as_parent(), " SET ", for field in (fields, ", ") { id(&field.name), " = 0" });
//! ```

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment};

use crate::backend::{Binds, Dialect, ShardedBackend};

/// A part of a statement: SQL text, [`id`], [`bind`], [`walk`], or a function that writes to a pass, such as `sql! { .. }` makes.
///
/// Binds live as long as the statement (`'b`). Everything else in a part is written at once.
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

/// A part that may be absent.
impl<'b, DB: Backend, P: Sql<'b, DB>> Sql<'b, DB> for Option<P> {
    fn push(self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.map_or(Ok(()), |part| part.push(out))
    }
}

/// A name, quoted as the backend requires.
pub(crate) fn id<'b, DB: Backend>(name: &str) -> impl Sql<'b, DB> {
    move |mut out: AstPass<'_, 'b, DB>| out.push_identifier(name)
}

/// The SQL text of a fragment.
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

/// A fragment that implements Diesel's [`QueryFragment`].
pub(crate) fn walk<'b, F: QueryFragment<DB> + ?Sized, DB: Backend>(
    fragment: &'b F,
) -> impl Sql<'b, DB> {
    move |out: AstPass<'_, 'b, DB>| fragment.walk_ast(out)
}

/// A part that depends on the dialect: `on(Dialect::all_rows)`.
pub(crate) fn on<'b, P: Sql<'b, DB>, DB: ShardedBackend>(
    of: impl FnOnce(Dialect) -> P,
) -> impl Sql<'b, DB> {
    move |out: AstPass<'_, 'b, DB>| {
        let dialect = out.backend().dialect();
        of(dialect).push(out)
    }
}

/// Writes the parts of a statement one after the other. With parentheses the pass comes first, `sql!(out; "SELECT ", id(name))`: the macro
/// writes to it and returns a `QueryResult`. With braces, `sql! { "SELECT ", id(name) }` is a part itself.
///
/// Besides values that are parts ([`Sql`]), it accepts
///
/// - `for item in (items, ", ") { .. }`, with the separator between two items
/// - `if condition { .. } else { .. }`
///
/// (`;` and braces keep rustfmt from putting each part on a separate line.)
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

/// Implements `Copy` for types whose parameters need not be `Copy`. Generics come first, in brackets.
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

/// Implements `QueryFragment` on every sharded backend. Generics come first, in brackets, with a comma after the last.
///
/// `: Query<Integer>` after the type declares a query whose rows have this SQL type. `, no query id []` implements `QueryId` for a type
/// whose values differ in their text, for example by the number of rows or keys, so that no id can identify the text. Its brackets contain
/// only the type's own generics.
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

/// Declares statements: for each a struct with the parameter `DB`, and the code that writes its SQL. The parts are `dyn`, so a statement
/// is compiled once for each backend. Diesel identifies it by its text, unless it is [`Identified`](crate::query_builder::Identified).
///
/// `: Query<Integer>` after the struct declares a query whose rows have this SQL type. `: Prepare` declares a statement that ends in a
/// condition, so that a checksum can follow.
macro_rules! statements {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident<$lifetime:lifetime $(, $part:ident $(: $bound:path)?)*> $fields:tt
        $(: $kind:ident $(<$sql_type:ty>)?)?;
        |$self:ident, $out:pat_param| $write:block
    )+) => {$(
        statements!(@struct $fields [
            $(#[$attribute])*
            $visibility struct $name<$lifetime, $($part,)* DB: ::diesel::backend::Backend + 'static>
        ]);
        $crate::query_builder::fragments! {
            [$($part $(: $bound)?,)*] $name<'_, $($part,)* DB>, no query id [$($part,)* DB: ::diesel::backend::Backend + 'static];
            |$self, $out| $write;
        }
        statements!(@kind $name [$($part)*] $($kind $($sql_type)?)?);
    )+};
    (@struct { $($field:tt)* } [$($head:tt)*]) => { $($head)* { $($field)* } };
    (@struct ($($field:tt)*) [$($head:tt)*]) => { $($head)* ($($field)*); };
    (@kind $name:ident [$($part:ident)*] Query $sql_type:ty) => {
        impl<$($part,)* DB: ::diesel::backend::Backend + 'static> ::diesel::query_builder::Query for $name<'_, $($part,)* DB> {
            type SqlType = $sql_type;
        }
    };
    (@kind $name:ident [$($part:ident)*]) => {};
    (@kind $name:ident [] Prepare) => {
        impl<DB: $crate::backend::ShardedBackend> $crate::query_builder::Prepare<DB> for $name<'_, DB> {}
    };
}
pub(crate) use {copies, fragments, statements};
