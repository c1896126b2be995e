//! The event-streaming protocol: commands, their replies, and subscriptions.

use schemars::JsonSchema;

use super::Integer;
use crate::value::{Map, Value};

/// A command.
#[derive(JsonSchema)]
pub struct Command {
    /// Chosen by the client, and repeated in the reply.
    id: Integer,
    /// `run.start`, `input.respond`, or `agent.getTree`.
    method: String,
    /// What the method needs.
    params: Option<Map>,
}

/// What a command is answered with.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub enum Reply {
    /// It was carried out.
    Success(Success),
    /// It was not carried out.
    Failure(Failure),
}

/// A command was carried out.
#[derive(JsonSchema)]
pub struct Success {
    /// `success`.
    r#type: String,
    id: i64,
    result: Map,
    meta: Meta,
}

/// A command was not carried out.
#[derive(JsonSchema)]
pub struct Failure {
    /// `error`.
    r#type: String,
    /// That of the command; null if it has none.
    id: Option<Value>,
    /// A word for what is wrong.
    error: String,
    /// What is wrong, for people.
    message: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Meta {
    /// The last event that was delivered on this connection before.
    applied_through_seq: u64,
}

/// Which events of a thread to stream.
#[derive(JsonSchema)]
pub struct EventStreamRequest {
    /// `values`, `updates`, `messages`, `tools`, `lifecycle`, `input`, `checkpoints`, `tasks`,
    /// `custom`, or `custom:<name>`.
    #[schemars(length(min = 1, max = 1000))]
    channels: Vec<Channel>,
    /// Only graphs whose namespace begins with one of these.
    #[schemars(length(max = 1000))]
    namespaces: Option<Vec<Vec<String>>>,
    /// How far below such a beginning a graph may be.
    depth: Option<u32>,
    /// Only events after this number.
    since: Option<u64>,
}

super::schemas! {
    /// A channel of events.
    Channel = {
        "type": "string",
        "pattern": "^(values|updates|messages|tools|lifecycle|input|checkpoints|tasks|custom|custom:.+)$"
    };
}
