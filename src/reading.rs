//! Reading totals by other means than an expression in a Diesel query.

pub mod cached;
pub(crate) mod top;
