//! Judges a history.
//!
//! The rule is that of [Jepsen's counter checker](https://jepsen-io.github.io/jepsen/jepsen.checker.html#var-counter), for amounts of
//! either sign: a read lies between the sum of what must have happened by then and all negative amounts of what may have, and the same
//! with all positive amounts.
//!
//! - An operation that was acknowledged before the read began must have happened.
//! - One that was acknowledged later, or whose outcome is unknown, may have happened from its start on: if unknown, for ever, since a
//!   server may still be at it when its client is gone.
//! - One that failed never happens.
//!
//! Beyond that rule:
//!
//! - *Sets.* A set begins an era: its value, what must have been counted after it, what may have been. A read has to fit one
//!   of the eras that may hold at its time. The era of an acknowledged set holds until another acknowledged set, which began
//!   after it ended, has ended before the read; that of an unknown one may begin at any time, and never ends for certain.
//! - *Tokens.* A transaction inserts a row that names it, and a count with an idempotency key leaves the key. So it is known at the end which ones happened: every acknowledged one,
//!   none that failed, and of the unknown ones those that have a token. Tokens are unique in the database. What several clients ask
//!   for by one key happened once, from when the first asked to when the first was told.
//! - *The end.* When nobody counts any more, a total is exactly the sum of what was acknowledged, what has a token, and some of what is
//!   unknown. What was only counted with tokens has one right total.
//! - *Teams.* Rows that are only counted all together show the same sums in every read.
//! - *No way back.* A total that is only ever incremented does not fall from one read to a later one.
//! - *Errors.* What the library itself reports is of one of the kinds that a fault explains: a bare error of Diesel's says nothing of the
//!   outcome, and a key that was used for something else, or an overflow, there is none.

mod eras;
mod finding;
mod judge;
mod judgement;
#[cfg(test)]
mod tests;

pub(crate) use self::eras::{Add, Changes, Eras, Set};
pub use self::finding::Finding;
pub use self::judge::{Aftermath, Rules, judge};
pub use self::judgement::Judgement;
pub(crate) use self::judgement::TOLD;
