//! Connections: how statements reach them, and which transactions are open on them.

#[cfg(feature = "async")]
mod asynchronous;
mod blocking;
mod link;
mod paired;
#[cfg(feature = "async")]
pub(crate) mod pause;
mod raw;
#[cfg(feature = "async")]
mod shared;
mod transaction;
pub(crate) mod wait;

#[cfg(feature = "async")]
pub use self::asynchronous::{Async, BoxFuture};
pub use self::blocking::Blocking;
pub(crate) use self::blocking::now;
pub use self::link::{Io, Link, LoadInto, LoadIo, Over};
pub(crate) use self::link::{read, told};
pub(crate) use self::paired::paired;
pub(crate) use self::raw::{commits_by_itself, in_any_transaction, met_inside, note_surplus};
#[cfg(feature = "async")]
pub use self::shared::Shared;
pub(crate) use self::transaction::{
    Ending, Fixed, OpenTransaction, TransactionOptions, begin, clean_up, depth_of, in_transaction,
    other_nodes_write, set_other_nodes_write,
};
