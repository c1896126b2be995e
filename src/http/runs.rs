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
        Run, RunResult, Status,
        request::{Cancel, CancelAction, Join, OnDisconnect, Run as Request, Target},
    },
    stream::FrameSource,
    tree::members::Level,
    value::{Map, Value},
};

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
        ..new.row
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
        thread: new.row.thread,
        run: new.row.id,
    };
    let frames: Box<dyn FrameSource> = match new.frames {
        Some(frames) => Box::new(frames),
        None => Box::new(None),
    };
    let leave = on_disconnect(&call, run, cancels);
    let mut response = stream_response(&call, frames, leave, slot, &path(thread, run));
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
        thread: new.row.thread,
        run: new.row.id,
    };
    let runs = call.runs().clone();
    let result = async move { runs.result(run, new.row.temporary, new.handle).await };
    let result = result.map(|result| result.to_value());
    let leave = on_disconnect(&call, run, cancels);
    let heartbeat = call.shared.options.heartbeat;
    let mut response = deferred::respond(result.boxed(), leave, heartbeat, slot);
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
    let runs = call.runs().list(thread, status, limit, offset).await?;
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
        call.threads().get(target.thread).await?;
        return Err(Error::not_found());
    };
    Ok(body::json(StatusCode::OK, &Value::map(render::run(&run))))
}

/// `DELETE /threads/{thread_id}/runs/{run_id}`
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Error> {
    let run = target(&call)?;
    call.runs().delete(run).await?;
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
    let result = call.runs().join(run).await?;
    let leave = on_disconnect(call, run, cancel && result.is_some());
    let result = result.unwrap_or_else(RunResult::ready_not_found);
    let result = result.map(|result| result.to_value()).boxed();
    let heartbeat = call.shared.options.heartbeat;
    let mut response = deferred::respond(result, leave, heartbeat, slot);
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
    let (frames, ended) = call.runs().join_stream(run, join).await?;
    let leave = on_disconnect(call, run, cancels && !ended);
    let path = path(Some(run.thread), run);
    Ok(stream_response(call, frames, leave, slot, &path))
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
    let Some(result) = call.runs().cancel_requested(run, action, wait).await? else {
        return Ok(body::empty(StatusCode::ACCEPTED));
    };
    let mut response = body::json(StatusCode::OK, &result.to_value());
    put_join(response.headers_mut(), run);
    Ok(response)
}

/// Cancels the run when its client leaves, if `cancels`.
fn on_disconnect(call: &Call, run: Target, cancels: bool) -> Option<sse::OnDisconnect> {
    cancels.then(|| {
        let runs = call.runs().clone();
        let leave: sse::OnDisconnect = Box::new(move || {
            tokio::spawn(async move {
                let reason = "client disconnected from the run stream (on_disconnect=cancel)";
                let cancelled = runs.cancel_run(run, CancelAction::Interrupt, reason);
                if let Err(error) = cancelled.await {
                    tracing::warn!(%error, "a run whose client left could not be cancelled");
                }
            });
        });
        leave
    })
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
    let cancelled = call
        .runs()
        .cancel_all_requested(which, action, call.viewer());
    cancelled.await?;
    Ok(body::empty(StatusCode::NO_CONTENT))
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
