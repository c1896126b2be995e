//! Runs, on threads and stateless.

use futures::FutureExt;
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_LOCATION, HeaderName, HeaderValue, LOCATION},
};

use tokio::sync::OwnedSemaphorePermit;

use super::{
    page::{LIST_DEFAULT, LIST_MAX},
    render,
    server::{
        body::{self, Body},
        call::Call,
        deferred,
        error::Error,
        sse,
    },
};
use crate::{
    id::ThreadId,
    runs::{
        Run, Status,
        request::{Cancel, CancelAction, Join, OnDisconnect, Run as Request, Target},
    },
    stream::FrameSource,
    tree::members::Level,
    value::{Map, Value},
};

mod elsewhere;
pub(super) mod join;
mod parse;

pub(super) use parse::{STRATEGIES, config, config_or_context, parse as parse_run};

/// Marks a response that takes as long as its run: how the run is joined when the same request
/// comes again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replay {
    /// By its events.
    Stream(Target),
    /// By its end.
    Wait(Target),
}

const COLUMNS: [&str; 9] = [
    "run_id",
    "thread_id",
    "assistant_id",
    "created_at",
    "updated_at",
    "status",
    "metadata",
    "kwargs",
    "multitask_strategy",
];

/// `POST /threads/{thread_id}/runs`
pub(super) async fn create(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    begin(call, Some(thread)).await
}

/// `POST /runs`
pub(super) async fn create_stateless(call: Call) -> Result<Response<Body>, Error> {
    begin(call, None).await
}

async fn begin(mut call: Call, thread: Option<ThreadId>) -> Result<Response<Body>, Error> {
    let request = parse::run(&mut call, thread.is_none()).await?;
    let run = create_run(&call, thread, request).await?;
    let mut response = body::json(StatusCode::OK, &Value::map(render::run(&run)));
    let target = Target {
        thread: run.thread,
        run: run.id,
    };
    put_location(response.headers_mut(), thread, target);
    Ok(response)
}

async fn create_run(call: &Call, thread: Option<ThreadId>, request: Request) -> Result<Run, Error> {
    let new = call.runs().create(thread, request, false).await?;
    Ok(Run {
        // The response shows the moment of creation, even when the run has begun meanwhile.
        status: Status::Pending,
        ..new.run
    })
}

/// Says where a run is found.
pub(super) fn put_location(headers: &mut HeaderMap, thread: Option<ThreadId>, run: Target) {
    put(headers, CONTENT_LOCATION, path(thread, run));
}

/// `POST /threads/{thread_id}/runs/stream`
pub(super) async fn stream(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    begin_stream(call, Some(thread)).await
}

/// `POST /runs/stream`
pub(super) async fn stream_stateless(call: Call) -> Result<Response<Body>, Error> {
    begin_stream(call, None).await
}

async fn begin_stream(mut call: Call, thread: Option<ThreadId>) -> Result<Response<Body>, Error> {
    let request = parse::run(&mut call, thread.is_none()).await?;
    let slot = call.stream_slot()?;
    let cancels = request.on_disconnect == OnDisconnect::Cancel;
    let new = call.runs().create(thread, request, true).await?;
    let run = Target {
        thread: new.run.thread,
        run: new.run.id,
    };
    let frames: Box<dyn FrameSource> = match new.frames {
        Some(frames) => Box::new(frames),
        None => Box::new(None),
    };
    let on_disconnect = join::on_disconnect(&call, run, cancels);
    let mut response = stream_response(&call, frames, on_disconnect, slot, &path(thread, run));
    response.extensions_mut().insert(Replay::Stream(run));
    Ok(response)
}

/// `POST /threads/{thread_id}/runs/wait`
pub(super) async fn wait(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    begin_wait(call, Some(thread)).await
}

/// `POST /runs/wait`
pub(super) async fn wait_stateless(call: Call) -> Result<Response<Body>, Error> {
    begin_wait(call, None).await
}

async fn begin_wait(mut call: Call, thread: Option<ThreadId>) -> Result<Response<Body>, Error> {
    let request = parse::run(&mut call, thread.is_none()).await?;
    let slot = call.stream_slot()?;
    let cancels = request.on_disconnect == OnDisconnect::Cancel;
    let new = call.runs().create(thread, request, false).await?;
    let run = Target {
        thread: new.run.thread,
        run: new.run.id,
    };
    let result = join::body_of(call.runs().clone(), run, new.run.temporary, new.live);
    let on_disconnect = join::on_disconnect(&call, run, cancels);
    let heartbeat = call.shared.options.heartbeat;
    let mut response = deferred::respond(result.boxed(), on_disconnect, heartbeat, slot);
    response.extensions_mut().insert(Replay::Wait(run));
    put_join(response.headers_mut(), run);
    Ok(response)
}

/// `GET /threads/{thread_id}/runs`
pub(super) async fn list(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let query = &call.query;
    let limit = query.limit(LIST_DEFAULT, LIST_MAX)?;
    let offset = query.offset()?;
    let columns = columns(query.all("select").flat_map(|text| text.split(',')))?;
    let status = query.get("status").filter(|text| !text.is_empty());
    let (status, limit) = match status.map(str::parse::<Status>) {
        None => (None, limit),
        Some(Ok(status)) => (Some(status), limit),
        // No run has a status of this name, but the thread must exist.
        Some(Err(_)) => (None, 0),
    };
    let runs = call.runs().list_runs(thread, status, limit, offset).await?;
    let runs = runs.iter().take(limit).map(|run| {
        let map: Map = render::select(render::run(run), columns.as_deref());
        Value::map(map)
    });
    Ok(body::json(StatusCode::OK, &Value::list(runs.collect())))
}

fn columns<'a>(names: impl Iterator<Item = &'a str>) -> Result<Option<Vec<&'static str>>, Error> {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for name in names.filter(|name| !name.is_empty()) {
        match COLUMNS.iter().find(|column| **column == name) {
            Some(column) => known.push(*column),
            None => unknown.push(name),
        }
    }
    if !unknown.is_empty() {
        let detail = format!("Invalid select columns: {unknown:?}. Expected: {COLUMNS:?}");
        return Err(Error::invalid(detail));
    }
    Ok((!known.is_empty()).then_some(known))
}

/// `GET /threads/{thread_id}/runs/{run_id}`
pub(super) async fn get(call: Call) -> Result<Response<Body>, Error> {
    let target = target(&call)?;
    let Some(run) = call.runs().find_run(target.thread, target.run).await? else {
        // A thread that is missing is named; a run has the plain form here, unlike at deletion.
        call.threads().thread(target.thread).await?;
        return Err(Error::not_found());
    };
    Ok(body::json(StatusCode::OK, &Value::map(render::run(&run))))
}

/// `DELETE /threads/{thread_id}/runs/{run_id}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let run = target(&call)?;
    call.runs().delete_run(run.thread, run.run).await?;
    Ok(body::empty(StatusCode::NO_CONTENT))
}

/// `GET /threads/{thread_id}/runs/{run_id}/join`
pub(super) async fn join(call: Call) -> Result<Response<Body>, Error> {
    let run = target(&call)?;
    let cancel = call.query.flag("cancel_on_disconnect")?;
    join_run(&call, run, cancel).await
}

/// Waits for the end of a run that exists.
pub(super) async fn join_run(
    call: &Call,
    run: Target,
    cancel: bool,
) -> Result<Response<Body>, Error> {
    let slot = call.stream_slot()?;
    let result = join::result(call.runs(), run).await?;
    let on_disconnect = join::on_disconnect(call, run, cancel && result.is_some());
    let result = result.unwrap_or_else(join::not_found);
    let heartbeat = call.shared.options.heartbeat;
    let mut response = deferred::respond(result, on_disconnect, heartbeat, slot);
    put_join(response.headers_mut(), run);
    Ok(response)
}

/// `GET /threads/{thread_id}/runs/{run_id}/stream`
pub(super) async fn join_stream(call: Call) -> Result<Response<Body>, Error> {
    let run = target(&call)?;
    let join = Join {
        modes: call.query.modes()?,
        last_event_id: call.header("last-event-id").map(Into::into),
        cancel_on_disconnect: call.query.flag("cancel_on_disconnect")?,
    };
    watch(&call, run, join).await
}

/// Watches a run that exists.
pub(super) async fn watch(call: &Call, run: Target, join: Join) -> Result<Response<Body>, Error> {
    let slot = call.stream_slot()?;
    let cancels = join.cancel_on_disconnect;
    let (frames, ended) = join::frames(call.runs(), run, join).await?;
    let on_disconnect = join::on_disconnect(call, run, cancels && !ended);
    let path = path(Some(run.thread), run);
    Ok(stream_response(call, frames, on_disconnect, slot, &path))
}

/// The response that streams a run, whose path is `path`.
fn stream_response(
    call: &Call,
    frames: Box<dyn FrameSource>,
    on_disconnect: Option<sse::OnDisconnect>,
    slot: OwnedSemaphorePermit,
    path: &str,
) -> Response<Body> {
    let heartbeat = call.shared.options.heartbeat;
    let drain = call.shared.drain.clone();
    let mut response = sse::respond(frames, on_disconnect, heartbeat, drain, slot);
    let headers = response.headers_mut();
    put(headers, LOCATION, format!("{path}/stream"));
    put(headers, CONTENT_LOCATION, path);
    response
}

/// `POST /threads/{thread_id}/runs/{run_id}/cancel`
pub(super) async fn cancel(call: Call) -> Result<Response<Body>, Error> {
    let run = target(&call)?;
    let wait = call.query.flag("wait")?;
    let action = call.query.word("action", CancelAction::ALL)?;
    let action = action.unwrap_or(CancelAction::Interrupt);
    let live = call.runs().live(run.run);
    if !cancel_run(&call, run, action).await? {
        let known = call.runs().find_run(run.thread, run.run).await?.is_some();
        return Err(Error::nothing_to_cancel(known));
    }
    if !wait {
        return Ok(body::empty(StatusCode::ACCEPTED));
    }
    let end = match live {
        Some(live) => live.ended().await,
        None => None,
    };
    // Nothing is left of a run that was rolled back.
    let end = end.filter(|_| action == CancelAction::Interrupt);
    let left = end.map_or_else(|| Value::map(Map::new()), |end| end.body());
    let mut response = body::json(StatusCode::OK, &left);
    put_join(response.headers_mut(), run);
    Ok(response)
}

/// Cancels a run; false if there is none that has not ended.
async fn cancel_run(call: &Call, run: Target, action: CancelAction) -> Result<bool, Error> {
    let word = action.as_str();
    // LangGraph's server names the path without ids.
    let why = format!("{word} requested via POST /threads/{{thread_id}}/runs/{{run_id}}/cancel");
    let cancelled = call.runs().cancel(run.thread, run.run, action, &why);
    Ok(cancelled.await?)
}

/// `POST /runs/cancel`
pub(super) async fn cancel_many(mut call: Call) -> Result<Response<Body>, Error> {
    let action = call.query.word("action", CancelAction::ALL)?;
    let action = action.unwrap_or(CancelAction::Interrupt);
    let body = call.json().await?;
    let which = parse::cancel(&body)?;
    if let Cancel::Runs(thread, _) = &which {
        call.authorize(*thread, Level::Writer).await?;
    }
    let runs = match which {
        Cancel::Status(status) => call.runs().cancellable(status, call.viewer()).await?,
        Cancel::Runs(thread, runs) => runs.into_iter().map(|run| (thread, run)).collect(),
    };
    let (mut known, mut any) = (false, false);
    for (thread, run) in runs {
        if cancel_run(&call, Target { thread, run }, action).await? {
            any = true;
        } else if !any && !known {
            known = call.runs().find_run(thread, run).await?.is_some();
        }
    }
    if any {
        Ok(body::empty(StatusCode::NO_CONTENT))
    } else {
        Err(Error::nothing_to_cancel(known))
    }
}

/// `POST /runs/batch`
pub(super) async fn create_batch(mut call: Call) -> Result<Response<Body>, Error> {
    let requests = parse::batch(&mut call).await?;
    let mut runs = Vec::with_capacity(requests.len());
    for request in requests {
        let run = create_run(&call, None, request).await?;
        runs.push(Value::map(render::run(&run)));
    }
    Ok(body::json(StatusCode::OK, &Value::list(runs)))
}

fn target(call: &Call) -> Result<Target, Error> {
    Ok(Target {
        thread: call.path.thread()?,
        run: call.path.run()?,
    })
}

/// Path of a run; a stateless one has none of a thread.
fn path(thread: Option<ThreadId>, target: Target) -> String {
    match thread {
        Some(thread) => format!("/threads/{thread}/runs/{}", target.run),
        None => format!("/runs/{}", target.run),
    }
}

/// Says where the end of a run can be waited for. The way back to a stateless one leads through its
/// temporary thread.
fn put_join(headers: &mut HeaderMap, run: Target) {
    let path = path(Some(run.thread), run);
    put(headers, LOCATION, format!("{path}/join"));
    put(headers, CONTENT_LOCATION, path);
}

fn put(headers: &mut HeaderMap, name: HeaderName, path: impl TryInto<HeaderValue>) {
    // Ids have only characters that may stand in a header, so this never fails.
    if let Ok(value) = path.try_into() {
        headers.insert(name, value);
    }
}
