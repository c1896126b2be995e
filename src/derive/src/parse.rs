//! Reads the struct and its `#[state(..)]` attributes.

use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, Path, Type, Visibility,
    ext::IdentExt, meta::ParseNestedMeta, parse_quote,
};

/// The allowed contents of a field's attribute, for error messages.
const FIELD: &str =
    "expected one of: messages, append, merge = function, ephemeral, untracked, topic, default";

/// Methods of every update builder, which setters must not hide.
const METHODS: [&str; 2] = ["goto", "goto_each"];

pub struct State {
    pub name: Ident,
    pub vis: Visibility,
    pub krate: Path,
    pub fields: Vec<Field>,
}

pub struct Field {
    pub ident: Ident,
    pub channel: String,
    pub ty: Type,
    pub docs: Vec<Attribute>,
    pub merge: Merge,
    pub default: bool,
}

pub enum Merge {
    Replace,
    Messages,
    Append,
    Ephemeral,
    Untracked,
    Topic,
    With {
        function: Box<Expr>,
        update: Option<Box<Type>>,
    },
}

pub fn parse(input: &DeriveInput) -> syn::Result<State> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "only a struct can be a state: each of its fields is a channel",
        ));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(
            &input.ident,
            "a state needs named fields: each one is a channel",
        ));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a state has no generic parameters: its channels are stored and read back by name",
        ));
    }
    Ok(State {
        name: input.ident.clone(),
        vis: input.vis.clone(),
        krate: krate(&input.attrs)?,
        fields: fields.named.iter().map(field).collect::<syn::Result<_>>()?,
    })
}

fn krate(attrs: &[Attribute]) -> syn::Result<Path> {
    let mut krate: Path = parse_quote!(::backstitch);
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("state")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("crate") {
                krate = meta.value()?.call(Path::parse_mod_style)?;
                return Ok(());
            }
            Err(meta.error("expected `crate = path`; everything else belongs to a field"))
        })?;
    }
    Ok(krate)
}

fn field(field: &syn::Field) -> syn::Result<Field> {
    let Some(ident) = field.ident.clone() else {
        return Err(Error::new_spanned(field, "a channel needs a name"));
    };
    let channel = ident.unraw().to_string();
    if channel.starts_with("__") {
        return Err(Error::new_spanned(
            &ident,
            "names that begin with `__` are reserved for the engine",
        ));
    }
    if METHODS.contains(&channel.as_str()) {
        return Err(Error::new_spanned(
            &ident,
            format!("`{channel}` is a method of the update builder: rename the field"),
        ));
    }
    let (merge, default) = attributes(field)?;
    Ok(Field {
        channel,
        ty: field.ty.clone(),
        docs: docs(field),
        ident,
        merge,
        default,
    })
}

fn docs(field: &syn::Field) -> Vec<Attribute> {
    let docs = field
        .attrs
        .iter()
        .filter(|attr| attr.path().is_ident("doc"));
    docs.cloned().collect()
}

fn attributes(field: &syn::Field) -> syn::Result<(Merge, bool)> {
    let (mut merge, mut update, mut default) = (None, None, false);
    for attr in field.attrs.iter().filter(|a| a.path().is_ident("state")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("default") {
                default = true;
                return Ok(());
            }
            if meta.path.is_ident("update") {
                update = Some((meta.value()?.parse::<Type>()?, meta.path.clone()));
                return Ok(());
            }
            let kind = kind(&meta)?;
            if merge.is_some() {
                return Err(meta.error("a field merges its updates in one way only"));
            }
            merge = Some(kind);
            Ok(())
        })?;
    }
    let mut merge = merge.unwrap_or(Merge::Replace);
    if let Some((ty, path)) = update {
        let Merge::With { update, .. } = &mut merge else {
            return Err(Error::new_spanned(
                path,
                "`update = Type` goes with `merge = function`",
            ));
        };
        *update = Some(Box::new(ty));
    }
    Ok((merge, default))
}

fn kind(meta: &ParseNestedMeta<'_>) -> syn::Result<Merge> {
    let is = |name: &str| meta.path.is_ident(name);
    Ok(if is("messages") {
        Merge::Messages
    } else if is("append") {
        Merge::Append
    } else if is("ephemeral") {
        Merge::Ephemeral
    } else if is("untracked") {
        Merge::Untracked
    } else if is("topic") {
        Merge::Topic
    } else if is("merge") {
        Merge::With {
            function: Box::new(meta.value()?.parse()?),
            update: None,
        }
    } else {
        return Err(meta.error(FIELD));
    })
}
