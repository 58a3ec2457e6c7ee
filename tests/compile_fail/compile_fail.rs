//! Code that must not compile, and the error messages. `TRYBUILD=overwrite` writes the messages anew.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}
