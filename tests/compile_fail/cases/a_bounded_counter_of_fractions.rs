use diesel::prelude::*;
use diesel_sharded::RowCounter;

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

fn main() {
    let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    let balance = RowCounter::of(accounts::balance, 7).never_below(0);
    let _ = balance.add(-1, conn);
}
