//! The five mistakes graph authors make most: what the compiler says about them is frozen here.
//! After a deliberate change: `TRYBUILD=overwrite cargo test --test author_mistakes`.

#[test]
fn common_mistakes_get_helpful_compile_errors() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
