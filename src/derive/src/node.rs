//! `#[node]`: checks one by one what makes a function a node, and points at what does not.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{Error, FnArg, ItemFn, ReturnType, Type, spanned::Spanned};

/// Most parameters of a node.
const MOST: usize = 4;

pub fn expand(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let state: Option<Type> = if options.is_empty() {
        None
    } else {
        Some(syn::parse2(options).map_err(|error| {
            Error::new(
                error.span(),
                "expected the state of the graph, as in `#[node(Chat)]`, or nothing",
            )
        })?)
    };
    let function: ItemFn = syn::parse2(item).map_err(|error| {
        Error::new(
            error.span(),
            "`#[node]` goes on an async function: `async fn name(..) -> ..`",
        )
    })?;
    let checks = checks(&function, state.as_ref())?;
    Ok(quote! {
        #function
        #checks
    })
}

fn checks(function: &ItemFn, state: Option<&Type>) -> syn::Result<TokenStream> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(
            signature.fn_token,
            "a node is an `async fn`",
        ));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "`#[node]` cannot check a generic function: put it on one with plain types",
        ));
    }
    let types = types(&signature.inputs)?;
    let name = &signature.ident;
    let parameters = types.iter().map(|ty| {
        quote_spanned! {ty.span()=>
            const _: fn() = parameter::<#ty>;
        }
    });
    let names: Vec<_> = (0..types.len()).map(|n| format_ident!("p{n}")).collect();
    let future = quote_spanned! {name.span()=>
        #[allow(dead_code, clippy::all)]
        fn future(#(#names: #types),*) {
            is_send(#name(#(#names),*));
        }
    };
    let returned = state.map(|state| {
        let ty: Type = match &signature.output {
            ReturnType::Default => syn::parse_quote!(()),
            ReturnType::Type(_, ty) => (**ty).clone(),
        };
        quote_spanned! {ty.span()=>
            const _: fn() = returned::<#state, #ty>;
        }
    });
    Ok(quote! {
        const _: () = {
            #[allow(dead_code)]
            fn parameter<T: ::backstitch::extract::FromTask>() {}
            #[allow(dead_code)]
            fn returned<S, R: ::backstitch::graph::IntoOutput<S>>() {}
            #[allow(dead_code)]
            fn is_send<T: ::core::marker::Send>(_: T) {}
            #(#parameters)*
            #returned
            #future
        };
    })
}

fn types(inputs: &syn::punctuated::Punctuated<FnArg, syn::Token![,]>) -> syn::Result<Vec<&Type>> {
    let mut types = Vec::new();
    for (position, input) in inputs.iter().enumerate() {
        let FnArg::Typed(parameter) = input else {
            return Err(Error::new_spanned(
                input,
                "a node has no `self`: take what it needs as `Dep<T>`",
            ));
        };
        if let Type::Reference(reference) = &*parameter.ty {
            return Err(Error::new_spanned(
                reference,
                "a node takes its parameters by value: leave out the `&`",
            ));
        }
        if position == MOST {
            return Err(Error::new_spanned(
                input,
                "a node has at most four parameters: put fields of the state into one view, or \
                 dependencies into one struct",
            ));
        }
        types.push(&*parameter.ty);
    }
    Ok(types)
}
