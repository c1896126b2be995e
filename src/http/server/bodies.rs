//! The bodies that cross the border to services and routes of other programs.

use std::{
    error::Error as StdError,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited, combinators::UnsyncBoxBody};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

use super::{
    arrivals::{Arrival, Arrivals},
    body::{Body, BrokenOff},
};

/// What the body of a request may fail with.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The body of a request, whichever server has read its head.
///
/// Requests are shared between threads and the bodies of other servers need not be, hence the mutex.
pub struct RequestBody(Mutex<UnsyncBoxBody<Bytes, BoxError>>);

impl RequestBody {
    /// Any body, such as that of a request of another HTTP server.
    pub fn new<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Mutex::new(body.map_err(Into::into).boxed_unsync()))
    }

    /// That of a request on a connection that wants to know how long it comes.
    pub(in crate::http) fn arriving(body: Incoming, arrivals: &Arc<Arrivals>) -> Self {
        if body.is_end_stream() {
            return Self::new(body);
        }
        let arrival = Some(arrivals.begin());
        Self::new(Arriving { body, arrival })
    }

    /// A body without a byte.
    pub(in crate::http) fn empty() -> Self {
        Self::new(Empty::new())
    }

    /// The same body, which fails once more than `limit` bytes of it have come.
    pub(in crate::http) fn limited(self, limit: usize) -> Self {
        Self::new(Limited::new(self, limit))
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(self.0.get_mut()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}

/// A body, and that it comes until somebody has read it to its end.
struct Arriving {
    body: Incoming,
    arrival: Option<Arrival>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let is_over = frame.is_none() || self.body.is_end_stream();
        if let Some(arrival) = self.arrival.take_if(|_| is_over) {
            arrival.end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response of this server.
pub struct ResponseBody(Body);

impl ResponseBody {
    pub(in crate::http) fn of(body: Body) -> Self {
        Self(body)
    }

    /// The body of a response of another program, as this server sends it.
    pub(in crate::http) fn foreign<B>(body: B) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let failed = |error: B::Error| {
            let error: BoxError = error.into();
            tracing::debug!(error, "the body of a response broke off");
            BrokenOff
        };
        body.map_err(failed).boxed_unsync()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.0).poll_frame(cx);
        frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
