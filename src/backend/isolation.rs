//! Isolation levels.

/// How far concurrent transactions may see each other, as SQL names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed before it.
    ReadCommitted,
    /// All statements see what was committed before the first one.
    RepeatableRead,
    /// As if the transactions had run one after the other. SQLite's only level.
    Serializable,
}
