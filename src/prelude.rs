//! The names that applications import beside [`diesel::prelude`].

pub use crate::{PeakExpressionMethods, ShardedExpressionMethods, ShardedField, ShardedSelectable};
