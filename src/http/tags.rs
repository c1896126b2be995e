//! Tags of threads: names of checkpoints, and of messages.

use hyper::{Response, StatusCode};

use super::{
    branches::address_of,
    server::{Body, Call, Error, body},
};
use crate::{
    tree::store::rows::Tag,
    value::{Map, Value},
};

/// `GET /threads/{thread_id}/tags`
pub(super) async fn list(call: Call) -> Result<Response<Body>, Error> {
    let tags = call.threads().tags(call.path.thread()?).await?;
    let tags = tags.iter().map(|one| Value::map(tag(one)));
    let map = Map::from([("tags", Value::list(tags.collect()))]);
    Ok(body::json(StatusCode::OK, &Value::map(map)))
}

/// `GET /threads/{thread_id}/tags/{name}`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let found = call
        .threads()
        .tag(call.path.thread()?, &call.path.name()?)
        .await?;
    Ok(body::json(StatusCode::OK, &Value::map(tag(&found))))
}

/// `PUT /threads/{thread_id}/tags/{name}`
pub(super) async fn put(mut call: Call) -> Result<Response<Body>, Error> {
    let (thread, name) = (call.path.thread()?, call.path.name()?);
    let body = call.json_or_nothing().await?;
    let set = call
        .threads()
        .set_tag(thread, name, &address_of(&body)?)
        .await?;
    let mut map = tag(&set.tag);
    map.insert("event_number", set.event_number);
    let status = if set.new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(body::json(status, &Value::map(map)))
}

/// `DELETE /threads/{thread_id}/tags/{name}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let (thread, name) = (call.path.thread()?, call.path.name()?);
    call.threads().delete_tag(thread, &name).await?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

fn tag(tag: &Tag) -> Map {
    Map::from([
        ("name", Value::Str(tag.name.clone())),
        ("checkpoint_id", tag.checkpoint.to_string().into()),
        ("message_id", tag.message_id.clone().map(Value::Str).into()),
        ("created_at", tag.created_at.to_string().into()),
        ("updated_at", tag.updated_at.to_string().into()),
    ])
}
