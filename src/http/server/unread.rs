//! What clients may send of bodies over HTTP/2 before anybody reads them: it stays in the windows of their connections,
//! which take memory as long as there are such bodies. Over HTTP/1 it fits the buffer of a connection.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    Request, Version,
    body::{Body as HttpBody, Frame, SizeHint},
};
use parking_lot::Mutex;

use super::{
    bodies::{BoxError, RequestBody},
    error::Error,
};
use crate::budget::{Budget, Refusal, Reservation};

/// What a client may send of one body before it is read.
pub const STREAM_WINDOW: u32 = 128 << 10;
/// The same of all bodies of one connection.
pub const CONNECTION_WINDOW: u32 = 256 << 10;

/// The bodies of one connection that are not read yet.
#[derive(Debug)]
pub struct UnreadBodies {
    budget: Arc<Budget>,
    payer: Arc<str>,
    expected: Mutex<Expected>,
}

#[derive(Debug, Default)]
struct Expected {
    /// How many bytes they may have together, were the connection without a window.
    bytes: usize,
    memory: Option<Reservation>,
}

impl UnreadBodies {
    /// Those of a connection whose memory is this payer's.
    pub fn new(budget: Arc<Budget>, payer: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            budget,
            payer,
            expected: Mutex::default(),
        })
    }

    /// The same request, whose body takes memory until somebody begins to read it, who takes memory for what comes, or
    /// until it is not wanted any more.
    ///
    /// # Errors
    /// 503: there is not enough left.
    pub fn expect(
        self: &Arc<Self>,
        request: Request<RequestBody>,
    ) -> Result<Request<RequestBody>, Error> {
        let body = request.body();
        if request.version() != Version::HTTP_2 || body.is_end_stream() {
            return Ok(request);
        }
        let window = STREAM_WINDOW as usize;
        let length = body.size_hint().upper();
        let bytes = length.map_or(window, |length| {
            usize::try_from(length).map_or(window, |length| length.min(window))
        });
        self.change(|expected| expected + bytes).map_err(|_| {
            Error::unavailable("Too many request bodies are being read. Try again later.")
        })?;
        let part = Part {
            of: self.clone(),
            bytes,
        };
        Ok(request.map(|body| {
            RequestBody::new(Counted {
                body,
                part: Some(part),
            })
        }))
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) -> Result<(), Refusal> {
        let mut expected = self.expected.lock();
        let bytes = change(expected.bytes);
        let taken = bytes.min(CONNECTION_WINDOW as usize);
        match &mut expected.memory {
            Some(memory) => memory.resize(taken)?,
            none => *none = Some(self.budget.reserve(&self.payer, taken)?),
        }
        expected.bytes = bytes;
        Ok(())
    }
}

/// What one body may have of the bytes of its connection.
struct Part {
    of: Arc<UnreadBodies>,
    bytes: usize,
}

impl Drop for Part {
    fn drop(&mut self) {
        // Less is never refused.
        self.of.change(|expected| expected - self.bytes).ok();
    }
}

/// A body that takes memory until it is read.
struct Counted {
    body: RequestBody,
    part: Option<Part>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.part = None;
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    fn request(version: Version, body: RequestBody) -> Request<RequestBody> {
        let request = Request::builder().version(version).body(body);
        request.unwrap()
    }

    /// A body of so many bytes.
    fn body(bytes: usize) -> RequestBody {
        RequestBody::new(Full::new(Bytes::from(vec![0; bytes])))
    }

    #[tokio::test]
    async fn bodies_of_a_connection_take_its_window_until_they_are_read_or_dropped() {
        let budget = Budget::new(2 << 20);
        let unread = UnreadBodies::new(budget.clone(), "ann".into());
        let expect = |body| unread.expect(request(Version::HTTP_2, body));
        let small = expect(body(1000)).unwrap();
        assert_eq!(budget.reserved(), 1000);
        let unknown = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, BoxError>>());
        let unknown = expect(RequestBody::new(unknown)).unwrap();
        assert_eq!(budget.reserved(), 1000 + (128 << 10));
        let large: Vec<_> = (0..3).map(|_| expect(body(1 << 20)).unwrap()).collect();
        assert_eq!(budget.reserved(), 256 << 10, "the connection has no more");
        for large in large {
            large.into_body().collect().await.unwrap();
        }
        assert_eq!(budget.reserved(), 1000 + (128 << 10));
        drop(unknown);
        assert_eq!(budget.reserved(), 1000);
        small.into_body().collect().await.unwrap();
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn a_body_without_memory_is_refused_and_those_of_http_1_take_none() {
        let budget = Budget::new(256 << 10);
        let unread = UnreadBodies::new(budget.clone(), "ann".into());
        let first = unread.expect(request(Version::HTTP_2, body(1 << 20)));
        let second = unread.expect(request(Version::HTTP_2, body(1 << 20)));
        assert_eq!(second.unwrap_err().status, 503);
        assert_eq!(budget.reserved(), 128 << 10);
        for others in [
            request(Version::HTTP_11, body(1 << 20)),
            request(Version::HTTP_2, RequestBody::empty()),
        ] {
            unread.expect(others).unwrap();
        }
        drop(first);
        assert_eq!(budget.reserved(), 0);
    }
}
