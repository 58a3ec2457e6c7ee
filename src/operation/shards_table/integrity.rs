//! Foreign keys or triggers keep shards and their parents together.

/// The means that remove and rename the shards of a row that is deleted or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Integrity {
    /// A foreign key with `CASCADE`; on SQLite triggers too.
    #[default]
    ForeignKey,
    /// Triggers, on every database.
    Triggers,
    /// The application; on SQLite triggers.
    Application,
}
