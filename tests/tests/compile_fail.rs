//! What must not compile, and what it tells. `TRYBUILD=overwrite` writes the messages down anew.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
