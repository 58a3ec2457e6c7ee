//! Reading totals, beside the expressions that Diesel's own queries hold.

pub mod cached;
pub(crate) mod top;
