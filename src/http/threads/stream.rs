//! The stream of everything that happens on a thread, of which only the checks are built.

use hyper::Response;

use crate::{
    http::{
        parse::fields,
        server::{body::Body, call::Call, error::Error},
    },
    threads::request::ThreadMode,
    value::Value,
};

/// `GET /threads/{thread_id}/stream`
pub(in crate::http) async fn watch(call: Call) -> Result<Response<Body>, Error> {
    call.path.thread()?;
    let query = &call.query;
    let texts = query.all("stream_modes").chain(query.all("stream_mode"));
    for word in texts.flat_map(|text| text.split(',')) {
        let word = Value::str(word);
        if word != "" && fields::pick(&word, ThreadMode::ALL).is_none() {
            let reason = fields::not_one_of(&word, ThreadMode::ALL);
            return Err(Error::invalid(format!("{reason}, in `stream_modes`")));
        }
    }
    if call.last_event_id().is_some_and(|id| !is_event_id(id)) {
        let detail = "Invalid last-event-id: must be `-` or the id of an event of this stream";
        return Err(Error::invalid(detail));
    }
    Err(Error::unsupported())
}

/// `-`, `-1`, a number, or two with a dash between.
fn is_event_id(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('-') {
        None => number(text),
        Some(("", rest)) => rest.is_empty() || rest == "1",
        Some((first, second)) => number(first) && number(second),
    }
}
