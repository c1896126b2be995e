//! Messages of threads: post, send and list.

use std::sync::Arc;

use hyper::{Response, StatusCode};
use uuid::Uuid;

use super::server::{Body, Call, Error, body};
use crate::{
    id::{RunId, ThreadId},
    threads::{
        self,
        messages::{QueuedMessage, StoredPost},
    },
    tree::{
        event::shown_role,
        messages::{Incoming, item::MessageItem, page::MessagePage},
    },
    value::{Map, Value},
};

mod parse;

/// `POST /threads/{thread_id}/messages`
pub(super) async fn post(mut call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let limit = call.shared.options.edit_limit;
    let body = call.json_upto(limit).await?;
    let mut new = parse::post(&body, &call.shared.options, call.requester())?;
    if let Some(key) = call.run_id {
        for (at, message) in new.post.messages.iter_mut().enumerate() {
            name(message, key, at);
        }
        if let Some(run) = &mut new.run {
            run.id = Some(key);
        }
    }
    let stored = call.threads().post_messages(thread, new).await;
    let stored = stored.map_err(coded_conflict)?;
    let status = if stored.fresh {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let mut map = posted(&stored, thread);
    map.insert("thread_id", thread.to_string());
    Ok(body::json(status, &Value::map(map)))
}

/// `GET /threads/{thread_id}/messages`
pub(super) async fn list(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let bytes = call.shared.options.page_bytes;
    let request = parse::read(&call.query, bytes)?;
    let page = call.threads().read_messages(thread, &request).await?;
    Ok(body::json(
        StatusCode::OK,
        &Value::map(listed(&page, thread)),
    ))
}

/// `POST /commands/send-message`
pub(super) async fn send(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let mut new = parse::send(&body, call.requester())?;
    if let Some(key) = call.run_id {
        new.to.id.get_or_insert_with(|| id_of(key, 0));
    }
    let thread = new.thread;
    let queued = call.threads().send_message(new).await;
    let mut map = queued_map(&queued.map_err(coded_conflict)?);
    map.insert("thread_id", thread.to_string());
    Ok(body::json(StatusCode::ACCEPTED, &Value::map(map)))
}

/// The id of a message that came without one, in a request with an idempotency key: by it the
/// message is found when a process died over the request.
fn id_of(key: RunId, at: usize) -> Arc<str> {
    let id = Uuid::new_v5(&key.0, format!("message {at}").as_bytes());
    id.to_string().into()
}

fn name(incoming: &mut Incoming, key: RunId, at: usize) {
    if incoming.id.is_some() {
        return;
    }
    let id = id_of(key, at);
    if let Some(map) = incoming.message.make_map_mut() {
        map.insert("id", Value::Str(id.clone()));
        incoming.id = Some(id);
    }
}

/// The error of a run that is refused because of another one, with a code: where LangGraph's
/// clients create runs it has none.
fn coded_conflict(error: threads::Error) -> Error {
    let error = Error::from(error);
    match (error.code, error.status) {
        (None, StatusCode::CONFLICT) => error.with_code("branch_busy"),
        _ => error,
    }
}

fn posted(stored: &StoredPost, thread: ThreadId) -> Map {
    let mut map = Map::with_capacity(8);
    map.insert("thread_id", thread.to_string());
    map.insert("branch", Value::Str(stored.branch.clone()));
    map.insert("branch_created", stored.created);
    let checkpoint = stored.checkpoint.map(|id| id.to_string());
    map.insert("checkpoint_id", checkpoint);
    map.insert("event_number", stored.event_number);
    map.insert("run_id", stored.run.map(|id| id.to_string()));
    let messages = stored.messages.iter().map(|item| message(item, thread));
    map.insert("messages", Value::list(messages.collect()));
    warn(&mut map, stored.dangling);
    map
}

fn queued_map(queued: &QueuedMessage) -> Map {
    let mut map = Map::with_capacity(7);
    map.insert("thread_id", Value::Null);
    map.insert("event_id", queued.event.to_string());
    map.insert("event_number", queued.event_number);
    map.insert("message_id", Value::Str(queued.message.clone()));
    map.insert("run_id", queued.run.to_string());
    map.insert("branch", Value::Str(queued.branch.clone()));
    warn(&mut map, queued.dangling);
    map
}

fn warn(map: &mut Map, dangling: bool) {
    if dangling {
        let warnings = vec![Value::str("dangling_tool_calls")];
        map.insert("warnings", Value::list(warnings));
    }
}

fn listed(page: &MessagePage, thread: ThreadId) -> Map {
    let mut map = Map::with_capacity(8);
    map.insert("thread_id", thread.to_string());
    map.insert("branch", page.branch.clone().map(Value::Str));
    map.insert("leaf_id", page.leaf.clone().map(Value::Str));
    map.insert("checkpoint_id", page.checkpoint.map(|id| id.to_string()));
    let messages = page.items.iter().map(|item| message(item, thread));
    map.insert("messages", Value::list(messages.collect()));
    map.insert("next", page.next.clone());
    map.insert("prev", page.prev.clone());
    if page.splits {
        map.insert("splits_tool_calls", true);
    }
    map
}

/// A message in the form clients see, as a message of `thread`.
pub(super) fn message(item: &MessageItem, thread: ThreadId) -> Value {
    let node = item.node.as_ref();
    let stored = item.message.as_ref();
    let kind = stored
        .and_then(|message| message.get("type"))
        .and_then(Value::as_str)
        .or_else(|| node.and_then(|node| node.role.as_deref()));
    let content = stored.and_then(|message| message.get("content"));
    let mut map = Map::with_capacity(16);
    map.insert("message_id", Value::Str(item.id.clone()));
    map.insert("parent_id", item.parent.clone().map(Value::Str));
    map.insert("role", kind.map(shown_role));
    map.insert("content", content.cloned());
    map.insert("depth", node.map(|node| i64::from(node.ordinal)));
    map.insert(
        "checkpoint_id",
        node.map(|node| node.checkpoint.to_string()),
    );
    let turn_end = node.and_then(|node| node.turn_end);
    map.insert("settled_checkpoint_id", turn_end.map(|id| id.to_string()));
    map.insert("event_number", node.and_then(|node| node.event_number));
    let owner = node.map_or(thread, |node| node.thread);
    map.insert("thread_id", owner.to_string());
    map.insert("inherited", owner != thread);
    map.insert("edited", item.edited);
    let edit_of = node.and_then(|node| node.edit_of.clone());
    map.insert("edit_of", edit_of.map(Value::Str));
    map.insert("in_state", item.in_state);
    map.insert("created_at", node.map(|node| node.created_at.to_string()));
    if let Some(siblings) = &item.siblings {
        let ids = siblings.ids.iter().cloned().map(Value::Str).collect();
        let mut of = Map::with_capacity(3);
        of.insert("index", i64::try_from(siblings.index).unwrap_or(i64::MAX));
        of.insert(
            "count",
            i64::try_from(siblings.ids.len()).unwrap_or(i64::MAX),
        );
        of.insert("message_ids", Value::list(ids));
        map.insert("siblings", Value::map(of));
    }
    Value::map(map)
}
