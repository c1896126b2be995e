//! Fields of the bodies that create, patch and search threads.

use crate::{
    http::{parse::fields::Fields, server::Error, state},
    runs::request::Command,
    threads::request::Update,
    tree::ttl::{MINUTES_MAX, Ttl, TtlStrategy},
    value::{Map, Value},
};

/// Most paths of one search.
const EXTRACTS: usize = 10;

/// The field `ttl`: minutes, or `{ttl, strategy}`.
pub(super) fn ttl(fields: &Fields<'_>) -> Result<Option<Ttl>, Error> {
    let wrong = || {
        let reason = format!("A time to live is more than 0 and at most {MINUTES_MAX} minutes");
        fields.refuse("ttl", reason)
    };
    let (minutes, strategy) = match fields.any("ttl") {
        None => return Ok(None),
        Some(ttl @ Value::Map(_)) => {
            let inner = Fields::at(ttl, "ttl")?;
            let minutes = inner.number("ttl")?;
            let minutes = minutes.ok_or_else(|| inner.required("ttl"))?;
            (minutes, inner.word("strategy", TtlStrategy::ALL)?)
        }
        Some(_) => (fields.number("ttl")?.unwrap_or_default(), None),
    };
    let strategy = strategy.unwrap_or(TtlStrategy::Delete);
    Ttl::of(minutes, strategy).map(Some).ok_or_else(wrong)
}

/// ASCII letters, digits and underscores, and no digit first.
fn is_identifier(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(known)
        && text
            .bytes()
            .next()
            .is_some_and(|byte| !byte.is_ascii_digit())
}

pub(super) fn extract(fields: &Fields<'_>) -> Result<Vec<(String, String)>, Error> {
    const ROOTS: [&str; 4] = ["config", "interrupts", "metadata", "values"];
    let mut paths = Vec::new();
    let requested = fields.map("extract")?;
    if requested.is_some_and(|map| map.len() > EXTRACTS) {
        let reason = format!("More than the maximum of {EXTRACTS} paths");
        return Err(fields.refuse("extract", reason));
    }
    for (alias, path) in requested.into_iter().flat_map(Map::iter) {
        if !is_identifier(alias) {
            let detail = format!(
                "Extract key '{alias}' must be a valid identifier (letters, digits, underscores)"
            );
            return Err(Error::invalid(detail));
        }
        let Some(path) = path.as_str() else {
            let reason = format!("The path of `{alias}` must be a string");
            return Err(fields.refuse("extract", reason));
        };
        let root = path.split(['.', '[']).next().unwrap_or_default();
        if !ROOTS.contains(&root) {
            let roots = ROOTS.join(", ");
            let detail = format!("Extract path '{path}' must start with one of: {roots}");
            return Err(Error::invalid(detail));
        }
        paths.push((alias.to_string(), path.to_owned()));
    }
    Ok(paths)
}

pub(super) fn supersteps(fields: &Fields<'_>) -> Result<Vec<Vec<Update>>, Error> {
    let steps = fields.list("supersteps")?.unwrap_or_default();
    steps.iter().map(superstep).collect()
}

fn superstep(step: &Value) -> Result<Vec<Update>, Error> {
    let step = Fields::at(step, "supersteps")?;
    let updates = step.list("updates")?;
    let updates = updates.ok_or_else(|| step.required("updates"))?;
    updates.iter().map(update).collect()
}

fn update(update: &Value) -> Result<Update, Error> {
    let fields = Fields::at(update, "supersteps.updates")?;
    let command = fields.any("command").cloned();
    if let Some(command) = &command {
        Command::parse(command).map_err(Error::invalid)?;
    }
    let as_node = fields.text("as_node")?.cloned();
    Ok(Update {
        values: state::values(&fields)?,
        command,
        as_node: Some(as_node.ok_or_else(|| fields.required("as_node"))?),
    })
}
