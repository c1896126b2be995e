//! Where clients find a run: paths and the headers that name them.

use hyper::{
    HeaderMap,
    header::{CONTENT_LOCATION, HeaderName, HeaderValue, LOCATION},
};

use crate::{
    http::server::{Call, Error},
    id::ThreadId,
    runs::request::Target,
};

/// The run that the path of a request names.
pub fn target(call: &Call) -> Result<Target, Error> {
    Ok(Target {
        thread: call.path.thread()?,
        run: call.path.run()?,
    })
}

/// Path of a run; a stateless one has none of a thread.
pub fn path(thread: Option<ThreadId>, target: Target) -> String {
    match thread {
        Some(thread) => format!("/threads/{thread}/runs/{}", target.run),
        None => format!("/runs/{}", target.run),
    }
}

/// Names the run that a response is about.
pub fn put_run(headers: &mut HeaderMap, thread: Option<ThreadId>, run: Target) {
    put(headers, CONTENT_LOCATION, path(thread, run));
}

/// Names the run that a response streams, and where to come back to its stream.
pub fn put_stream(headers: &mut HeaderMap, path: &str) {
    put(headers, LOCATION, format!("{path}/stream"));
    put(headers, CONTENT_LOCATION, path);
}

/// Names the run that a response waits for, and where to wait again. The way back to a stateless
/// run leads through its temporary thread.
pub fn put_join(headers: &mut HeaderMap, run: Target) {
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
