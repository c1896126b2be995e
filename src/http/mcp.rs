//! The server's assistants as tools of the Model Context Protocol (streamable HTTP, without sessions).

use futures::{FutureExt, future::BoxFuture};
use hyper::{
    Response, StatusCode,
    header::{ALLOW, HeaderValue},
};

mod tools;

use self::tools::Tool;
use super::{
    json_rpc::{self, Failure, INVALID_REQUEST, Request},
    runs::of_call,
    server::{Body, Call, Error, body, withdrawal::until_withdrawn},
};
use crate::{
    assistants::Assistant,
    id::ThreadId,
    runs::{
        self, RunResult, Status,
        request::{Run, Target},
    },
    value,
    value::{Map, Value},
};

/// The revisions of the protocol that are spoken, the newest first. A server that has nothing but tools, and retains
/// nothing between two requests, is the same in all of them.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// What a client takes: one of these is enough.
const KINDS: [&str; 2] = ["application/json", "text/event-stream"];

/// `GET /mcp`: there is nothing that the server would send by itself.
pub(super) async fn get(_call: Call) -> Result<Response<Body>, Error> {
    let mut response = body::empty(StatusCode::METHOD_NOT_ALLOWED);
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static("POST"));
    Ok(response)
}

/// `DELETE /mcp`: there are no sessions.
pub(super) async fn delete(_call: Call) -> Result<Response<Body>, Error> {
    Ok(body::empty(StatusCode::NOT_FOUND))
}

/// `POST /mcp`
pub(super) async fn post(mut call: Call) -> Result<Response<Body>, Error> {
    let accept = call.header("accept");
    if !KINDS.iter().any(|kind| json_rpc::accepts(accept, kind)) {
        return Ok(malformed(
            "Accept header must include application/json or text/event-stream",
        ));
    }
    let message = match call.json().await {
        Ok(Value::Map(message)) => message,
        Ok(_) => return Ok(malformed("Invalid message format.")),
        Err(error) if error.status == StatusCode::UNPROCESSABLE_ENTITY => {
            return Ok(malformed(&error.detail));
        }
        Err(error) => return Err(error),
    };
    if !json_rpc::has_version(&message) {
        return Ok(malformed(
            "Invalid JSON-RPC message: `jsonrpc` must be \"2.0\"",
        ));
    }
    let method = match (message.get("method"), message.get("id")) {
        (None, None) => return Ok(malformed("Invalid message format.")),
        // Responses to requests that the server never makes, and notifications.
        (None, Some(_)) | (Some(_), None | Some(Value::Null)) => {
            return Ok(body::empty(StatusCode::ACCEPTED));
        }
        (Some(method), Some(_)) => method,
    };
    let Some(id) = json_rpc::id(&message) else {
        let refused = "Invalid JSON-RPC request: `id` must be a string or a number";
        return Failure::new(INVALID_REQUEST, refused).into_response(&Value::Null);
    };
    let Some(method) = method.as_str() else {
        let refused = "Invalid JSON-RPC request: `method` must be a string";
        return Failure::new(INVALID_REQUEST, refused).into_response(id);
    };
    let params = json_rpc::params(&message);
    let request = params.map(|params| Request {
        id: id.clone(),
        method: method.to_owned(),
        params,
    });
    let reads = matches!(method, "initialize" | "ping" | "tools/list");
    let response = match request {
        Ok(request) if reads => json_rpc::reading(respond(&call, request)).await,
        Ok(request) => respond(&call, request).await,
        Err(failure) => Err(failure),
    };
    let response = response.or_else(|failure| failure.into_response(id));
    json_rpc::marked(response, reads)
}

async fn respond(call: &Call, request: Request) -> Result<Response<Body>, Failure> {
    let result = match &*request.method {
        "initialize" => initialize(&request.params),
        "ping" => value!({}),
        "tools/list" => tools::list(call, &request.params).await?,
        "tools/call" => return execute(call, request).await,
        method => return Err(Failure::no_method(method)),
    };
    let message = json_rpc::result(&request.id, result);
    Ok(body::json(StatusCode::OK, &message))
}

fn initialize(params: &Map) -> Value {
    let wanted = params.get("protocolVersion").and_then(Value::as_str);
    let spoken = REVISIONS.into_iter().find(|spoken| Some(*spoken) == wanted);
    value!({
        "protocolVersion": (spoken.unwrap_or(REVISIONS[0])),
        "capabilities": {"tools": {"listChanged": false}},
        "serverInfo": {"name": "Backstitch", "version": (env!("CARGO_PKG_VERSION"))}
    })
}

/// Calls a tool: a stateless run of its assistant, which goes on when the client leaves.
async fn execute(call: &Call, request: Request) -> Result<Response<Body>, Failure> {
    let name = match request.params.get("name") {
        Some(Value::Str(name)) => name,
        Some(_) | None => return Err(Failure::params("A tool is called by its `name`")),
    };
    let arguments = match request.params.get("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Map(map)) => (**map).clone(),
        Some(_) => return Err(Failure::params("`arguments` must be an object")),
    };
    let Some(tool) = tools::find(call, name).await? else {
        let name: String = name.chars().take(80).collect();
        return Err(Failure::params(format!("Unknown tool: {name}")));
    };
    let slot = call.stream_slot()?;
    let (thread, result) = match earlier(call).await? {
        Some(joined) => joined,
        None => begin(call, run_of(call, &tool, arguments)).await?,
    };
    let result = async move { json_rpc::result(&request.id, shown(&result.await)) };
    let watch = call.runs().watch_access(&call.access, thread);
    Ok(until_withdrawn(
        json_rpc::respond_later(call, result.boxed(), slot).await,
        watch,
    ))
}

/// Creates the run of a call; returns its thread, and how it ends.
async fn begin(call: &Call, run: Run) -> Result<(ThreadId, BoxFuture<'static, RunResult>), Error> {
    let new = call.runs().create(None, run, false).await?;
    let target = Target {
        thread: new.row.thread,
        run: new.row.id,
    };
    let runs = call.runs().clone();
    let result = async move { runs.result(target, new.row.temporary, new.handle).await };
    Ok((target.thread, result.boxed()))
}

/// The same of the run that an earlier attempt of the request has created, while there is something left of it.
async fn earlier(call: &Call) -> Result<Option<(ThreadId, BoxFuture<'static, RunResult>)>, Error> {
    let Some(run) = call.earlier_run() else {
        return Ok(None);
    };
    let thread = ThreadId::of_run(run);
    let memory = Some(call.read_memory());
    let joined = call
        .runs()
        .join(&call.access, Target { thread, run }, memory);
    match joined.await {
        Ok(joined) => Ok(joined.map(|result| (thread, result))),
        Err(runs::Error::NoThread(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn run_of(call: &Call, tool: &Tool, mut arguments: Map) -> Run {
    if tool.takes_text
        && let Some(Value::Str(text)) = arguments.get("messages")
    {
        let message = value!([{"role": "user", "content": (Value::Str(text.clone()))}]);
        arguments.insert("messages", message);
    }
    Run {
        input: Some(Value::map(arguments)),
        // How it ended is found for a while when the request is repeated.
        stream_resumable: call.run_id.is_some(),
        ..of_call(call, Assistant::Id(tool.assistant))
    }
}

/// How a run ended, as the result of a tool: its values as JSON, or the class of its failure.
fn shown(result: &RunResult) -> Value {
    let failure = match &result.error {
        Some(error) => {
            let class = error.get("error").and_then(Value::as_str);
            Some(class.unwrap_or("Error").to_owned())
        }
        None if result.status == Status::Success => None,
        None => Some(result.status.as_str().to_owned()),
    };
    match failure {
        Some(class) => value!({"isError": true, "content": [{"type": "text", "text": class}]}),
        None => {
            let text = result.to_value().to_json();
            value!({"content": [{"type": "text", "text": text}]})
        }
    }
}

/// 400 in the form that clients of the protocol know.
fn malformed(reason: &str) -> Response<Body> {
    body::json(StatusCode::BAD_REQUEST, &value!({"error": reason}))
}
