//! `fold(..)`: moves shards into the base, under full write load, without changing any total.

mod builder;
mod folder;
mod folding;
mod pace;

#[cfg(feature = "async")]
pub use self::builder::asynchronous;
pub use self::builder::{Fold, Folded, fold};
pub use self::folder::{Folder, FolderBuilder, FolderStats};
pub(crate) use self::folding::{Batches, Folding};
pub use self::pace::Pace;
