//! The parents that a filter picks, as a derived table of their keys.

use std::borrow::Cow;

use diesel::query_builder::QueryFragment;

use crate::backend::ShardedBackend;
use crate::query_builder::{Names, Sql, id, sql, walk};

/// The derived table.
pub(super) const PICKED: &str = "sharded_picked";

/// Unlikely to be the name of a column of the application's, which would be ambiguous. Keys of few columns allocate nothing: Diesel
/// walks a statement several times for each count.
pub(super) fn picked_key(number: usize) -> Cow<'static, str> {
    const NAMES: [&str; 4] = [
        "sharded_key_0",
        "sharded_key_1",
        "sharded_key_2",
        "sharded_key_3",
    ];
    match NAMES.get(number) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("sharded_key_{number}")),
    }
}

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// `column AS sharded_key_0`, where `column` writes a column of the key
    pub(super) fn key_as_picked<C: Sql<'b, DB>>(
        self,
        column: impl Fn(&'b str) -> C,
    ) -> impl Sql<'b, DB> {
        sql! { for (i, key) in (self.key.iter().enumerate(), ", ") { column(&key.name), " AS ", id(&picked_key(i)) } }
    }

    /// `SELECT parent.key AS sharded_key_0`
    pub(super) fn select_picked_key(self) -> impl Sql<'b, DB> {
        sql! { "SELECT ", self.key_as_picked(|name| self.column(name)) }
    }

    /// `parent WHERE …`
    pub(super) fn filtered(self, filter: &'b dyn QueryFragment<DB>) -> impl Sql<'b, DB> {
        sql! { walk(self.parent), walk(filter) }
    }

    /// `picked.sharded_key_0 = parent.key`, where `picked` is a table of keys and the shards stand under the parent's name
    pub(super) fn picked_is_aliased_key(self, picked: &str) -> impl Sql<'b, DB> {
        self.picked_is(picked, move |name| self.under_alias().column(name))
    }

    /// `picked.sharded_key_0 = column`, where `column` writes a column of the key
    pub(super) fn picked_is<C: Sql<'b, DB>>(
        self,
        picked: &str,
        column: impl Fn(&'b str) -> C,
    ) -> impl Sql<'b, DB> {
        sql! {
            for (i, key) in (self.key.iter().enumerate(), " AND ") { id(picked), ".", id(&picked_key(i)), " = ", column(&key.name) }
        }
    }
}
