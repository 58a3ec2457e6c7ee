//! The rules of the code, and the surroundings in which it runs.

use crate::fix::Fix;
use crate::isolation::Isolation;

/// Everything that operations depend on, beside the rows.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The connections' default level of isolation.
    pub isolation: Isolation,
    /// Policies, triggers and settings.
    pub surroundings: Surroundings,
    /// The fixes that the code is to lack.
    pub left_out: &'static [Fix],
    /// The application's closures swallow errors.
    pub swallows_errors: bool,
}

impl Rules {
    /// Whether the code has this fix.
    pub fn has(&self, fix: Fix) -> bool {
        !self.left_out.contains(&fix)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            isolation: Isolation::ReadCommitted,
            surroundings: Surroundings::default(),
            left_out: &[],
            swallows_errors: false,
        }
    }
}

/// Policies, triggers and settings of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// Counting connections check foreign keys.
    pub checks_foreign_keys: bool,
    /// Row security shows parents, and hides them from locks and updates.
    pub row_security: bool,
    /// A trigger suppresses updates of parents.
    pub suppresses_updates: bool,
    /// A trigger on updates of parents counts on their first shard.
    pub counts_in_trigger: bool,
}

impl Default for Surroundings {
    fn default() -> Self {
        Surroundings {
            checks_foreign_keys: true,
            row_security: false,
            suppresses_updates: false,
            counts_in_trigger: false,
        }
    }
}
