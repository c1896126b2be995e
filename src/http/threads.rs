//! Threads: create, read, patch, delete, copy and prune.

use hyper::{Response, StatusCode};

use super::{
    parse::{fields::Fields, ids, metadata::metadata},
    render,
    server::{Body, Call, Error, body},
};
use crate::{
    id::ThreadId,
    threads::request::{Create, Prune, View},
    tree::IfExists,
    value::{Map, Value},
};

mod parse;
pub(super) mod search;
pub(super) mod storage;
pub(super) mod stream;

use parse::{supersteps, ttl};

/// Whether the other threads of the tree are deleted too.
const SCOPES: &[(&str, bool)] = &[("thread", false), ("tree", true)];

/// `POST /threads`
pub(super) async fn create(mut call: Call) -> Result<Response<Body>, Error> {
    let create = creation(&mut call).await?;
    let view = call.threads().create(create).await?;
    Ok(respond_with(&view))
}

/// A thread that a request has made, which a response that is too large to be stored for a repeated
/// request is made from.
#[derive(Clone, Copy)]
pub(super) struct MadeThread(pub ThreadId);

/// The thread that a request has made.
pub(super) fn respond_with(view: &View) -> Response<Body> {
    let thread = Value::map(render::thread(view));
    let mut response = body::json(StatusCode::OK, &thread);
    response.extensions_mut().insert(MadeThread(view.row.id));
    response
}

/// Reads and checks the thread to create.
pub(super) async fn creation(call: &mut Call) -> Result<Create, Error> {
    let limit = call.shared.options.edit_limit;
    let body = call.json_upto(limit).await?;
    let fields = Fields::of(&body)?;
    let create = Create {
        ttl: ttl(&fields)?,
        id: fields
            .text("thread_id")?
            .filter(|text| !text.is_empty())
            .map(|text| ids::thread(text))
            .transpose()?,
        id_of_key: call.id_of_key(),
        metadata: metadata(&fields, call.shared.options.metadata)?,
        if_exists: fields.word("if_exists", IfExists::ALL)?.unwrap_or_default(),
        supersteps: supersteps(&fields)?,
        principal: call.principal(),
    };
    Ok(create)
}

/// `GET /threads/{thread_id}`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let view = call.threads().get(id).await?;
    let mut thread = render::thread(&view);
    // Other words are for fields that other servers have.
    let included = call.query.list("include")?;
    if included.iter().any(|word| word.as_str() == Some("ttl"))
        && let Some(expiry) = call.threads().expiry(id).await?
    {
        thread.insert("ttl", render::expiry(&expiry));
    }
    Ok(body::json(StatusCode::OK, &Value::map(thread)))
}

/// `PATCH /threads/{thread_id}`
pub(super) async fn patch(mut call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let metadata = metadata(&fields, call.shared.options.metadata)?;
    let ttl = ttl(&fields)?;
    let patched = call.threads().patch(id, metadata, ttl).await;
    // LangGraph's server responds with the plain form of 404 here.
    let view = patched.map_err(|error| Error::from(error).plain())?;
    if call
        .header("prefer")
        .is_some_and(|text| text.contains("return=minimal"))
    {
        return Ok(body::empty(StatusCode::NO_CONTENT));
    }
    let thread = Value::map(render::thread(&view));
    Ok(body::json(StatusCode::OK, &thread))
}

/// `DELETE /threads/{thread_id}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let scope = call.query.word("scope", SCOPES)?;
    let whole_tree = scope.unwrap_or(false);
    if call.query.flag("dry_run")? {
        let deleted = if whole_tree {
            call.threads().living_relatives(id).await?
        } else {
            call.threads().check(id).await?;
            vec![id]
        };
        let deleted = deleted.iter().map(|id| id.to_string().into()).collect();
        let response = Value::map(Map::from([("threads", Value::list(deleted))]));
        return Ok(body::json(StatusCode::OK, &response));
    }
    if whole_tree {
        call.threads().delete_family(id).await?;
    } else {
        call.threads().delete(id).await?;
    }
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `POST /threads/{thread_id}/copy`
pub(super) async fn copy(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let (threads, owner) = (call.threads(), call.principal());
    let view = threads.copy(id, &owner, call.id_of_key()).await?;
    Ok(respond_with(&view))
}

/// `POST /threads/prune`
pub(super) async fn prune(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let texts = fields.texts("thread_ids")?;
    let texts = texts.ok_or_else(|| fields.required("thread_ids"))?;
    let threads = texts.iter().map(|text| ids::thread(text));
    let threads = threads.collect::<Result<Vec<_>, _>>()?;
    let how = fields.word("strategy", Prune::ALL)?;
    let how = how.unwrap_or(Prune::Delete);
    let count = call.threads().prune(threads, how).await?;
    let response = Value::map(Map::from([("pruned_count", Value::from(count))]));
    Ok(body::json(StatusCode::OK, &response))
}
