//! Generates the implementation of `State` and the update builder.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{Path, Type, ext::IdentExt, spanned::Spanned};

use crate::parse::{Field, Merge, State};

pub fn emit(state: &State) -> TokenStream {
    let State {
        name,
        vis,
        krate,
        fields,
    } = state;
    let title = name.to_string();
    let update = format_ident!("{name}Update");
    let idents: Vec<_> = fields.iter().map(|field| &field.ident).collect();
    let channels = fields.iter().map(|field| channel(krate, field));
    let decoded = fields.iter().map(|field| decode(krate, field));
    let setters = fields.iter().map(|field| setter(krate, vis, field));
    let doc =
        format!("A partial update of [`{name}`]: only the channels that were set are written.");
    quote! {
        #[automatically_derived]
        impl #krate::state::State for #name {
            type Update = #update;
            const NAME: &'static str = #title;

            fn channels() -> ::std::vec::Vec<#krate::state::Channel> {
                ::std::vec![#(#channels),*]
            }

            fn decode(
                state: &#krate::value::Map,
            ) -> ::std::result::Result<Self, #krate::state::Unreadable> {
                ::std::result::Result::Ok(Self { #(#decoded),* })
            }
        }

        // Channels that only other nodes or clients read are no dead fields.
        const _: fn(&#name) = |state| {
            let _ = (#(&state.#idents,)*);
        };

        #[allow(dead_code)]
        impl #name {
            /// Starts an empty update.
            #vis fn update() -> #update {
                #update(::std::default::Default::default())
            }
        }

        #[doc = #doc]
        #[must_use = "an update does nothing until the node returns it"]
        #[derive(Clone, Debug)]
        #vis struct #update(#krate::state::Writes);

        #[allow(dead_code, clippy::wrong_self_convention)]
        impl #update {
            #(#setters)*

            /// Adds what runs next, beside the edges of the node.
            #vis fn goto(
                self,
                target: impl ::std::convert::Into<#krate::state::Target>,
            ) -> #krate::state::Command<#name> {
                #krate::state::Command::from(self).goto(target)
            }

            /// Adds several targets, which run in parallel.
            #vis fn goto_each<T: ::std::convert::Into<#krate::state::Target>>(
                self,
                targets: impl ::std::iter::IntoIterator<Item = T>,
            ) -> #krate::state::Command<#name> {
                #krate::state::Command::from(self).goto_each(targets)
            }
        }

        #[automatically_derived]
        impl ::std::convert::From<#update> for #krate::state::Writes {
            fn from(update: #update) -> Self {
                update.0
            }
        }

        #[automatically_derived]
        impl #krate::graph::IntoOutput<#name> for #update {
            fn into_output(self) -> #krate::anyhow::Result<#krate::graph::Output> {
                #krate::graph::IntoOutput::<#name>::into_output(
                    #krate::state::Command::<#name>::from(self),
                )
            }
        }
    }
}

fn channel(krate: &Path, field: &Field) -> TokenStream {
    let (name, ty) = (&field.channel, &field.ty);
    let merge = quote!(#krate::state::merge);
    let kind = match &field.merge {
        Merge::Replace => quote!(#merge::replace()),
        Merge::Append => quote!(#merge::append()),
        // The field's type is checked here, where the error points at the field.
        Merge::Messages => quote_spanned! {ty.span()=> {
            let _: fn(::std::vec::Vec<#krate::message::Message>) -> #ty = |messages| messages;
            #merge::messages()
        }},
        Merge::Ephemeral => quote!(#merge::ephemeral()),
        Merge::Untracked => quote!(#merge::untracked()),
        Merge::Topic => quote!(#merge::topic()),
        Merge::With { function, update } => {
            let update = update.as_deref().unwrap_or(ty);
            quote!(#merge::with::<#ty, #update>(#function))
        }
    };
    let keywords = field.keywords.iter().map(|(keyword, value)| {
        // A value of a type that JSON has not is an error at the value.
        quote_spanned!(value.span()=> .with_keyword(#keyword, #value))
    });
    quote!(#krate::state::Channel::new::<#ty>(#name, #kind) #(#keywords)*)
}

fn decode(krate: &Path, field: &Field) -> TokenStream {
    let (ident, name) = (&field.ident, &field.channel);
    let initial = match field.merge {
        Merge::Append | Merge::Messages | Merge::Topic | Merge::With { .. } => true,
        Merge::Replace | Merge::Ephemeral | Merge::Untracked => field.default,
    };
    let read = if initial {
        quote!(or_default)
    } else {
        quote!(required)
    };
    quote!(#ident: #krate::state::decode::#read(state, #name)?)
}

fn setter(krate: &Path, vis: &syn::Visibility, field: &Field) -> TokenStream {
    let Field {
        ident,
        channel,
        ty,
        docs,
        ..
    } = field;
    let docs = if docs.is_empty() {
        let doc = format!("Updates the channel `{channel}`.");
        quote!(#[doc = #doc])
    } else {
        quote!(#(#docs)*)
    };
    let (argument, merges) = match &field.merge {
        Merge::Replace | Merge::Ephemeral | Merge::Untracked => match inside_option(ty) {
            Some(inside) => (quote!(#krate::state::Maybe<#inside>), false),
            None => (quote!(#ty), false),
        },
        Merge::Append | Merge::Messages => (
            quote!(#krate::state::Many<<#ty as ::std::iter::IntoIterator>::Item>),
            true,
        ),
        Merge::Topic => (
            quote!(#krate::state::Many<<#ty as ::std::iter::IntoIterator>::Item>),
            false,
        ),
        Merge::With { update, .. } => {
            let update = update.as_deref().unwrap_or(ty);
            (quote!(#update), true)
        }
    };
    let set = merges.then(|| {
        let name = format_ident!("set_{}", ident.unraw());
        let doc = format!("Replaces the whole value of the channel `{channel}`.");
        let set = method(&name, vis, &quote!(overwrite), channel, &quote!(#ty));
        quote!(#[doc = #doc] #set)
    });
    let write = method(ident, vis, &quote!(write), channel, &argument);
    quote! {
        #docs
        #write
        #set
    }
}

/// A method of the builder that writes a channel by `write` or `overwrite`.
fn method(
    name: &syn::Ident,
    vis: &syn::Visibility,
    how: &TokenStream,
    channel: &str,
    argument: &TokenStream,
) -> TokenStream {
    // With a number itself as parameter a literal such as `1` has no other type to choose from.
    if syn::parse2::<Type>(argument.clone()).is_ok_and(|ty| is_number(&ty)) {
        return quote! {
            #vis fn #name(mut self, value: #argument) -> Self {
                self.0.#how(#channel, &value);
                self
            }
        };
    }
    quote! {
        #vis fn #name(mut self, value: impl ::std::convert::Into<#argument>) -> Self {
            self.0.#how(#channel, &::std::convert::Into::<#argument>::into(value));
            self
        }
    }
}

/// The `T` of an `Option<T>`.
fn inside_option(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first()? {
        syn::GenericArgument::Type(inside) if last.ident == "Option" => Some(inside),
        _ => None,
    }
}

/// Whether a type is a number of the language.
fn is_number(ty: &Type) -> bool {
    const NUMBERS: [&str; 12] = [
        "i8", "i16", "i32", "i64", "isize", "u8", "u16", "u32", "u64", "usize", "f32", "f64",
    ];
    matches!(ty, Type::Path(path) if NUMBERS.iter().any(|name| path.path.is_ident(name)))
}
