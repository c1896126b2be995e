//! State and history of threads.

use hyper::{Response, StatusCode};

use super::{
    parse::{address, fields::Fields, params::Query},
    server::{
        body::{self, Body},
        call::Call,
        error::Error,
    },
    threads::{LIST_DEFAULT, LIST_MAX},
};
use crate::{
    id::CheckpointId,
    runs::request::{
        Address,
        threads::{Edit, History},
    },
    tree::{self, AddressFields},
    value::Value,
};

/// `GET /threads/{thread_id}/state`
pub(super) async fn latest(call: Call) -> Result<Response<Body>, Error> {
    let (id, subgraphs) = (call.path.thread()?, call.query.flag("subgraphs")?);
    let state = call
        .api()
        .state(id, queried(&call.query)?, subgraphs)
        .await?;
    Ok(body::json(StatusCode::OK, &state))
}

/// `GET /threads/{thread_id}/state/{checkpoint_id}`
pub(super) async fn by_id(call: Call) -> Result<Response<Body>, Error> {
    let (id, subgraphs) = (call.path.thread()?, call.query.flag("subgraphs")?);
    let text = call.path.checkpoint();
    let Ok(checkpoint) = text.parse() else {
        // A text that is no id names no checkpoint: clients get the same empty state as for an
        // id that the thread does not have.
        call.api().thread(id).await?;
        let state = crate::runs::view::empty_state(id, Some(&text));
        return Ok(body::json(StatusCode::OK, &state));
    };
    let mut given = address::of_query(&call.query)?;
    given.checkpoints.push(checkpoint);
    let at = Address {
        checkpoint: Some(checkpoint),
        place: place(given, false)?,
        ..Address::default()
    };
    let state = call.api().state(id, at, subgraphs).await?;
    Ok(body::json(StatusCode::OK, &state))
}

/// `POST /threads/{thread_id}/state/checkpoint`
pub(super) async fn by_object(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    if fields.any("checkpoint").is_none() {
        return Err(fields.required("checkpoint"));
    }
    let subgraphs = fields.flag("subgraphs")?.unwrap_or(false);
    let at = placed(&fields, false)?;
    let state = call.api().state(id, at, subgraphs).await?;
    Ok(body::json(StatusCode::OK, &state))
}

/// `POST /threads/{thread_id}/state`
pub(super) async fn edit(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let limit = call.shared.options.edit_limit;
    let body = call.json_upto(limit).await?;
    let fields = Fields::of(&body)?;
    let edit = Edit {
        values: values(&fields)?,
        as_node: fields.text("as_node")?.cloned(),
        at: placed(&fields, true)?,
    };
    let answer = call.api().edit_state(id, edit).await?;
    Ok(body::json(StatusCode::OK, &answer))
}

/// The values of a state edit.
pub(super) fn values(fields: &Fields<'_>) -> Result<Option<Value>, Error> {
    Ok(match fields.any("values") {
        Some(values @ (Value::Map(_) | Value::List(_))) => Some(values.clone()),
        None => None,
        Some(_) => fields.map("values")?.cloned().map(Value::map),
    })
}

/// `GET /threads/{thread_id}/history`
pub(super) async fn history_by_query(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let limit = call.query.integer("limit")?.unwrap_or(LIST_DEFAULT);
    if limit > LIST_MAX {
        let detail = format!("{limit} is greater than the maximum of {LIST_MAX}, in `limit`");
        return Err(Error::invalid(detail));
    }
    let before = call.query.get("before").filter(|text| !text.is_empty());
    let page = History {
        // Zero and less are an empty page.
        limit: usize::try_from(limit).unwrap_or(0),
        before: before.map(checkpoint_id).transpose()?,
        metadata: None,
        at: queried(&call.query)?,
    };
    history(&call, id, page).await
}

/// `POST /threads/{thread_id}/history`
pub(super) async fn history_by_body(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let limit = fields
        .integer("limit", 1, LIST_MAX)?
        .unwrap_or(LIST_DEFAULT);
    let page = History {
        limit: usize::try_from(limit).unwrap_or(0),
        before: before(&fields)?,
        metadata: fields.map("metadata")?.cloned(),
        at: placed(&fields, false)?,
    };
    history(&call, id, page).await
}

/// The place that a query names.
fn queried(query: &Query) -> Result<Address, Error> {
    let given = address::of_query(query)?;
    Ok(Address {
        checkpoint: given.checkpoints.first().copied(),
        place: place(given, false)?,
        ..Address::default()
    })
}

async fn history(
    call: &Call,
    id: crate::id::ThreadId,
    page: History,
) -> Result<Response<Body>, Error> {
    let states = call.api().history(id, page).await?;
    Ok(body::json(StatusCode::OK, &Value::list(states)))
}

/// `before` as clients spell it: an id, a checkpoint, or a config.
fn before(fields: &Fields<'_>) -> Result<Option<CheckpointId>, Error> {
    let Some(value) = fields.any("before") else {
        return Ok(None);
    };
    if let Some(text) = value.as_str() {
        return checkpoint_id(text).map(Some);
    }
    let mut object = Fields::at(value, "before")?;
    if let Some(config) = object.any("configurable") {
        object = Fields::at(config, "before.configurable")?;
    }
    let text = object.text("checkpoint_id")?;
    text.map(|text| checkpoint_id(text)).transpose()
}

/// The checkpoint a body names: `checkpoint_id`, and `checkpoint` for what else belongs to it.
pub(super) fn address(fields: &Fields<'_>) -> Result<Address, Error> {
    let mut address = Address::default();
    if let Some(value) = fields.any("checkpoint") {
        let object = Fields::at(value, "checkpoint")?;
        let id = object
            .text("checkpoint_id")?
            .filter(|text| !text.is_empty());
        address.checkpoint = id.map(|text| checkpoint_id(text)).transpose()?;
        let ns = object.text("checkpoint_ns")?;
        address.ns = ns.cloned().unwrap_or_default();
        address.map = object.map("checkpoint_map")?.cloned();
    }
    if let Some(text) = fields.text("checkpoint_id")? {
        address.checkpoint = Some(checkpoint_id(text)?);
    }
    address.checkpoint = address.own();
    Ok(address)
}

/// The checkpoint a body names, and the place when it uses other address fields. `with_branch`
/// lets a branch stand beside the checkpoint, as runs and state edits may.
pub(super) fn placed(fields: &Fields<'_>, with_branch: bool) -> Result<Address, Error> {
    let mut found = address(fields)?;
    let given = address::of_body(fields)?;
    if found.checkpoint.is_none() {
        found.checkpoint = given.checkpoints.first().copied();
    }
    found.place = place(given, with_branch)?;
    Ok(found)
}

/// The place, when the request uses address fields that LangGraph does not have.
fn place(given: AddressFields, with_branch: bool) -> Result<Option<tree::Address>, Error> {
    let given_here = given.uses_extensions();
    let address = given.address(with_branch)?;
    Ok(given_here.then_some(address))
}

fn checkpoint_id(text: &str) -> Result<CheckpointId, Error> {
    text.parse()
        .map_err(|_| Error::invalid("Invalid checkpoint ID"))
}
