//! Reads the struct and its `#[state(..)]` attributes.

use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, LitStr, Path, Type, Visibility,
    ext::IdentExt, meta::ParseNestedMeta, parse_quote,
};

/// The allowed contents of a field's attribute, for error messages.
const FIELD: &str = "expected one of: messages, append, merge = function, ephemeral, untracked, topic, default, \
     rename = \"name\", schema(keyword = value)";

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
    /// Keywords of its JSON schema.
    pub keywords: Vec<(String, Expr)>,
}

/// What the attributes of a field contain.
#[derive(Default)]
struct Attributes {
    merge: Option<Merge>,
    default: bool,
    rename: Option<LitStr>,
    keywords: Vec<(String, Expr)>,
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
    let setter = ident.unraw().to_string();
    let attributes = attributes(field)?;
    let channel = match &attributes.rename {
        Some(name) if name.value().is_empty() => {
            return Err(Error::new_spanned(name, "a channel needs a name"));
        }
        Some(name) => name.value(),
        None => setter.clone(),
    };
    if channel.starts_with("__") {
        return Err(Error::new_spanned(
            &ident,
            "names that begin with `__` are reserved for the engine",
        ));
    }
    if METHODS.contains(&setter.as_str()) {
        return Err(Error::new_spanned(
            &ident,
            format!("`{setter}` is a method of the update builder: rename the field"),
        ));
    }
    Ok(Field {
        channel,
        ty: field.ty.clone(),
        docs: docs(field),
        ident,
        merge: attributes.merge.unwrap_or(Merge::Replace),
        default: attributes.default,
        keywords: attributes.keywords,
    })
}

fn docs(field: &syn::Field) -> Vec<Attribute> {
    let docs = field
        .attrs
        .iter()
        .filter(|attr| attr.path().is_ident("doc"));
    docs.cloned().collect()
}

fn attributes(field: &syn::Field) -> syn::Result<Attributes> {
    let mut found = Attributes::default();
    let mut update = None;
    for attr in field.attrs.iter().filter(|a| a.path().is_ident("state")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("default") {
                found.default = true;
                return Ok(());
            }
            if meta.path.is_ident("rename") {
                found.rename = Some(meta.value()?.parse()?);
                return Ok(());
            }
            if meta.path.is_ident("schema") {
                return meta.parse_nested_meta(|keyword| {
                    let name = keyword.path.require_ident()?.unraw().to_string();
                    found.keywords.push((name, keyword.value()?.parse()?));
                    Ok(())
                });
            }
            if meta.path.is_ident("update") {
                update = Some((meta.value()?.parse::<Type>()?, meta.path.clone()));
                return Ok(());
            }
            let kind = kind(&meta)?;
            if found.merge.is_some() {
                return Err(meta.error("a field merges its updates in one way only"));
            }
            found.merge = Some(kind);
            Ok(())
        })?;
    }
    if let Some((ty, path)) = update {
        let Some(Merge::With { update, .. }) = &mut found.merge else {
            return Err(Error::new_spanned(
                path,
                "`update = Type` goes with `merge = function`",
            ));
        };
        *update = Some(Box::new(ty));
    }
    Ok(found)
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
