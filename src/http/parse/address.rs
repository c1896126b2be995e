//! Address fields of requests, and errors of operations that LangGraph does not have.

use std::sync::Arc;

use super::{fields::Fields, ids, params::Query};
use crate::{
    http::server::Error,
    id::CheckpointId,
    runs::request::Address as StateAddress,
    tree::{Address, AddressFields, store::rows::Position},
    value::Map,
};

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
    with_checkpoints(fields, |fields| {
        let text = fields.text("checkpoint_id")?;
        let top = text.map(|text| ids::checkpoint(text)).transpose()?;
        let value = fields.any("checkpoint");
        let object = value.map(|value| Fields::at(value, "checkpoint"));
        let nested = object.transpose()?.as_ref().map(|object| {
            // What stands beside the id says nothing here, but has to be what it is elsewhere.
            namespace_of(object).and_then(|_| checkpoint_of(object))
        });
        Ok([top, nested.transpose()?.flatten()])
    })
}

/// The address fields at the top level of a body, with the checkpoints that `named` reads and the
/// one in its config.
fn with_checkpoints(
    fields: &Fields<'_>,
    named: impl FnOnce(&Fields<'_>) -> Result<[Option<CheckpointId>; 2], Error>,
) -> Result<AddressFields, Error> {
    let mut found = AddressFields {
        branch: coded_field(fields.text("branch"))?.cloned(),
        tag: coded_field(fields.text("tag"))?.cloned(),
        checkpoints: {
            let [top, nested] = named(fields)?;
            let all = [top, nested, configured(fields)?];
            all.into_iter().flatten().collect()
        },
        messages: vec![],
        as_parent: fields.any("parent_id").is_some(),
        event: coded_field(fields.integer("event_number", 1, i64::MAX))?,
        position: coded_field(fields.word("position", Position::ALL))?,
    };
    for name in ["message_id", "parent_id"] {
        found
            .messages
            .extend(coded_field(fields.text(name))?.cloned());
    }
    Ok(found)
}

/// Puts a code on the error of a field that LangGraph does not have, in an operation that it has.
pub fn coded_field<T>(read: Result<T, Error>) -> Result<T, Error> {
    read.map_err(|error| error.with_code("invalid_request"))
}

/// Refuses address parameters that an operation does not read; `position=at` changes nothing.
pub fn refuse_others(query: &Query, known: &[&str]) -> Result<(), Error> {
    let position = query.word("position", Position::ALL)?;
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
    let mut found = AddressFields {
        branch: text("branch"),
        tag: text("tag"),
        checkpoints: vec![],
        messages: vec![],
        as_parent: query.get("parent_id").is_some(),
        event: coded_field(query.integer("event_number"))?,
        position: coded_field(query.word("position", Position::ALL))?,
    };
    for name in ["message_id", "parent_id"] {
        found.messages.extend(text(name));
    }
    if let Some(id) = query.get("checkpoint_id").filter(|id| !id.is_empty()) {
        found.checkpoints.push(ids::checkpoint(id)?);
    }
    Ok(found)
}

/// The id in `config.configurable`, where LangGraph's older clients put it.
fn configured(fields: &Fields<'_>) -> Result<Option<CheckpointId>, Error> {
    let Some(config) = fields.any("config") else {
        return Ok(None);
    };
    let Some(value) = Fields::at(config, "config")?.any("configurable") else {
        return Ok(None);
    };
    checkpoint_of(&Fields::at(value, "config.configurable")?)
}

fn checkpoint_of(object: &Fields<'_>) -> Result<Option<CheckpointId>, Error> {
    let text = object.text("checkpoint_id")?;
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| ids::checkpoint(text)).transpose()
}

/// What stands beside the id in an object that names a checkpoint: its namespace and the
/// checkpoints of the namespaces around it.
type Namespace = (Arc<str>, Option<Map>);

fn namespace_of(object: &Fields<'_>) -> Result<Namespace, Error> {
    let ns = object.text("checkpoint_ns")?;
    Ok((
        ns.cloned().unwrap_or_default(),
        object.map("checkpoint_map")?.cloned(),
    ))
}

/// The namespace of a checkpoint that `config.configurable` names.
pub fn configured_namespace(config: &Map) -> Result<Namespace, Error> {
    match config.get("configurable") {
        Some(value) if value.get("checkpoint_id").is_some() => {
            namespace_of(&Fields::at(value, "checkpoint")?)
        }
        _ => Ok(Namespace::default()),
    }
}

/// The checkpoint that a body names, and the address in the conversation tree when it uses fields
/// of it. `with_branch` lets a branch stand beside the checkpoint, as runs and state edits may.
pub fn state(fields: &Fields<'_>, with_branch: bool) -> Result<StateAddress, Error> {
    let mut address = StateAddress::default();
    let mut nested = None;
    if let Some(value) = fields.any("checkpoint") {
        let object = Fields::at(value, "checkpoint")?;
        nested = checkpoint_of(&object)?;
        (address.ns, address.map) = namespace_of(&object)?;
    }
    let text = fields.text("checkpoint_id")?;
    let top = text.map(|text| ids::checkpoint(text)).transpose()?;
    address.checkpoint = top.or(nested);
    address.checkpoint = address.own();
    let found = with_checkpoints(fields, |_| Ok([top, nested]))?;
    if address.checkpoint.is_none() {
        address.checkpoint = found.checkpoints.first().copied();
    }
    address.tree_address = in_tree(found, with_branch)?;
    Ok(address)
}

/// The checkpoint of a path, or the one that the query names, and the address in the conversation
/// tree when the query uses fields of it.
pub fn state_of_query(
    query: &Query,
    checkpoint: Option<CheckpointId>,
) -> Result<StateAddress, Error> {
    let mut found = of_query(query)?;
    found.checkpoints.extend(checkpoint);
    Ok(StateAddress {
        checkpoint: checkpoint.or(found.checkpoints.first().copied()),
        tree_address: in_tree(found, false)?,
        ..StateAddress::default()
    })
}

/// The address in the conversation tree, when the request uses fields that LangGraph does not have.
fn in_tree(found: AddressFields, with_branch: bool) -> Result<Option<Address>, Error> {
    let uses_tree = found.uses_extensions();
    let address = found.address(with_branch)?;
    Ok(uses_tree.then_some(address))
}

/// Puts a code on each error of an operation that LangGraph does not have.
pub async fn coded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    work.await.map_err(Error::coded)
}
