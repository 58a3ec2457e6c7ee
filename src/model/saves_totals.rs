//! Refuses to compile models that would save their totals.

use std::marker::PhantomData;

use diesel::query_builder::AsChangeset;

use super::reads_totals::ReadsTotals;

/// A model that is meant to save its sharded fields. The derives require this wherever Diesel could save them.
#[diagnostic::on_unimplemented(
    message = "saving `{Self}` would write totals into the columns of its sharded fields",
    label = "the next total would have the shards in it twice",
    note = "write `#[diesel(skip_update)]` on the sharded fields, or derive `AsChangeset` on a struct without them: \
            `diesel_sharded::update` counts them, and `diesel_sharded::set_total` sets their totals",
    note = "if it means to write these columns, write `#[sharded(saves_totals)]` above it"
)]
pub trait SavesTotals {}

/// A model. The derives call `(&&model).saves_totals()` with the traits below in scope. The compiler resolves it to the first that fits:
/// [`IfReadsTotals`], [`IfSaved`], [`IfNotSaved`]. (Only `ShardedField` imports the first: `ShardedSelectable` reports the same model.)
#[derive(Debug)]
pub struct Model<M>(PhantomData<M>);

impl<M> Model<M> {
    /// The one value.
    pub const NEW: Self = Model(PhantomData);
}

/// See [`Model`].
pub trait IfReadsTotals {
    /// Always compiles.
    fn saves_totals(&self) {}
}

impl<M: ReadsTotals> IfReadsTotals for &Model<M> {}

/// See [`Model`].
pub trait IfSaved {
    /// The model.
    type Model;

    /// Compiles if the model implements [`SavesTotals`].
    fn saves_totals(&self)
    where
        Self::Model: SavesTotals,
    {
    }
}

impl<M: AsChangeset> IfSaved for &&Model<M> {
    type Model = M;
}

/// See [`Model`].
pub trait IfNotSaved {
    /// Always compiles.
    fn saves_totals(&self) {}
}

impl<M> IfNotSaved for Model<M> {}
