//! Address fields of requests, and errors of operations that LangGraph does not have.

use super::{fields::Fields, params::Query};
use crate::{
    http::server::error::Error,
    id::CheckpointId,
    tree::{AddressFields, store::rows::Position},
    value::Value,
};

/// Words of `position`.
pub const POSITIONS: &[(&str, Position)] = &[("at", Position::At), ("before", Position::Before)];

/// Parameters of a query that are an address or belong to one.
const ALL: [&str; 7] = [
    "branch",
    "tag",
    "checkpoint_id",
    "message_id",
    "parent_id",
    "event_number",
    "position",
];

/// The address fields at the top level of a body.
pub fn of_body(fields: &Fields<'_>) -> Result<AddressFields, Error> {
    let mut given = AddressFields {
        branch: ours(fields.text("branch"))?.cloned(),
        tag: ours(fields.text("tag"))?.cloned(),
        checkpoints: checkpoints(fields)?,
        messages: vec![],
        as_parent: fields.any("parent_id").is_some(),
        event: ours(fields.integer("event_number", 1, i64::MAX))?,
        position: ours(fields.word("position", POSITIONS))?,
    };
    for name in ["message_id", "parent_id"] {
        given.messages.extend(ours(fields.text(name))?.cloned());
    }
    Ok(given)
}

/// Gives the code of its kind to what is wrong with a field that LangGraph does not have, in
/// operations that it has.
pub fn ours<T>(read: Result<T, Error>) -> Result<T, Error> {
    read.map_err(|error| error.with_code("invalid_request"))
}

/// Refuses address parameters that an operation does not read, `at` being what it does anyway.
pub fn only(query: &Query, known: &[&str]) -> Result<(), Error> {
    let position = query.word("position", POSITIONS)?;
    let unknown = ALL.iter().find(|name| match **name {
        "position" => position == Some(Position::Before),
        name => query.get(name).is_some() && !known.contains(&name),
    });
    match unknown {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "`{name}` says nothing here. Possible are: {}",
            known.join(", ")
        ))),
    }
}

/// The address parameters of a query.
pub fn of_query(query: &Query) -> Result<AddressFields, Error> {
    let text = |name| query.get(name).map(Into::into);
    let mut given = AddressFields {
        branch: text("branch"),
        tag: text("tag"),
        checkpoints: vec![],
        messages: vec![],
        as_parent: query.get("parent_id").is_some(),
        event: ours(query.integer("event_number"))?,
        position: ours(query.word("position", POSITIONS))?,
    };
    for name in ["message_id", "parent_id"] {
        given.messages.extend(text(name));
    }
    if let Some(id) = query.get("checkpoint_id").filter(|id| !id.is_empty()) {
        given.checkpoints.push(checkpoint_id(id)?);
    }
    Ok(given)
}

/// Every checkpoint id that a body names, wherever LangGraph's clients put it.
pub fn checkpoints(fields: &Fields<'_>) -> Result<Vec<CheckpointId>, Error> {
    let mut found = vec![];
    if let Some(text) = fields.text("checkpoint_id")? {
        found.push(checkpoint_id(text)?);
    }
    if let Some(value) = fields.any("checkpoint") {
        found.extend(inside(value, "checkpoint")?);
    }
    if let Some(config) = fields.any("config")
        && let Some(value) = Fields::at(config, "config")?.any("configurable")
    {
        found.extend(inside(value, "config.configurable")?);
    }
    Ok(found)
}

fn inside(value: &Value, path: &str) -> Result<Option<CheckpointId>, Error> {
    let text = Fields::at(value, path)?.text("checkpoint_id")?;
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| checkpoint_id(text)).transpose()
}

fn checkpoint_id(text: &str) -> Result<CheckpointId, Error> {
    text.parse()
        .map_err(|_| Error::invalid("Invalid checkpoint ID"))
}

/// Gives errors of an operation of our own the code that each of them has.
pub async fn coded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    work.await.map_err(Error::coded)
}
