//! The shapes of an update: each as Diesel runs it on one row, and as this crate runs it on shards. Commits wait for the disk.
//!
//! Each scene has new tables with 1000 links. The threads count on one of them, or on the ten links of one owner.

mod comparison;
mod counts;
mod prepared;
mod shape;
mod tables;
mod way;

pub use self::comparison::write_tables;
pub use self::counts::Shapes;
pub use self::shape::{SHAPES, Shape};
pub use self::tables::create as create_tables;
