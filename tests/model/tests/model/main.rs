//! The model's properties, with each fix and without it; and the library's own threads, by every interleaving and by random schedules.

mod faults;
mod interleavings;
mod larger;
mod pooler;
mod protocols;
mod schedules;
