//! The names that applications import beside [`diesel::prelude`].

pub use crate::{ShardedExpressionMethods, ShardedField, ShardedSelectable};
