//! `fold(..)`: moves shards into the base, under full write load, without changing any total.

mod batch;
mod batches;
mod builder;
mod every;
mod folded;
mod folder;
mod pace;
mod passes;
mod schedule;

pub(in crate::operation) use self::batch::Folding;
pub(in crate::operation) use self::batches::Batches;
#[cfg(feature = "async")]
pub use self::builder::asynchronous;
pub use self::builder::{Fold, fold};
pub use self::every::FolderBuilder;
pub use self::folded::Folded;
pub use self::folder::Folder;
pub use self::pace::Pace;
pub use self::passes::FolderStats;
