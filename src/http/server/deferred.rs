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
    body::{Body, BrokenOff},
    sse::{Departure, OnDisconnect},
    weigh::{SMALL, weighed},
};
use crate::{
    runs::shared::memory::{ReadMemory, ReadingMemory},
    value::Value,
};

/// What a deferred response sends, once it is known.
pub struct Ready {
    /// The value.
    pub value: Value,
    /// Its memory, and that of its JSON, if it was reserved before it was read.
    pub memory: Option<ReadingMemory>,
    /// The client is to come back for another one: the response breaks off in place of the value.
    pub breaks_off: bool,
}

impl From<Value> for Ready {
    fn from(value: Value) -> Self {
        Self {
            value,
            memory: None,
            breaks_off: false,
        }
    }
}

/// The response that sends `result` when it is there. The status is 200 from the start. A large one is
/// encoded once there is `memory` for it.
pub fn respond<R: Into<Ready> + Send + 'static>(
    mut result: BoxFuture<'static, R>,
    memory: ReadMemory,
    on_disconnect: Option<OnDisconnect>,
    heartbeat: Duration,
    guard: impl Send + 'static,
) -> Response<Body> {
    let mut departure = Departure::new(on_disconnect);
    let stream = async_stream::stream! {
        let _guard = guard;
        let mut beats = tokio::time::interval_at(Instant::now() + heartbeat, heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let beat = || Ok(Frame::data(Bytes::from_static(b"\n")));
        let ready = loop {
            tokio::select! {
                biased;
                ready = &mut result => break ready.into(),
                _ = beats.tick() => yield beat(),
            }
        };
        departure.ended();
        if ready.breaks_off {
            yield Err(BrokenOff);
            return;
        }
        let mut bytes = std::pin::pin!(encode(ready, memory));
        loop {
            tokio::select! {
                biased;
                bytes = &mut bytes => {
                    yield Ok(Frame::data(bytes));
                    return;
                }
                _ = beats.tick() => yield beat(),
            }
        }
    };
    let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The JSON of a value, once there is memory for it.
async fn encode(ready: Ready, memory: ReadMemory) -> Bytes {
    let (value, mut reserved) = (ready.value, ready.memory);
    let size = value.rough_size();
    if reserved.is_none() {
        reserved = Some(if size < SMALL {
            memory.charge(size).into()
        } else {
            memory.wait_for(size).await.into()
        });
    }
    let mut bytes = Vec::with_capacity(512);
    value.write_json(&mut bytes);
    match reserved {
        Some(reserved) => weighed(bytes, reserved),
        None => bytes.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{budget::Budget, value};

    fn memory(budget: &Arc<Budget>) -> ReadMemory {
        ReadMemory::new(budget.clone(), "ann".into(), &Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_value_waits_for_memory_and_has_it_until_it_is_read() {
        let budget = Budget::new(1 << 20);
        let other = budget.reserve(&"ann".into(), 500 << 10).unwrap();
        let result = std::future::ready(value!({"text": "x".repeat(100 << 10)}));
        let response = respond(
            Box::pin(result),
            memory(&budget),
            None,
            Duration::from_secs(5),
            (),
        );
        let mut body = response.into_body();
        let beat = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(beat, "\n");
        drop(other);
        let bytes = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(bytes.len() > 100 << 10);
        assert!(budget.reserved() > 100 << 10);
        drop(bytes);
        assert_eq!(budget.reserved(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn line_breaks_precede_a_late_value() {
        let result = async {
            tokio::time::sleep(Duration::from_secs(12)).await;
            value!({"a": 1})
        };
        let memory = memory(&Budget::new(1 << 20));
        let response = respond(Box::pin(result), memory, None, Duration::from_secs(5), ());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"\n\n{\"a\":1}");
    }
}
