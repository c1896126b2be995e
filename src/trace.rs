//! Spans of requests, runs, supersteps, tasks and commits, for OpenTelemetry. Without the feature
//! `otel` there are none; with it they cost next to nothing while no collector is configured.

use std::sync::Arc;

use tracing::{Span, field::Empty};

use crate::id::{RunId, TaskId, ThreadId};

/// The target of every span: the log leaves it out, and traces have nothing else.
pub const TARGET: &str = "backstitch::trace";

/// A span, or none without the feature. Fields are computed only when somebody collects spans.
macro_rules! span {
    ($($fields:tt)*) => {
        if cfg!(feature = "otel") {
            tracing::info_span!(target: TARGET, $($fields)*)
        } else {
            Span::none()
        }
    };
}

/// A request, in the trace that its `traceparent` header names.
pub fn request(method: &'static str, route: &'static str, traceparent: Option<&str>) -> Span {
    let span = span!(
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
    );
    continue_trace(&span, traceparent);
    span
}

/// Records the status of a request's response.
pub fn responded(span: &Span, status: u16) {
    span.record("http.response.status_code", status);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
}

/// An attempt of a run, in the trace of the request that created it.
pub fn run(run: RunId, thread: ThreadId, attempt: i32, traceparent: Option<&str>) -> Span {
    let span = span!(
        "run",
        otel.kind = "consumer",
        otel.status_code = Empty,
        otel.status_description = Empty,
        run_id = %run,
        thread_id = %thread,
        attempt = attempt,
        status = Empty,
    );
    continue_trace(&span, traceparent);
    span
}

/// A superstep of the graph or of one inside it, in its run.
pub fn superstep(number: u32, namespace: &str) -> Span {
    span!(
        "superstep",
        superstep = number,
        checkpoint_ns = namespace,
        otel.status_code = Empty,
    )
}

/// A task, in its superstep.
pub fn task(node: &str, task: TaskId) -> Span {
    span!(
        "task",
        otel.name = format!("task {node}"),
        otel.status_code = Empty,
        otel.status_description = Empty,
        node = node,
        task_id = %task,
    )
}

/// A commit of a checkpoint or of tasks' results, until it is durable.
pub fn commit() -> Span {
    span!("commit", otel.status_code = Empty)
}

/// Records that what the span stands for has failed.
pub fn failed(span: &Span, error: &dyn std::fmt::Display) {
    if !span.is_disabled() {
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", error.to_string());
    }
}

/// The `traceparent` header of requests that are sent on behalf of the current span; `None` while
/// spans are not collected.
pub fn traceparent() -> Option<Arc<str>> {
    #[cfg(feature = "otel")]
    return propagation::traceparent();
    #[cfg(not(feature = "otel"))]
    None
}

#[cfg(not(feature = "otel"))]
fn continue_trace(_: &Span, _: Option<&str>) {}

#[cfg(feature = "otel")]
use propagation::continue_trace;

#[cfg(feature = "otel")]
mod propagation;
