//! Judges a history of lives.
//!
//! Nothing is killed or cut here, so every operation tells its outcome. Only one thing can be unknown: the life on which a count fell,
//! if the count overlapped the end of one life and the beginning of another.
//!
//! - *Where a life is.* A life may be under a key from the moment when its insert, or a rename to that key, began. It may be there until
//!   its delete, or a rename to another key, has ended. It is certainly there from the end of the former to the beginning of the latter.
//! - *Counts.* An acknowledged count fell on a life that may have been under its key meanwhile. If there is only one such life, the count
//!   is in that life's total from then on, whatever its key. If there are several, it may be in any of them. If there is none, the
//!   acknowledgement was wrong. Sets and repairs begin eras by the same rule.
//! - *Reads* have to fit the eras of their life, as in [`crate::checker`]. So do the totals that deletes and renames return.
//! - *The end of a life.* A life's last total, at its delete or at the end of the round, is the sum of its first total, the counts that
//!   certainly fell on it, and some of those that may have.
//! - *The sum.* Where nothing is set, all lives together have grown by the acknowledged amounts: each count fell on exactly one life. So
//!   no count is lost or doubled between two lives.
//! - *Not there.* An operation reports a missing row only if the row was missing at some moment meanwhile. A read returns every life that
//!   is certainly there, and none that cannot be there.
//! - *Named counters* read 0 after a delete, as if they were set to 0.
//! - *Bounds* hold in every read.

mod judge;
mod life;
#[cfg(test)]
mod tests;

pub use self::judge::{Aftermath, judge};
