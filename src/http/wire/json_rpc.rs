//! Messages of JSON-RPC, and cards of agents.

use schemars::JsonSchema;

use crate::value::{Map, Value};

super::schemas! {
    /// The version of JSON-RPC.
    Version = { "type": "string", "enum": ["2.0"] };
    /// The id of a request.
    RequestId = { "type": ["string", "number"] };
    /// The id of a request, or null where it could not be read.
    ResponseId = { "type": ["string", "number", "null"] };
}

/// A request, a notification or a response of MCP: `initialize`, `ping`, `tools/list` and `tools/call` are carried out.
#[derive(JsonSchema)]
#[schemars(extend("anyOf" = [{"required": ["method"]}, {"required": ["id"]}]))]
pub struct McpMessage {
    jsonrpc: Version,
    /// Without one the message is a notification.
    id: Option<RequestId>,
    method: Option<String>,
    params: Option<Map>,
}

/// A request of A2A: `message/send`, `message/stream`, `tasks/get` and `tasks/cancel`, or `SendMessage`,
/// `SendStreamingMessage`, `GetTask`, `ListTasks` (of one `contextId`) and `CancelTask`.
#[derive(JsonSchema)]
pub struct Request {
    jsonrpc: Version,
    id: RequestId,
    method: String,
    params: Option<Map>,
}

/// A response: a result or an error.
#[derive(JsonSchema)]
pub struct Response {
    jsonrpc: Version,
    id: ResponseId,
    #[schemars(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    error: Option<RpcError>,
}

/// Why a request failed.
#[derive(JsonSchema)]
pub struct RpcError {
    code: i64,
    message: String,
}

/// What was sent is no message, or the client takes no form of a response.
#[derive(JsonSchema)]
pub struct BadRequest {
    error: String,
}

/// Which agent a card is of.
#[derive(JsonSchema)]
pub struct CardQuery {
    /// The id of an assistant.
    assistant_id: super::Id,
}

/// There is no such agent.
#[derive(JsonSchema)]
pub struct CardError {
    error: RpcError,
}

/// What an agent can do and where it is called, as A2A has it.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCard {
    name: String,
    description: String,
    url: String,
    supported_interfaces: Vec<Map>,
    capabilities: Map,
    default_input_modes: Vec<String>,
    default_output_modes: Vec<String>,
    skills: Vec<Map>,
    version: String,
}
