//! The table of videos that small benchmarks count on.

diesel_sharded_tests::counted_table! {
    Video of videos (id) {
        id -> BigInt = i64,
        #[sharded] views -> BigInt = i64,
    }
}

pub use self::videos::*;
