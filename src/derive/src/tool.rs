//! `#[tool]`: a function that builds the tool, around the author's async function.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, ItemFn, Lit, LitStr, Pat, Path, PathArguments,
    ReturnType, Type, ext::IdentExt, parse_quote, spanned::Spanned,
};

/// Parameters that come from the run and not from the model.
const OF_THE_RUN: [&str; 5] = ["Ctx", "Dep", "Config", "View", "Call"];

struct Options {
    name: Option<LitStr>,
    description: Option<LitStr>,
    return_direct: bool,
    krate: Path,
}

/// The parameter of a function that is an argument of the tool.
struct Argument {
    ident: Ident,
    ty: Type,
    attrs: Vec<Attribute>,
}

pub fn expand(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let options = parse_options(options)?;
    let mut function: ItemFn = syn::parse2(item).map_err(|error| {
        Error::new(
            error.span(),
            "`#[tool]` goes on an async function: `async fn name(..) -> ..`",
        )
    })?;
    check(&function)?;
    let krate = &options.krate;
    let vis = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let (outer, inner): (Vec<_>, Vec<_>) = std::mem::take(&mut function.attrs)
        .into_iter()
        .partition(|attr| attr.path().is_ident("doc") || attr.path().is_ident("cfg"));
    function.attrs = inner;

    let mut arguments = Vec::new();
    let mut calls = Vec::new();
    let mut requires = Vec::new();
    for input in &mut function.sig.inputs {
        let FnArg::Typed(parameter) = input else {
            return Err(Error::new_spanned(
                input,
                "a tool has no `self`: take what it needs as `Dep<T>`",
            ));
        };
        let attrs = std::mem::take(&mut parameter.attrs);
        let ty = (*parameter.ty).clone();
        if comes_from_run(&ty) {
            if let Some(attr) = attrs.first() {
                return Err(Error::new_spanned(
                    attr,
                    "models do not read about this parameter: it comes from the run",
                ));
            }
            calls.push(quote_spanned! {ty.span()=>
                <#ty as #krate::extract::FromTask>::from_task(&ctx)?
            });
            requires.push(quote_spanned! {ty.span()=>
                <#ty as #krate::extract::FromTask>::requires(requires);
            });
            continue;
        }
        let argument = argument(&parameter.pat, ty, attrs)?;
        let ident = &argument.ident;
        calls.push(quote!(arguments.#ident));
        arguments.push(argument);
    }

    let name = &function.sig.ident;
    let title = match &options.name {
        Some(name) => name.value(),
        None => name.unraw().to_string(),
    };
    if title.is_empty()
        || title.len() > 64
        || !title
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    {
        let at = options
            .name
            .as_ref()
            .map_or_else(|| name.span(), |name| name.span());
        return Err(Error::new(
            at,
            "models take names of 1 to 64 letters, digits, `_` and `-`: set another one with `#[tool(name = \"..\")]`",
        ));
    }
    let description = match &options.description {
        Some(text) => text.value(),
        None => text_of(&outer),
    };
    let return_direct = options.return_direct;
    let fields = arguments
        .iter()
        .map(|Argument { ident, ty, attrs }| quote!(#(#attrs)* #ident: #ty));
    let serde = format!("{}::serde", path_text(krate));
    let schemars = format!("{}::schemars", path_text(krate));
    let fallible = returns_result(&function.sig.output).then(|| quote!(?));
    let at = match &function.sig.output {
        ReturnType::Default => name.span(),
        ReturnType::Type(_, ty) => ty.span(),
    };
    let convert = quote_spanned!(at=> #krate::llm::IntoToolOutput::into_tool_output(output));
    Ok(quote! {
        #(#outer)*
        #vis fn #name() -> ::std::sync::Arc<#krate::llm::Tool> {
            #[derive(#krate::serde::Deserialize, #krate::schemars::JsonSchema)]
            #[serde(crate = #serde)]
            #[schemars(crate = #schemars)]
            struct ArgumentsOfTool { #(#fields),* }

            #function

            #krate::llm::ToolDefinition::new(#title)
                .description(#description)
                .return_direct(#return_direct)
                .requires(|requires| {
                    let _ = &requires;
                    #(#requires)*
                })
                .build(|arguments: ArgumentsOfTool, ctx: #krate::extract::Ctx| async move {
                    let _ = (&arguments, &ctx);
                    let output = #name(#(#calls),*).await #fallible;
                    #convert
                })
        }
    })
}

fn parse_options(tokens: TokenStream) -> syn::Result<Options> {
    let mut options = Options {
        name: None,
        description: None,
        return_direct: false,
        krate: parse_quote!(::backstitch),
    };
    let parser = syn::meta::parser(|meta| {
        let text = |meta: &syn::meta::ParseNestedMeta<'_>| match meta.value()?.parse::<Lit>()? {
            Lit::Str(text) => Ok(text),
            other => Err(Error::new_spanned(other, "expected a text")),
        };
        if meta.path.is_ident("name") {
            options.name = Some(text(&meta)?);
        } else if meta.path.is_ident("description") {
            options.description = Some(text(&meta)?);
        } else if meta.path.is_ident("return_direct") {
            options.return_direct = true;
        } else if meta.path.is_ident("crate") {
            options.krate = meta.value()?.call(Path::parse_mod_style)?;
        } else {
            return Err(
                meta.error("expected one of: name = \"..\", description = \"..\", return_direct")
            );
        }
        Ok(())
    });
    syn::parse::Parser::parse2(parser, tokens)?;
    Ok(options)
}

fn check(function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(
            signature.fn_token,
            "a tool is an `async fn`: a model waits for it while other tools run",
        ));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "a tool has no generic parameters: models read one schema of it",
        ));
    }
    Ok(())
}

fn argument(pat: &Pat, ty: Type, attrs: Vec<Attribute>) -> syn::Result<Argument> {
    let Pat::Ident(pat) = pat else {
        return Err(Error::new_spanned(
            pat,
            "an argument needs a name, which models read: write `name: Type` and take it apart in the body",
        ));
    };
    if let Type::Reference(reference) = &ty {
        let what = reference.elem.to_token_stream().to_string();
        let owned = if what == "str" {
            "String".to_owned()
        } else {
            what
        };
        return Err(Error::new_spanned(
            &ty,
            format!("an argument is decoded from what a model writes: take it as `{owned}`"),
        ));
    }
    if let Type::ImplTrait(_) = &ty {
        return Err(Error::new_spanned(
            &ty,
            "an argument needs a type of its own, from which its schema is made",
        ));
    }
    for attr in &attrs {
        let known = ["doc", "serde", "schemars", "cfg"];
        if !known.iter().any(|name| attr.path().is_ident(name)) {
            return Err(Error::new_spanned(
                attr,
                "an argument takes doc comments, `#[serde(..)]` and `#[schemars(..)]`",
            ));
        }
    }
    Ok(Argument {
        ident: pat.ident.clone(),
        ty,
        attrs,
    })
}

/// Whether a type is one of those that the run provides. Macros see names only.
fn comes_from_run(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    let Some(last) = path.path.segments.last() else {
        return false;
    };
    let generic = matches!(&last.arguments, PathArguments::AngleBracketed(list)
        if list.args.iter().any(|arg| matches!(arg, GenericArgument::Type(_))));
    let alone = last.ident == "Ctx" || last.ident == "Call";
    OF_THE_RUN.iter().any(|name| last.ident == name) && (generic || alone)
}

fn returns_result(output: &ReturnType) -> bool {
    let ReturnType::Type(_, ty) = output else {
        return false;
    };
    let Type::Path(path) = &**ty else {
        return false;
    };
    path.path
        .segments
        .last()
        .is_some_and(|last| last.ident == "Result")
}

/// The text of doc comments, as schemas show them: lines of a paragraph are joined.
fn text_of(attrs: &[Attribute]) -> String {
    let mut text = String::new();
    for attr in attrs {
        let syn::Meta::NameValue(meta) = &attr.meta else {
            continue;
        };
        let syn::Expr::Lit(literal) = &meta.value else {
            continue;
        };
        let Lit::Str(line) = &literal.lit else {
            continue;
        };
        for line in line.value().split('\n') {
            let line = line.trim();
            if line.is_empty() {
                text.push_str("\n\n");
            } else {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push(if line.starts_with(['-', '*']) {
                        '\n'
                    } else {
                        ' '
                    });
                }
                text.push_str(line);
            }
        }
    }
    text.trim().to_owned()
}

fn path_text(path: &Path) -> String {
    path.to_token_stream().to_string().replace(' ', "")
}

#[cfg(test)]
mod tests;
