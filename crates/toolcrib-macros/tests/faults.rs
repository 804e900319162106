//! What rustc says where a function cannot be a tool. To write the expected words anew:
//! `TRYBUILD=overwrite cargo test --test faults`.

#[test]
fn faults_point_at_their_tokens() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/faults/*.rs");
}
