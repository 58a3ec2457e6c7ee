//! A fault: its name, the databases on which it strikes, and the function that plays its rounds.

use crate::backend::Backend;
use crate::extent::Extent;
use crate::report::Line;

/// A fault.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Its name on the command line.
    pub name: &'static str,
    /// What strikes, and what has to hold.
    pub about: &'static str,
    pub backends: &'static [Backend],
    /// Rounds in the full form and in the short one.
    pub rounds: (u32, u32),
    pub run: fn(&Extent, Backend) -> Line,
}
