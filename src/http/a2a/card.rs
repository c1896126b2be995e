//! Agent cards: what an assistant can do and where it is called.

use hyper::{Response, StatusCode, header::HOST};

use super::agent::Agent;
use crate::{
    http::{
        json_rpc::Failure,
        server::{Body, Call, Error, body},
    },
    value,
    value::Value,
};

/// The header by which clients choose what of a context's history they get.
pub const SCOPE_HEADER: &str = "langgraph-a2a-history-scope";

/// `GET /a2a/{assistant_id}` and the two places below it
pub async fn of_path(call: Call) -> Result<Response<Body>, Error> {
    let agent = Agent::of(&call).await;
    respond(&call, agent)
}

/// `GET /.well-known/agent-card.json`
pub async fn of_query(call: Call) -> Result<Response<Body>, Error> {
    let agent = match call.query.get("assistant_id") {
        Some(text) if !text.is_empty() => Agent::named(&call, text).await,
        _ => Err(Failure::params(
            "Missing required query parameter: assistant_id",
        )),
    };
    respond(&call, agent)
}

fn respond(call: &Call, agent: Result<Agent, Failure>) -> Result<Response<Body>, Error> {
    match agent {
        Ok(agent) => Ok(body::json(StatusCode::OK, &card(&agent, &base(call)))),
        Err(Failure::Refused { code, message }) => {
            let error = value!({"error": {"code": code, "message": message}});
            Ok(body::json(StatusCode::BAD_REQUEST, &error))
        }
        Err(Failure::Http(error)) => Err(error),
    }
}

/// The address of this server, as the client called it.
fn base(call: &Call) -> String {
    let host = call.header(HOST.as_str()).unwrap_or("localhost");
    // Whoever terminates TLS before the server says so.
    let scheme = match call.header("x-forwarded-proto") {
        Some("https") => "https",
        _ => "http",
    };
    format!("{scheme}://{host}")
}

fn card(agent: &Agent, base: &str) -> Value {
    let (id, name) = (agent.id.to_string(), &agent.name);
    let url = format!("{base}/a2a/{id}");
    let described = agent.description.as_deref().filter(|text| !text.is_empty());
    let description = described.map_or_else(|| format!("{name} assistant"), str::to_owned);
    let kinds = || value!(["application/json", "text/plain"]);
    let schema = Value::from_serde_json(agent.registered.graph.schemas.input.clone());
    let properties = schema.get("properties").and_then(Value::as_map);
    let names = properties.into_iter().flat_map(|map| map.keys());
    let names = names.map(|name| Value::Str(name.clone())).collect();
    value!({
        "name": (name.clone()),
        "description": (description.clone()),
        "url": (url.clone()),
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {
            "streaming": true,
            "pushNotifications": false,
            "stateTransitionHistory": false,
            "extensions": [{
                "uri": "https://langchain.com/a2a/extensions/history-scope/v1",
                "description": "Which messages a task shows: its own, or all of its context",
                "required": false,
                "params": {
                    "header": "LangGraph-A2A-History-Scope",
                    "values": ["context", "task"],
                    "default": "context",
                    "methods": ["SendMessage", "GetTask"]
                }
            }]
        },
        "defaultInputModes": (kinds()),
        "defaultOutputModes": (kinds()),
        "skills": [{
            "id": (format!("{id}-main")),
            "name": (format!("{name} Capabilities")),
            "description": description,
            "tags": ["assistant", "langgraph"],
            "examples": [],
            "inputModes": (kinds()),
            "outputModes": (kinds()),
            "metadata": {"inputSchema": {
                "required": (schema.get("required").cloned().unwrap_or_else(|| value!([]))),
                "properties": (Value::list(names)),
                "supportsA2A": (agent.messages().is_some())
            }}
        }],
        "version": (env!("CARGO_PKG_VERSION"))
    })
}
