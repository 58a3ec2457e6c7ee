//! A column's type that changes beside connections to PostgreSQL which keep statements prepared. A process that has met it keeps none, so
//! each test runs in a process of its own.

use std::process::Command;

#[path = "changed_types"]
mod blocking {
    use diesel_sharded as api;

    type Conn = diesel::PgConnection;

    mod cases;
}

#[path = "changed_types"]
mod asynchronous {
    use diesel_sharded_tests::awaited as api;

    type Conn = api::Awaited<diesel_async::AsyncPgConnection>;

    mod cases;
}

/// Runs a test's work in a process of its own.
fn apart(module: &str, test: &str, work: fn()) {
    const APART: &str = "DIESEL_SHARDED_APART";
    if std::env::var_os(APART).is_some() {
        return work();
    }
    let (_, module) = module.split_once("::").expect("a module of this program");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("{module}::{test}")])
        .env(APART, "1")
        .output()
        .expect("a process");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        text.contains("1 passed") && output.status.success(),
        "{text}"
    );
}
