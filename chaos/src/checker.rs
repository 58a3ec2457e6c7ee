//! Judges a history.
//!
//! The rule is that of [Jepsen's counter checker](https://jepsen-io.github.io/jepsen/jepsen.checker.html#var-counter), for amounts of
//! either sign. The lower bound of a read is the sum of the operations that must have happened by then, plus the negative amounts of
//! those that may have happened. The upper bound is the same sum plus their positive amounts.
//!
//! - An operation that was acknowledged before the read began must have happened.
//! - An operation that was acknowledged later may have happened from its start on. So may one whose outcome is unknown, and without an
//!   end: a server may still execute it after its client is gone.
//! - An operation that failed never happens.
//!
//! There are more rules:
//!
//! - *Sets.* A set begins an era with its value, the counts that must have come after it, and those that may have. A read has to fit an
//!   era that may hold at its time. The era of an acknowledged set holds until a later set is over: one that began after this set ended,
//!   was acknowledged, and ended before the read. The era of an unknown set may begin at any time and has no certain end.
//! - *Tokens.* A transaction inserts a row that names it, and a count with an idempotency key leaves the key. So the tokens at the end show
//!   which ones happened: every acknowledged one, no failed one, and the unknown ones that have a token. Tokens are unique in the
//!   database. A request that several clients make by one key happens once, between the first start and the first acknowledgement.
//! - *The end.* When all clients have stopped, a total is exactly the sum of the acknowledged amounts, of those with a token, and of some
//!   of the unknown ones. A counter that is only counted with tokens has one right total.
//! - *Teams.* Rows that are always counted together show the same sums in every read.
//! - *No way back.* A total that is only ever incremented does not fall between two reads.
//! - *Errors.* The library's own operations report only the kinds of errors that a fault explains. A bare error of Diesel's would not tell
//!   the outcome, and no client reuses a key for another count or lets a counter overflow.

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
