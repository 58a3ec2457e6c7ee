//! The contenders' tables. Each contender has its own, so that none inherits another's rows.

use diesel::prelude::*;
use diesel_sharded::ShardedField;

/// The number of rows of each table; their ids begin at 1.
pub const ROWS: i64 = 1000;

/// Declares tables with an id and a plain counter.
macro_rules! plain {
    ($($table:ident)*) => {
        $(diesel::table! {
            $table (id) {
                id -> BigInt,
                views -> BigInt,
            }
        })*

        /// The names of the plain tables.
        pub const PLAIN: &[&str] = &[$(stringify!($table)),*];
    };
}

/// Declares tables with an id and a sharded counter: the table, its shards table, the number of shards.
macro_rules! sharded {
    ($($table:ident, $shards_table:ident, $shards:literal;)*) => {
        $(
            diesel::table! {
                $table (id) {
                    id -> BigInt,
                    views -> BigInt,
                }
            }

            const _: () = {
                #[derive(Identifiable, ShardedField)]
                #[diesel(table_name = $table)]
                #[sharded(table_name = $shards_table, shards = $shards)]
                #[expect(dead_code, reason = "the derive reads the field's type")]
                struct Video {
                    id: i64,
                    #[sharded]
                    views: i64,
                }
            };
        )*

        /// The names of the sharded tables, and their numbers of shards.
        pub const SHARDED: &[(&str, i64)] = &[$((stringify!($table), $shards)),*];

        /// Calls a macro with each of the sharded tables.
        macro_rules! for_each_sharded {
            ($call:ident) => { $($call!($table);)* };
        }
        pub(crate) use for_each_sharded;
    };
}

plain!(one_row prepared_row written_behind written_behind_logged);

sharded! {
    random_16, random_16_shards, 16;
    random_128, random_128_shards, 128;
    adaptive, adaptive_shards, 128;
    combined, combined_shards, 128;
}

diesel::table! {
    events (id) {
        id -> BigInt,
        video_id -> BigInt,
        n -> BigInt,
    }
}

/// The tables of events: one for Diesel's statement, one for the statement written by hand.
pub const EVENTS: [&str; 2] = ["events", "prepared_events"];

diesel::table! {
    slots (counter, slot) {
        counter -> BigInt,
        slot -> Integer,
        count -> BigInt,
    }
}

/// The tables of slots: one for Diesel's statement, one for the statements written by hand.
pub const SLOTTED: [&str; 2] = ["slots", "prepared_slots"];

/// The slots of each counter.
pub const SLOTS: i64 = 100;

diesel::table! {
    comments (id) {
        id -> BigInt,
        video_id -> BigInt,
        body -> Text,
    }
}
