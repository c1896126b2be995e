//! The stream of everything that happens on a thread.

use hyper::Response;

use crate::{
    http::{
        parse::params::Query,
        server::{Body, Call, Error, sse, withdrawal::until},
    },
    stream::SinceThread,
    threads::request::ThreadMode,
};

/// `GET /threads/{thread_id}/stream`
pub(in crate::http) async fn watch(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let modes = modes(&call.query)?;
    let since = match call.headers.get("last-event-id") {
        None => SinceThread::last_event_id(None),
        Some(id) => SinceThread::last_event_id(Some(id.to_str().unwrap_or_default())),
    };
    let since = since.map_err(|_| {
        Error::invalid("Invalid last-event-id: must be `-` or the id of an event of this stream")
    })?;
    let slot = call.stream_slot()?;
    let (frames, withdrawn) = call.threads().watch(thread, since, modes).await?;
    let response = sse::respond(&call, frames, None, slot);
    Ok(until(response, withdrawn))
}

/// The modes, under both names that clients use.
fn modes(query: &Query) -> Result<Vec<ThreadMode>, Error> {
    let mut modes = query.pick_all(&["stream_modes", "stream_mode"], ThreadMode::ALL)?;
    if modes.is_empty() {
        modes.push(ThreadMode::RunModes);
    }
    Ok(modes)
}
