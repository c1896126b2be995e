//! The events of a thread as server-sent events.

use std::{pin::Pin, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture};
use hyper::Response;

use super::subscription::Subscription;
use crate::{
    http::server::{Body, Call, Error, sse, withdrawal::until},
    id::ThreadId,
    stream::{FrameSource, write_frame},
    threads::{self, protocol::Next},
};

/// How long a stream is open for a text that is no id of a thread.
const WAIT: Duration = Duration::from_secs(600);

/// The last event for a client that fell too far behind.
const LAGGED: &[u8] =
    b"{\"error\":\"SlowReader\",\"message\":\"The stream was read too slowly and has \
been cut off. Come back for the rest.\"}";

/// The events as they are sent.
struct Frames(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

#[async_trait]
impl FrameSource for Frames {
    async fn next(&mut self) -> Option<Bytes> {
        self.0.next().await
    }
}

/// `POST /threads/{thread_id}/stream/events`
pub(in crate::http) async fn stream(mut call: Call) -> Result<Response<Body>, Error> {
    let body = call.json().await?;
    let subscription = Subscription::read(&body)?;
    let slot = call.stream_slot()?;
    let (frames, withdrawn): (_, BoxFuture<'static, ()>) = match call.path.thread() {
        Ok(thread) => frames(call.threads(), thread, subscription),
        Err(_) => {
            let none = futures::stream::once(tokio::time::sleep(WAIT));
            let none = none.filter_map(|()| std::future::ready(None::<Bytes>));
            (Frames(Box::pin(none)), std::future::pending().boxed())
        }
    };
    let response = sse::respond(&call, Box::new(frames), None, slot);
    Ok(until(response, withdrawn))
}

fn frames(
    threads: threads::Service,
    thread: ThreadId,
    subscription: Subscription,
) -> (Frames, BoxFuture<'static, ()>) {
    let Subscription { filter, since } = subscription;
    let (events, withdrawn) = threads.protocol_events(thread, filter.channels.clone());
    let frames = async_stream::stream! {
        let (mut events, mut since) = (events, since);
        events.knows(since);
        loop {
            match events.next().await {
                Next::Event(event) => {
                    if (event.seq > since || event.is_passing) && filter.admits(&event) {
                        let mut out = Vec::with_capacity(event.data.len() + 256);
                        event.write_frame(&mut out);
                        yield Bytes::from(out);
                    }
                }
                // The client was elsewhere before: what it has is none of these.
                Next::Replayed if events.is_ahead(since).await => {
                    since = 0;
                    events.restart();
                }
                Next::Replayed => {}
                Next::Lagged => {
                    let mut out = vec![];
                    write_frame(&mut out, "error", LAGGED, None);
                    yield Bytes::from(out);
                    return;
                }
                Next::Nothing => return,
            }
        }
    };
    (Frames(Box::pin(frames)), withdrawn.boxed())
}
