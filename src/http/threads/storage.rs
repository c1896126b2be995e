//! How much is stored of a thread.

use hyper::{Response, StatusCode};

use crate::{
    http::server::{Body, Call, Error, body},
    tree::usage::{Amount, Usage},
    value::{Map, Value},
};

/// `GET /threads/{thread_id}/storage`
pub(in crate::http) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let id = call.path.thread()?;
    let usage = call.threads().usage(id).await?;
    let mut map = Map::from([("thread_id", Value::from(id.to_string()))]);
    map.extend(shown(&usage));
    Ok(body::json(StatusCode::OK, &Value::map(map)))
}

fn shown(usage: &Usage) -> Map {
    let values = usage.values();
    let by_channel = usage.channels.iter().map(|(name, amount)| {
        let shown = amount_as("versions", *amount);
        (name.clone(), Value::map(shown))
    });
    let mut of_values = amount_as("count", values);
    of_values.insert("by_channel", Value::map(by_channel.collect()));
    let total = usage.checkpoints.bytes + values.bytes + usage.writes.bytes;
    Map::from([
        ("total_bytes", Value::from(total)),
        (
            "checkpoints",
            Value::map(amount_as("count", usage.checkpoints)),
        ),
        ("channel_values", Value::map(of_values)),
        (
            "pending_writes",
            Value::map(amount_as("count", usage.writes)),
        ),
    ])
}

fn amount_as(rows: &'static str, amount: Amount) -> Map {
    Map::from([
        (rows, Value::from(amount.rows)),
        ("bytes", Value::from(amount.bytes)),
    ])
}
