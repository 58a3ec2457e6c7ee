//! A fault: its name, the databases on which it strikes, and the function that plays its rounds.

use crate::backend::Backend;
use crate::extent::Extent;
use crate::report::Line;

/// A fault.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Its name on the command line.
    pub name: &'static str,
    /// The fault itself, and the property that must hold.
    pub about: &'static str,
    pub backends: &'static [Backend],
    /// The number of rounds of a full run and of a short one.
    pub rounds: (u32, u32),
    pub run: fn(&Extent, Backend, &mut Line),
}
