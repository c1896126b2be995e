//! Sharing: who may do what with the fork family of a thread.

use hyper::{Response, StatusCode};

use super::{
    parse::fields::Fields,
    server::{Body, Call, Error, body},
};
use crate::{
    tree::members::{Granted, Level, Member},
    value::{Map, Value},
};

/// `GET /threads/{thread_id}/members`
pub(super) async fn list(call: Call) -> Result<Response<Body>, Error> {
    let found = call.threads().members(call.path.thread()?).await?;
    let members = found.iter().map(|one| Value::map(member(one))).collect();
    let response = Value::map(Map::from([("members", Value::list(members))]));
    Ok(body::json(StatusCode::OK, &response))
}

/// `PUT /threads/{thread_id}/members/{principal}`
pub(super) async fn put(mut call: Call) -> Result<Response<Body>, Error> {
    let (thread, principal) = (call.path.thread()?, call.path.principal()?);
    let body = call.json().await?;
    let fields = Fields::of(&body)?;
    let level = fields.word("level", Level::ALL)?;
    let level = level.ok_or_else(|| fields.required("level"))?;
    let granted = call.threads().grant(thread, &principal, level).await?;
    let (granted, event_number) = granted;
    let status = match granted {
        Granted::New => StatusCode::CREATED,
        Granted::Changed => StatusCode::OK,
    };
    let mut map = member(&Member { principal, level });
    map.insert("event_number", event_number);
    Ok(body::json(status, &Value::map(map)))
}

/// `DELETE /threads/{thread_id}/members/{principal}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let (thread, principal) = (call.path.thread()?, call.path.principal()?);
    call.threads().revoke(thread, &principal).await?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

fn member(member: &Member) -> Map {
    Map::from([
        ("principal", Value::Str(member.principal.clone())),
        ("level", member.level.as_str().into()),
    ])
}
