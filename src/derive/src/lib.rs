//! `#[derive(State)]` of Backstitch: turns a plain struct into a set of named channels.
//!
//! It generates an implementation of `State`, which lists the channels and decodes the struct field
//! by field, and a `<Name>Update` builder with one setter per field.

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

mod emit;
mod parse;

/// Turns a struct into a set of named channels. The attributes are explained at the trait
/// `backstitch::state::State`.
#[proc_macro_derive(State, attributes(state))]
pub fn state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    parse::parse(&input)
        .map(|state| emit::emit(&state))
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
