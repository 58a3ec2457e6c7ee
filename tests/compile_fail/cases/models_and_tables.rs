//! Models that do not fit their tables, read no totals, or save bases. Only one model of a table declares its sharded fields, so each has a
//! table of its own.

use diesel::prelude::*;
use diesel_sharded::prelude::*;

diesel::table! { integers (id) { id -> BigInt, views -> BigInt, } }

#[derive(ShardedField)]
#[diesel(table_name = integers)]
struct OfAnotherType {
    id: i64,
    #[sharded]
    views: i32,
}

diesel::table! { ratings (id) { id -> BigInt, rating -> Nullable<BigInt>, } }

#[derive(ShardedField)]
#[diesel(table_name = ratings)]
struct Nullable {
    id: i64,
    #[sharded]
    rating: i64,
}

diesel::table! { analytics.apart (id) { id -> BigInt, views -> BigInt, } }

#[derive(ShardedField)]
#[diesel(table_name = apart)]
struct SchemaNotNamed {
    id: i64,
    #[sharded]
    views: i64,
}

diesel::table! { plain (id) { id -> BigInt, views -> BigInt, } }

#[derive(ShardedField)]
#[diesel(table_name = plain)]
#[sharded(schema = analytics, table_name = plain_shards)]
struct SchemaOfAPlainTable {
    id: i64,
    #[sharded]
    views: i64,
}

diesel::table! { spans (length) { length -> Double, views -> BigInt, } }

#[derive(ShardedField)]
#[diesel(primary_key(length))]
struct Span {
    length: f64,
    #[sharded]
    views: i64,
}

diesel::table! { bases (id) { id -> BigInt, views -> BigInt, } }

#[derive(Queryable, Selectable, Identifiable, ShardedField)]
#[diesel(table_name = bases)]
struct ReadsNoTotals {
    id: i64,
    #[sharded]
    views: i64,
}

diesel::table! { saved_bases (id) { id -> BigInt, views -> BigInt, } }

#[derive(ShardedField, AsChangeset)]
#[diesel(table_name = saved_bases)]
struct SavesBases {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {}
