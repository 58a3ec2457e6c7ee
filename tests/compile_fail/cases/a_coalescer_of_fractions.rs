use diesel::prelude::*;
use diesel_sharded::RowCounter;
use diesel_sharded::coalescer::Coalescer;

mod schema {
    diesel::table! {
        accounts (id) {
            id -> BigInt,
            balance -> Double,
        }
    }
}
use schema::accounts;

#[derive(diesel_sharded::ShardedField)]
struct Account {
    id: i64,
    #[sharded]
    balance: f64,
}

fn add(coalescer: &Coalescer<SqliteConnection>) {
    let _ = coalescer.add(&RowCounter::of(accounts::balance, 7), 1);
}

fn main() {}
