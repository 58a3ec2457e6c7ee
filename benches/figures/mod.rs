//! The figures in the documentation: each block between `<!-- figures: NAME -->` and `<!-- /figures -->` is rendered from the
//! report, tables and sentences alike.

mod blocks;
mod documents;
mod hot_row;
mod long_runs;
mod numbers;
mod reading;
mod scale;
mod shapes;
mod text;

pub use self::blocks::BLOCKS;
pub use self::documents::{Document, documents};
pub use self::numbers::rate;
