//! Judges what became of lives.
//!
//! Nothing is cut or killed here, so every operation tells what it did. What is not known is only on which life a count fell that
//! overlapped the end of one and the beginning of another.
//!
//! - *Where a life is.* It may be under a key from when its insert, or a rename to there, began, and until its delete, or a rename
//!   away, has ended; it is there for certain from when the first has ended until the second begins.
//! - *Counts.* One that was acknowledged fell on a life that may have been under its key meanwhile. If there is only one, it is in that
//!   life's total from then on, whatever its key is; if there are several, it may be in any of them; if there is none, it was
//!   acknowledged for nothing. Sets and repairs begin eras, by the same rule.
//! - *Reads*, and the totals that deletes and renames answer with: they fit the eras of their life, as in
//!   [`crate::checker`].
//! - *The end of a life.* The total with which it is deleted, or with which it is there when nobody counts any more, is its first one, what
//!   was counted on it for certain, and some of what may have been.
//! - *The sum.* Where nothing is set, all lives together have grown by what was acknowledged: each count fell on one life. So none can
//!   be lost or doubled between two.
//! - *Not there.* An operation says that there is no row only if there was none at some time meanwhile. A read shows every life that is
//!   there for certain, and none that cannot be.
//! - *Named counters* read 0 when they are deleted, as if they were set to it.
//! - *Bounds* hold in every read.

mod finding;
mod judge;
mod life;
#[cfg(test)]
mod tests;

pub use self::finding::{Aftermath, Counted, Finding};
pub use self::judge::judge;
