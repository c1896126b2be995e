//! Responses that break off when their client's access to the thread is withdrawn.

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Response,
    body::{Body as _, Frame},
    header::CONTENT_TYPE,
};

use super::body::{Body, BrokenOff};
use crate::runs::shared::AccessWatch;

/// What a stream of events ends with.
const EVENT: &[u8] = b"event: error\r\ndata: {\"error\":\"permission_denied\",\
\"message\":\"Your access to this thread was withdrawn\"}\r\n\r\n";

/// The response until `watch` tells that the client may not read the thread any more. Its body then
/// breaks off unfinished, so that nobody takes it for the whole. One that is there already is sent as
/// it is, with its size.
pub fn until_withdrawn(response: Response<Body>, watch: Option<AccessWatch>) -> Response<Body> {
    let is_there = response.body().size_hint().exact().is_some();
    let Some(watch) = watch.filter(|_| !is_there) else {
        return response;
    };
    until(response, async move { watch.withdrawn().await })
}

/// The response until `withdrawn` is ready, which means that the client may not read the thread any
/// more.
pub fn until(
    response: Response<Body>,
    withdrawn: impl Future<Output = ()> + Send + 'static,
) -> Response<Body> {
    let kind = response.headers().get(CONTENT_TYPE);
    let shows_events = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    response.map(|mut body| {
        let stream = async_stream::stream! {
            let mut withdrawn = std::pin::pin!(withdrawn);
            loop {
                tokio::select! {
                    biased;
                    () = &mut withdrawn => {
                        if shows_events {
                            yield Ok(Frame::data(Bytes::from_static(EVENT)));
                        }
                        yield Err(BrokenOff);
                        return;
                    }
                    frame = body.frame() => match frame {
                        Some(frame) => yield frame,
                        None => return,
                    },
                }
            }
        };
        StreamBody::new(stream).boxed_unsync()
    })
}
