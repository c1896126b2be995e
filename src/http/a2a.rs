//! Assistants as agents of the Agent2Agent protocol. A context is a thread, and a task is a run of it together with the
//! runs that resumed its interrupts.

use hyper::{Response, StatusCode};

mod agent;
pub(super) mod card;
mod codes;
mod generation;
mod incoming;
mod part;
mod send;
mod task;
mod updates;

use self::{
    agent::Agent,
    codes::NOT_CANCELABLE,
    generation::{Generation, State},
    task::{Key, Scope, Tasks},
};
use super::{
    json_rpc::{self, Failure, INVALID_REQUEST, PARSE_ERROR, Request},
    server::{Body, Call, Error, body},
};
use crate::{
    runs::{self, request::CancelAction},
    tree::members::Level,
    value,
    value::{Map, Value},
};

/// Most tasks in a page.
const PAGE_MAX: i64 = 100;
const PAGE_DEFAULT: i64 = 50;

/// `POST /a2a/{assistant_id}`
pub(super) async fn post(mut call: Call) -> Result<Response<Body>, Error> {
    let body = match call.json().await {
        Ok(body) => body,
        Err(error) if error.status == StatusCode::UNPROCESSABLE_ENTITY => {
            return Failure::new(PARSE_ERROR, error.detail).into_response(&Value::Null);
        }
        Err(error) => return Err(error),
    };
    let id = body.as_map().and_then(json_rpc::id).cloned();
    let id = id.unwrap_or_default();
    let request = match request(body) {
        Ok(request) => request,
        Err(failure) => return failure.into_response(&id),
    };
    let reads = matches!(&*request.method, "tasks/get" | "GetTask" | "ListTasks");
    let response = if reads {
        json_rpc::reading(respond(&call, request)).await
    } else {
        respond(&call, request).await
    };
    let response = response.or_else(|failure| failure.into_response(&id));
    json_rpc::marked(response, reads)
}

/// Reads one request. There are no notifications in this protocol.
fn request(body: Value) -> Result<Request, Failure> {
    let refuse = |reason| Err(Failure::new(INVALID_REQUEST, reason));
    let Value::Map(message) = body else {
        return refuse("Invalid message format: one request, an object, is needed");
    };
    if !json_rpc::has_version(&message) {
        return refuse("Invalid JSON-RPC message: `jsonrpc` must be \"2.0\"");
    }
    let Some(id) = json_rpc::id(&message) else {
        return refuse("Invalid JSON-RPC request: `id` must be a string or a number");
    };
    let Some(Value::Str(method)) = message.get("method") else {
        return refuse("Invalid JSON-RPC request: `method` must be a string");
    };
    Ok(Request {
        id: id.clone(),
        method: method.to_string(),
        params: json_rpc::params(&message)?,
    })
}

async fn respond(call: &Call, request: Request) -> Result<Response<Body>, Failure> {
    use Generation::{New, Old};
    let (generation, operation) = match &*request.method {
        "message/send" => (Old, Operation::Send),
        "SendMessage" => (New, Operation::Send),
        "message/stream" => (Old, Operation::Stream),
        "SendStreamingMessage" => (New, Operation::Stream),
        "tasks/get" => (Old, Operation::Get),
        "GetTask" => (New, Operation::Get),
        "tasks/cancel" => (Old, Operation::Cancel),
        "CancelTask" => (New, Operation::Cancel),
        "ListTasks" => (New, Operation::List),
        method => return Err(Failure::no_method(method)),
    };
    let streams = operation == Operation::Stream;
    let kind = if streams {
        "text/event-stream"
    } else {
        "application/json"
    };
    if !json_rpc::accepts(call.header("accept"), kind) {
        let reason = format!("Accept header must include {kind}");
        let refused = body::json(StatusCode::BAD_REQUEST, &value!({"error": reason}));
        return Ok(refused);
    }
    let agent = Agent::of(call).await?;
    let scope = Scope::parse(call.header(card::SCOPE_HEADER))?;
    let tasks = Tasks::new(call, agent, generation, scope);
    let result = match operation {
        Operation::Send => return send::send(call, tasks, request).await,
        Operation::Stream => return send::stream(call, tasks, request).await,
        Operation::Get => get(&tasks, &request.params).await?,
        Operation::Cancel => cancel(call, &tasks, &request.params).await?,
        Operation::List => list(&tasks, &request.params).await?,
    };
    // Also of the others some only read.
    call.threads().confirm().await.map_err(Error::from)?;
    let message = json_rpc::result(&request.id, result);
    Ok(body::json(StatusCode::OK, &message))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Send,
    Stream,
    Get,
    Cancel,
    List,
}

/// The task that the parameters name.
fn key(params: &Map) -> Result<Key, Failure> {
    let Some(Value::Str(id)) = params.get("id") else {
        return Err(Failure::params(
            "Missing required parameter: id, that of a task",
        ));
    };
    let key = Key::parse(id)?;
    match params.get("contextId") {
        Some(Value::Str(context)) if **context != *key.context() => Err(task::missing(id)),
        _ => Ok(key),
    }
}

async fn get(tasks: &Tasks, params: &Map) -> Result<Value, Failure> {
    let key = key(params)?;
    let length = incoming::whole(params, "historyLength", 0, i64::MAX)?;
    let task = tasks.load(key).await?;
    let task = task.ok_or_else(|| task::missing(&key.to_string()))?;
    Ok(tasks.show(&task, length))
}

async fn cancel(call: &Call, tasks: &Tasks, params: &Map) -> Result<Value, Failure> {
    let key = key(params)?;
    let missing = || task::missing(&key.to_string());
    let runs = tasks.runs_of(key).await?.ok_or_else(missing)?;
    if runs.last.status.is_final() {
        let task = tasks.load(key).await?.ok_or_else(missing)?;
        return Err(not_cancelable(task.status.state));
    }
    let access = call.access.at(Level::Writer);
    let target = runs::request::Target {
        thread: key.thread,
        run: runs.last.id,
    };
    let cancelled = call
        .runs()
        .cancel_requested(&access, target, CancelAction::Interrupt, true);
    match cancelled.await {
        Ok(_) => {}
        Err(runs::Error::NothingToCancel { .. }) => return Err(not_cancelable(State::Completed)),
        Err(error) => return Err(Error::from(error).into()),
    }
    json_rpc::reading(async {
        let task = tasks.load(key).await?.ok_or_else(missing)?;
        Ok(tasks.show(&task, None))
    })
    .await
}

fn not_cancelable(state: State) -> Failure {
    Failure::new(
        NOT_CANCELABLE,
        match state {
            State::InputRequired => {
                "Nothing of the task is being worked on: send the message that it waits for, or begin another context"
            }
            _ => "The task has ended, so that it cannot be canceled",
        },
    )
}

/// The tasks of one context, newest first.
async fn list(tasks: &Tasks, params: &Map) -> Result<Value, Failure> {
    let Some(Value::Str(context)) = params.get("contextId") else {
        return Err(Failure::params(
            "Missing required parameter: contextId, that of the tasks to list",
        ));
    };
    let limit = incoming::whole(params, "pageSize", 1, PAGE_MAX)?;
    let limit = limit.unwrap_or(PAGE_DEFAULT as usize);
    let state = match params.get("status") {
        None | Some(Value::Null) => None,
        Some(Value::Str(word)) if &**word == "TASK_STATE_UNSPECIFIED" => None,
        Some(word) => {
            let state = word.as_str().and_then(State::parse);
            Some(state.ok_or_else(|| Failure::params("`status` is no state of tasks"))?)
        }
    };
    let begin = match params.get("pageToken") {
        None | Some(Value::Null) => 0,
        Some(token) if token.as_str() == Some("") => 0,
        Some(token) => {
            let token = token.as_str().and_then(|text| text.parse().ok());
            token.ok_or_else(|| Failure::params("`pageToken` is none of this server"))?
        }
    };
    // A context that is nowhere has no tasks.
    let all = match context.parse() {
        Ok(thread) => tasks.of_context(thread).await?,
        Err(_) => vec![],
    };
    let fits = |task: &&task::Task| state.is_none_or(|state| task.status.state == state);
    let all: Vec<_> = all.iter().filter(fits).collect();
    let page: Vec<_> = all.iter().skip(begin).take(limit).collect();
    let next = begin.saturating_add(page.len());
    let next = if next < all.len() {
        next.to_string()
    } else {
        String::new()
    };
    let count = page.len();
    let shown = page
        .into_iter()
        .map(|task| tasks.show(task, Some(0)))
        .collect();
    Ok(value!({
        "tasks": (Value::list(shown)),
        "totalSize": (all.len() as i64),
        "pageSize": (count as i64),
        "nextPageToken": next
    }))
}
