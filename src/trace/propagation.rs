//! Traces over the borders of processes, as W3C's Trace Context has it.

use std::{collections::HashMap, sync::Arc};

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: &str = "traceparent";

/// Makes the span part of the trace that the header names. A header that is none changes nothing.
pub(super) fn continue_trace(span: &Span, traceparent: Option<&str>) {
    let Some(header) = traceparent.filter(|_| !span.is_disabled()) else {
        return;
    };
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), header.to_owned())]);
    let parent = TraceContextPropagator::new().extract(&carrier);
    // It fails only where nobody collects the span.
    let _ = span.set_parent(parent);
}

/// The header that names the current span.
pub(super) fn traceparent() -> Option<Arc<str>> {
    let span = Span::current();
    if span.is_disabled() {
        return None;
    }
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    carrier.remove(TRACEPARENT).map(Into::into)
}
