//! Connections: how statements reach them, and what transactions are open.

#[cfg(feature = "async")]
mod asynchronous;
mod blocking;
mod depth;
mod fixed;
mod link;
mod other_writers;
mod paired;
#[cfg(feature = "async")]
pub(crate) mod pause;
mod raw;
mod told;
mod transaction;

#[cfg(feature = "async")]
pub use self::asynchronous::{Async, BoxFuture};
pub use self::blocking::Blocking;
pub(crate) use self::blocking::now;
pub(crate) use self::depth::{depth_of, in_transaction};
pub(crate) use self::fixed::clean_up;
pub use self::link::{Io, Link, LoadInto, LoadIo};
pub(crate) use self::other_writers::{other_nodes_write, set_other_nodes_write};
pub(crate) use self::paired::paired;
pub(crate) use self::raw::{in_any_transaction, met_inside};
pub(crate) use self::told::told;
pub(crate) use self::transaction::{OpenTransaction, TransactionOptions, begin};
