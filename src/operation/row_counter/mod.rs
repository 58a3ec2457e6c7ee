//! One sharded field of one row, as a value that can be passed around.

mod add;
mod add_and_get;
mod cached;
mod counter;
mod field;
mod idempotent;

pub use self::add::AddTo;
pub(crate) use self::add::{ReadyToAdd, ready_to_add};
pub(crate) use self::add_and_get::add_and_get;
pub use self::counter::RowCounter;
pub use self::field::IntegerField;
