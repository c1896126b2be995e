//! Responses whose value comes later: a line break every few seconds keeps proxies and clients
//! from closing the connection, and whitespace before a JSON text is legal.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Response,
    body::Frame,
    header::{CONTENT_TYPE, HeaderValue},
};
use tokio::time::{Instant, MissedTickBehavior};

use super::{
    body::Body,
    sse::{Departure, OnDisconnect},
};
use crate::value::Value;

/// The response that sends `result` when it is there. The status is 200 from the start.
pub fn respond(
    mut result: BoxFuture<'static, Value>,
    on_disconnect: Option<OnDisconnect>,
    heartbeat: Duration,
    guard: impl Send + 'static,
) -> Response<Body> {
    let mut departure = Departure::new(on_disconnect);
    let stream = async_stream::stream! {
        let _guard = guard;
        let mut beats = tokio::time::interval_at(Instant::now() + heartbeat, heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                value = &mut result => {
                    departure.ended();
                    let mut bytes = Vec::with_capacity(512);
                    value.write_json(&mut bytes);
                    yield Ok(Frame::data(Bytes::from(bytes)));
                    return;
                }
                _ = beats.tick() => yield Ok(Frame::data(Bytes::from_static(b"\n"))),
            }
        }
    };
    let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[tokio::test(start_paused = true)]
    async fn line_breaks_precede_a_late_value() {
        let result = async {
            tokio::time::sleep(Duration::from_secs(12)).await;
            value!({"a": 1})
        };
        let response = respond(Box::pin(result), None, Duration::from_secs(5), ());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"\n\n{\"a\":1}");
    }
}
