//! A few rounds of every fault, on servers of their own: about three minutes.

use std::process::Command;

#[test]
fn a_few_rounds_of_every_fault() {
    let program = env!("CARGO_BIN_EXE_diesel_sharded_chaos");
    let ended = Command::new(program).arg("--short").status();
    assert!(ended.expect("the program of this package").success());
}
