//! The thread that commits batches.

mod exceptions;
mod failure;
mod requests;
mod run;
mod send_batch;
mod send_chunk;

pub(super) use self::run::{Borrow, Borrowed, LONGEST_LEAVE, Worker};
