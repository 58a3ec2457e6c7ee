//! The model's properties, with each fix and without it; and every interleaving of the library's own threads.

mod combining;
mod faults;
mod interleavings;
mod pooler;
mod protocols;
