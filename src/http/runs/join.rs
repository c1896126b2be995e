//! Responses that take as long as a run: its stream, or its end.

use futures::FutureExt;
use hyper::Response;

use super::{
    location::{path, put_join, put_stream, target},
    parse,
};
use crate::{
    http::server::{
        Body, Error,
        call::{Call, StreamSlot},
        deferred::{self, Ready},
        sse,
        withdrawal::until_withdrawn,
    },
    id::ThreadId,
    runs::{
        RunResult,
        request::{CancelAction, Join, OnDisconnect, Target},
    },
    stream::FrameSource,
    tree::members::{Access, Level},
};

/// Marks a response that takes as long as its run: how the run is joined when the same request
/// comes again.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) enum Replay {
    /// By its events.
    Stream(Target),
    /// By its end.
    Wait(Target),
}

impl Replay {
    /// The run.
    pub(in crate::http) fn run(self) -> Target {
        match self {
            Self::Stream(run) | Self::Wait(run) => run,
        }
    }
}

/// `POST /threads/{thread_id}/runs/stream`
pub(in crate::http) async fn stream(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    begin_stream(call, Some(thread)).await
}

/// `POST /runs/stream`
pub(in crate::http) async fn stream_stateless(call: Call) -> Result<Response<Body>, Error> {
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
        Some(frames) => frames,
        None => Box::new(None),
    };
    let leave = on_disconnect(&call, run, cancels);
    let watch = call.runs().watch_access(&call.access, run.thread);
    let response = stream_response(&call, frames, leave, slot, &path(thread, run));
    let mut response = until_withdrawn(response, watch);
    response.extensions_mut().insert(Replay::Stream(run));
    Ok(response)
}

/// `POST /threads/{thread_id}/runs/wait`
pub(in crate::http) async fn wait(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    begin_wait(call, Some(thread)).await
}

/// `POST /runs/wait`
pub(in crate::http) async fn wait_stateless(call: Call) -> Result<Response<Body>, Error> {
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
    let shows_breaks = call.shows_breaks;
    let result = result.map(move |result| ready(result, shows_breaks));
    let leave = on_disconnect(&call, run, cancels);
    let heartbeat = call.shared.options.heartbeat;
    let watch = call.runs().watch_access(&call.access, run.thread);
    let memory = call.read_memory();
    let response = deferred::respond(result.boxed(), memory, leave, heartbeat, slot);
    let mut response = until_withdrawn(response, watch);
    response.extensions_mut().insert(Replay::Wait(run));
    put_join(response.headers_mut(), run);
    Ok(response)
}

/// What is sent of a result. Clients join a run that goes on elsewhere again by themselves, as `Location` says, where
/// its response breaks off: an error would be its end for them. Where they would not see that, it is an error.
fn ready(result: RunResult, shows_breaks: bool) -> Ready {
    Ready {
        value: result.to_value(),
        memory: result.memory,
        breaks_off: result.goes_on && shows_breaks,
    }
}

/// `GET /threads/{thread_id}/runs/{run_id}/join`
pub(in crate::http) async fn join(call: Call) -> Result<Response<Body>, Error> {
    let run = target(&call)?;
    let cancel = call.query.flag("cancel_on_disconnect")?;
    join_run(&call, &joining(&call, cancel), run, cancel).await
}

/// Waits for the end of a run that exists.
pub(in crate::http) async fn join_run(
    call: &Call,
    access: &Access,
    run: Target,
    cancel: bool,
) -> Result<Response<Body>, Error> {
    let slot = call.stream_slot()?;
    let memory = call.read_memory();
    let result = call.runs().join(access, run, Some(memory.clone())).await?;
    let leave = on_disconnect(call, run, cancel && result.is_some());
    let result = result.unwrap_or_else(RunResult::ready_not_found);
    let shows_breaks = call.shows_breaks;
    let result = result.map(move |result| ready(result, shows_breaks));
    let heartbeat = call.shared.options.heartbeat;
    let watch = call.runs().watch_access(&call.access, run.thread);
    let response = deferred::respond(result.boxed(), memory, leave, heartbeat, slot);
    let mut response = until_withdrawn(response, watch);
    put_join(response.headers_mut(), run);
    Ok(response)
}

/// `GET /threads/{thread_id}/runs/{run_id}/stream`
pub(in crate::http) async fn join_stream(call: Call) -> Result<Response<Body>, Error> {
    let run = target(&call)?;
    let join = Join {
        modes: call.query.modes()?,
        last_event_id: call.last_event_id().map(Into::into),
        cancel_on_disconnect: call.query.flag("cancel_on_disconnect")?,
    };
    let access = joining(&call, join.cancel_on_disconnect);
    let path = path(Some(run.thread), run);
    watch(&call, &access, run, join, &path).await
}

/// Watches a run that exists, whose path for the client is `path`.
pub(in crate::http) async fn watch(
    call: &Call,
    access: &Access,
    run: Target,
    join: Join,
    path: &str,
) -> Result<Response<Body>, Error> {
    let slot = call.stream_slot()?;
    let cancels = join.cancel_on_disconnect;
    let (frames, ended) = call.runs().join_stream(access, run, join).await?;
    let leave = on_disconnect(call, run, cancels && !ended);
    let watch = call.runs().watch_access(&call.access, run.thread);
    let response = stream_response(call, frames, leave, slot, path);
    Ok(until_withdrawn(response, watch))
}

/// On whose behalf a run is watched: who cancels it by leaving must be a writer.
pub(super) fn joining(call: &Call, cancels: bool) -> Access {
    if cancels {
        call.access.at(Level::Writer)
    } else {
        call.access.clone()
    }
}

/// The response that streams a run, whose path is `path`.
fn stream_response(
    call: &Call,
    frames: Box<dyn FrameSource>,
    on_disconnect: Option<sse::OnDisconnect>,
    slot: StreamSlot,
    path: &str,
) -> Response<Body> {
    let mut response = sse::respond(call, frames, on_disconnect, slot);
    put_stream(response.headers_mut(), path);
    response
}

/// Cancels the run when its client leaves, if `cancels`. A client whose connection the server itself has cut has not left.
fn on_disconnect(call: &Call, run: Target, cancels: bool) -> Option<sse::OnDisconnect> {
    cancels.then(|| {
        let runs = call.runs().clone();
        let access = joining(call, true);
        let cut = call.shared.cut.clone();
        let leave: sse::OnDisconnect = Box::new(move || {
            if cut.is_cancelled() {
                return;
            }
            tokio::spawn(async move {
                let reason = "client disconnected from the run stream (on_disconnect=cancel)";
                let cancelled = runs.cancel_run(&access, run, CancelAction::Interrupt, reason);
                if let Err(error) = cancelled.await {
                    tracing::warn!(%error, "a run whose client left could not be cancelled");
                }
            });
        });
        leave
    })
}
