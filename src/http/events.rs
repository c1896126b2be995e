//! The event log of threads, as pages and as a stream, and the tables derived from it.

use async_trait::async_trait;
use bytes::Bytes;
use hyper::{HeaderMap, Response, StatusCode, header::ACCEPT};
use tokio::sync::mpsc;

use super::{
    parse::fields::Fields,
    server::{Body, Call, Error, body, sse, withdrawal::until_withdrawn},
};
use crate::{
    id::ThreadId,
    stream::{FrameSource, write_frame},
    threads::events::{Range, ShownEvent},
    tree::projection::Projection,
    value::{Map, Value},
};

/// Events of a page whose request has no limit.
const LIMIT_DEFAULT: i64 = 100;
/// Most events of a page.
const LIMIT_MAX: i64 = 1000;

/// `GET /threads/{thread_id}/events`
pub(super) async fn list(call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let after = number(call.query.get("after"), "after")?;
    let inherited = call.query.flag("inherited")?;
    let limit = call.query.limit(LIMIT_DEFAULT, LIMIT_MAX)?;
    if wants_stream(&call.headers) {
        let last = number(last_event_id(&call)?, "Last-Event-ID")?;
        let after = last.or(after).unwrap_or(0);
        let slot = call.stream_slot()?;
        let events = call.threads().follow(thread, after, inherited).await?;
        let watch = call.runs().watch_access(&call.access, thread);
        let frames = Box::new(Frames(events));
        let response = sse::respond(&call, frames, None, slot);
        return Ok(until_withdrawn(response, watch));
    }
    let range = Range {
        after: after.unwrap_or(0),
        limit,
        bytes: call.shared.options.page_bytes,
        inherited,
    };
    let page = call.threads().events(thread, range).await?;
    let events = page.events.iter().map(to_value);
    let response = Map::from([
        ("events", Value::list(events.collect())),
        ("next", page.next.into()),
    ]);
    Ok(body::json(StatusCode::OK, &Value::map(response)))
}

/// `POST /admin/projections/rebuild`
pub(super) async fn rebuild(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json_or_nothing().await?;
    let fields = Fields::of(&body)?;
    let projection = fields.word("projection", &words())?;
    let thread = fields
        .text("thread_id")?
        .map(|text| text.parse::<ThreadId>());
    let thread = thread
        .transpose()
        .map_err(|_| fields.refuse("thread_id", "Invalid thread ID: must be a UUID"))?;
    let wanted: &[Projection] = match &projection {
        Some(one) => one.as_slice(),
        None => &Projection::ALL,
    };
    call.threads().rebuild(wanted, thread).await?;
    let names = wanted.iter();
    let response = Map::from([
        (
            "projections",
            Value::list(names.map(|one| one.as_str().into()).collect()),
        ),
        ("thread_id", thread.map(|id| id.to_string()).into()),
    ]);
    Ok(body::json(StatusCode::ACCEPTED, &Value::map(response)))
}

/// Tables that there were once: a request to derive one of them anew has nothing to do.
const FORMER: [&str; 3] = ["fork_index", "search", "thread_timeline"];

fn words() -> Vec<(&'static str, Option<Projection>)> {
    let all = Projection::ALL.iter();
    let all = all.map(|one| (one.as_str(), Some(*one)));
    all.chain(FORMER.map(|name| (name, None))).collect()
}

/// Whether the client prefers a stream to a page.
fn wants_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(ACCEPT).iter();
    let kinds = accept.filter_map(|value| value.to_str().ok());
    let (mut stream, mut page) = (0.0, 0.0);
    for kind in kinds.flat_map(|kinds| kinds.split(',')) {
        let mut parts = kind.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| {
            let (key, value) = part.split_once('=')?;
            key.trim()
                .eq_ignore_ascii_case("q")
                .then(|| value.trim().parse::<f32>().ok())?
        });
        let quality = quality.unwrap_or(1.0);
        if name.eq_ignore_ascii_case("text/event-stream") {
            stream = quality.max(stream);
        } else if name.eq_ignore_ascii_case("application/json") {
            page = quality.max(page);
        }
    }
    stream > 0.0 && stream >= page
}

/// The header `Last-Event-ID`, which must be a text.
fn last_event_id(call: &Call) -> Result<Option<&str>, Error> {
    match call.headers.get("last-event-id") {
        None => Ok(None),
        Some(value) => {
            let text = value.to_str().ok();
            text.map(Some)
                .ok_or_else(|| Error::invalid("Invalid Last-Event-ID: must be an event number"))
        }
    }
}

/// The number of an event, or the one before the first.
fn number(text: Option<&str>, name: &str) -> Result<Option<i64>, Error> {
    let Some(text) = text else {
        return Ok(None);
    };
    let number = text.trim().parse().ok().filter(|number| *number >= 0);
    number
        .map(Some)
        .ok_or_else(|| Error::invalid(format!("Invalid {name} {text}: must be an event number")))
}

/// An event in the form clients see.
fn to_value(event: &ShownEvent) -> Value {
    let text = |text: &Option<std::sync::Arc<str>>| Value::from(text.clone().map(Value::Str));
    Value::map(Map::from([
        ("event_number", event.number.into()),
        ("event_id", event.id.to_string().into()),
        ("event_type", Value::Str(event.kind.clone())),
        ("thread_id", event.thread.to_string().into()),
        ("branch", text(&event.branch)),
        (
            "checkpoint_id",
            event.checkpoint.map(|id| id.to_string()).into(),
        ),
        ("message_id", text(&event.message_id)),
        ("payload", Value::map(event.payload.clone())),
        ("created_at", event.created_at.to_string().into()),
    ]))
}

/// The frames of events as they come.
struct Frames(mpsc::Receiver<ShownEvent>);

#[async_trait]
impl FrameSource for Frames {
    async fn next(&mut self) -> Option<Bytes> {
        let event = self.0.recv().await?;
        let mut bytes = Vec::with_capacity(512);
        let mut data = Vec::with_capacity(512);
        to_value(&event).write_json(&mut data);
        let id = event.number.unsigned_abs();
        write_frame(&mut bytes, &event.kind, &data, Some(id));
        Some(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn a_stream_is_given_to_who_would_rather_have_it() {
        for (accept, stream) in [
            ("text/event-stream", true),
            ("TEXT/EVENT-STREAM", true),
            ("application/json, text/event-stream", true),
            ("*/*, text/event-stream; q=0.1", true),
            ("text/event-stream;q=0.5, application/json", false),
            ("text/event-stream;q=0.5, application/json;q=0.4", true),
            ("text/event-stream;Q=0", false),
            ("text/event-streams", false),
            ("*/*", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(wants_stream(&headers), stream, "{accept}");
        }
    }
}
