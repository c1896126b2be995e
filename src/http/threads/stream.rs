//! The stream of everything that happens on a thread.

use hyper::Response;

use crate::{
    http::{
        parse::{fields, params::Query},
        server::{body::Body, call::Call, error::Error, sse, withdrawal::until},
    },
    stream::SinceThread,
    threads::request::ThreadMode,
    value::Value,
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
    let heartbeat = call.shared.options.heartbeat;
    let memory = call.runs().stream_memory().clone();
    let cut = call.shared.cut.clone();
    let response = sse::respond(frames, None, heartbeat, memory, cut, slot);
    Ok(until(response, withdrawn))
}

/// The modes, repeated or separated by commas, under both names that clients use.
fn modes(query: &Query) -> Result<Vec<ThreadMode>, Error> {
    let texts = query.all("stream_modes").chain(query.all("stream_mode"));
    let mut modes = vec![];
    for word in texts.flat_map(|text| text.split(',')).map(str::trim) {
        if word.is_empty() {
            continue;
        }
        let word = Value::str(word);
        let mode = fields::pick(&word, ThreadMode::ALL).ok_or_else(|| {
            let reason = fields::not_one_of(&word, ThreadMode::ALL);
            Error::invalid(format!("{reason}, in `stream_modes`"))
        })?;
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    if modes.is_empty() {
        modes.push(ThreadMode::RunModes);
    }
    Ok(modes)
}
