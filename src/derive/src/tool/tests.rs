//! Tests of what authors read when `#[tool]` cannot make a tool of a function.

use quote::quote;

use super::*;

fn complaint(options: TokenStream, item: TokenStream) -> String {
    match expand(options, item) {
        Ok(tokens) => panic!("it expands to {tokens}"),
        Err(error) => error.to_string(),
    }
}

fn complaint_about(item: TokenStream) -> String {
    complaint(quote!(), item)
}

#[test]
fn mistakes_are_named_with_what_to_write() {
    let cases = [
        (
            quote!(
                struct Weather;
            ),
            "goes on an async function",
        ),
        (
            quote!(
                fn weather(city: String) -> String {
                    city
                }
            ),
            "is an `async fn`",
        ),
        (
            quote!(
                async fn weather<T>(city: T) {}
            ),
            "no generic parameters",
        ),
        (
            quote!(
                async fn weather(&self, city: String) {}
            ),
            "take what it needs as `Dep<T>`",
        ),
        (
            quote!(
                async fn weather(city: &str) {}
            ),
            "take it as `String`",
        ),
        (
            quote!(
                async fn weather(City { name }: City) {}
            ),
            "write `name: Type`",
        ),
        (
            quote!(
                async fn weather(city: impl Into<String>) {}
            ),
            "needs a type of its own",
        ),
        (
            quote!(
                async fn weather(#[inline] city: String) {}
            ),
            "`#[serde(..)]`",
        ),
        (
            quote!(
                async fn weather(#[doc = "x"] ctx: Ctx) {}
            ),
            "it comes from the run",
        ),
        (
            quote!(
                async fn wetter_für_städte() {}
            ),
            "set another one",
        ),
    ];
    for (item, expected) in cases {
        let found = complaint_about(item);
        assert!(found.contains(expected), "{found}");
    }
    let function = || {
        quote!(
            async fn weather() {}
        )
    };
    assert!(complaint(quote!(title = "x"), function()).contains("expected one of: name"));
    assert!(complaint(quote!(name = 3), function()).contains("expected a text"));
    assert!(complaint(quote!(name = "two words"), function()).contains("set another one"));
}

#[test]
fn only_types_of_the_run_are_taken_from_it() {
    let of_the_run = |ty: TokenStream| comes_from_run(&syn::parse2(ty).expect("a type"));
    assert!(of_the_run(quote!(Ctx)) && of_the_run(quote!(backstitch::extract::Ctx)));
    assert!(of_the_run(quote!(Dep<dyn Model>)) && of_the_run(quote!(Config<T>)));
    // An author's own types of these names are arguments.
    assert!(!of_the_run(quote!(Config)) && !of_the_run(quote!(View)));
    assert!(!of_the_run(quote!(Option<Ctx>)) && !of_the_run(quote!(String)));
}
