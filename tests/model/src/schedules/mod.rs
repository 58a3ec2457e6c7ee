//! The library's own threads, for random schedules: the coalescer's hand-off and the claims of ranks, by their source. Loom tries all
//! interleavings of two or three threads that are interrupted twice; here are more of both.

pub mod hand_off;
pub mod ranks;
