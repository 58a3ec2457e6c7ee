//! Kept statements behind a pooler in transaction mode.

use diesel_sharded_model::pooler::{COUNTED, LOST, Pooler, TABLES};
use stateright::{Checker, Model};

const POOLER: Pooler = Pooler {
    guards: true,
    servers: 3,
    counts: 4,
};

#[test]
fn statements_identify_themselves() {
    let checker = POOLER.checker().spawn_bfs().join();
    println!("pooler: {} states", checker.unique_state_count());
    assert!(checker.discovery(TABLES).is_none());
    assert!(checker.discovery(LOST).is_some() && checker.discovery(COUNTED).is_some());
}

#[test]
fn statements_that_do_not_count_on_the_tables_of_others() {
    let guards = false;
    let checker = Pooler { guards, ..POOLER }.checker().spawn_bfs().join();
    let path = checker
        .discovery(TABLES)
        .expect("a count is on another table");
    println!("without a guard: {:?}", path.into_actions());
}
