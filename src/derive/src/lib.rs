//! `#[derive(State)]`, `#[data]` and `#[tool]` of Backstitch: a plain struct as a set of named channels, types of
//! what is in them, and functions that models may call.
//!
//! The derive generates an implementation of `State`, which lists the channels and decodes the struct field
//! by field, and a `<Name>Update` builder with one setter per field.

use proc_macro::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, parse_macro_input};

mod emit;
mod node;
mod parse;
mod tool;

/// Turns an async function into a tool that models may call. The function of its name then returns the tool:
/// `tool_node([weather()])`.
///
/// The doc comment of the function is the tool's description; its parameters, with their doc comments, are the
/// schema. Parameters of the types `Ctx`, `Dep<T>`, `Config<T>`, `View<T>` and `Call` come from the run and are
/// not shown to the model. Options: `name = ".."`, `description = ".."`, `return_direct`, `crate = path`.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(options.into(), item.into())
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

/// Checks that a function can be a node, and points at the parameter, the result or the future that is in the way.
/// It changes nothing: it may stay or be removed once the function is right. With the state of the graph,
/// `#[node(Chat)]`, the result is checked too.
#[proc_macro_attribute]
pub fn node(options: TokenStream, item: TokenStream) -> TokenStream {
    node::expand(options.into(), item.into())
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

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

/// Derives `Serialize`, `Deserialize` and `JsonSchema`, so that a type can be in a state, be an argument of a tool,
/// or go to and from clients, without `serde` and `schemars` among the dependencies. Their
/// attributes, such as `#[serde(rename = "..")]`, work as ever.
#[proc_macro_attribute]
pub fn data(options: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    if !options.is_empty() {
        let error = Error::new_spanned(&item.ident, "`#[data]` takes no options");
        return error.into_compile_error().into();
    }
    quote! {
        #[derive(
            ::backstitch::prelude::Serialize,
            ::backstitch::prelude::Deserialize,
            ::backstitch::prelude::JsonSchema
        )]
        #[serde(crate = "::backstitch::serde")]
        #[schemars(crate = "::backstitch::schemars")]
        #item
    }
    .into()
}
