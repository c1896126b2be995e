//! State and history of threads.

use hyper::{Response, StatusCode};

use super::{
    page::{LIST_DEFAULT, LIST_MAX},
    parse::{address, fields::Fields, ids},
    server::{Body, Call, Error, body, rows},
};
use crate::{
    id::CheckpointId,
    threads::request::{Edit, History},
    value::Value,
};

/// `GET /threads/{thread_id}/state`
pub(super) async fn latest(call: Call) -> Result<Response<Body>, Error> {
    let (id, subgraphs) = (call.path.thread()?, call.query.flag("subgraphs")?);
    let at = address::state_of_query(&call.query, None)?;
    let state = call.threads().state(id, &at, subgraphs).await?;
    Ok(body::json(StatusCode::OK, &state))
}

/// `GET /threads/{thread_id}/state/{checkpoint_id}`
pub(super) async fn by_id(call: Call) -> Result<Response<Body>, Error> {
    let (id, subgraphs) = (call.path.thread()?, call.query.flag("subgraphs")?);
    let text = call.path.checkpoint();
    let Ok(checkpoint) = text.parse() else {
        // A text that is no id names no checkpoint: clients get the same empty state as for an
        // id that the thread does not have.
        call.threads().check(id).await?;
        let state = crate::threads::state::json::empty_state(id, Some(&text));
        return Ok(body::json(StatusCode::OK, &state));
    };
    let at = address::state_of_query(&call.query, Some(checkpoint))?;
    let state = call.threads().state(id, &at, subgraphs).await?;
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
    let at = address::state(&fields, false)?;
    let state = call.threads().state(id, &at, subgraphs).await?;
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
        at: address::state(&fields, true)?,
    };
    let edited = call.threads().edit(id, edit).await?;
    Ok(body::json(StatusCode::OK, &edited))
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
        before: before.map(ids::checkpoint).transpose()?,
        metadata: None,
        at: address::state_of_query(&call.query, None)?,
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
        at: address::state(&fields, false)?,
    };
    history(&call, id, page).await
}

async fn history(
    call: &Call,
    id: crate::id::ThreadId,
    page: History,
) -> Result<Response<Body>, Error> {
    let states = call.threads().history(id, &page).await?;
    rows::respond(call, states, None).await
}

/// `before` in each of its forms: an id, a checkpoint, or a config.
fn before(fields: &Fields<'_>) -> Result<Option<CheckpointId>, Error> {
    let Some(value) = fields.any("before") else {
        return Ok(None);
    };
    if let Some(text) = value.as_str() {
        return ids::checkpoint(text).map(Some);
    }
    let mut object = Fields::at(value, "before")?;
    if let Some(config) = object.any("configurable") {
        object = Fields::at(config, "before.configurable")?;
    }
    let text = object.text("checkpoint_id")?;
    text.map(|text| ids::checkpoint(text)).transpose()
}
