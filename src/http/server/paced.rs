//! Bodies of requests that go to routes of the program: bounded in time and memory as those that the server
//! reads itself.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::bodies::{BoxError, RequestBody};
use crate::budget::Reservation;

/// A body that fails once it comes too slowly, or takes more memory than there is.
pub struct Paced {
    body: RequestBody,
    begin: Instant,
    /// How long it may take before it must have come at a certain rate.
    grace: Duration,
    bytes_per_second: f64,
    deadline: Pin<Box<Sleep>>,
    read: usize,
    /// Of all that came: what becomes of it is not known here.
    memory: Reservation,
}

impl Paced {
    /// The body, which may take `grace` and then must have come at so many bytes a second. Its bytes are added
    /// to `memory`.
    pub fn new(
        body: RequestBody,
        grace: Duration,
        bytes_per_second: f64,
        memory: Reservation,
    ) -> Self {
        let begin = Instant::now();
        Self {
            body,
            begin,
            grace,
            bytes_per_second,
            deadline: Box::pin(tokio::time::sleep_until(begin + grace)),
            read: 0,
            memory,
        }
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.read += frame.data_ref().map_or(0, Bytes::len);
                if this.memory.resize(this.read).is_err() {
                    let detail = "too many large requests are being read: try again later";
                    return Poll::Ready(Some(Err(detail.into())));
                }
                let time = Duration::from_secs_f64(this.read as f64 / this.bytes_per_second);
                this.deadline.as_mut().reset(this.begin + this.grace + time);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Pending => {
                std::task::ready!(this.deadline.as_mut().poll(cx));
                Poll::Ready(Some(Err("the request body came too slowly".into())))
            }
            ended => ended,
        }
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
    use futures::StreamExt;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;
    use crate::budget::Budget;

    /// A body of which 1,000 bytes come each `pause`.
    fn body(pause: Duration) -> RequestBody {
        let frames = futures::stream::unfold((), move |()| async move {
            tokio::time::sleep(pause).await;
            let frame = Frame::data(Bytes::from(vec![0; 1000]));
            Some((Ok::<_, std::convert::Infallible>(frame), ()))
        });
        RequestBody::new(StreamBody::new(frames.take(100)))
    }

    fn paced(pause: Duration, memory: usize) -> Paced {
        let budget = Budget::new(memory);
        let memory = budget.reserve(&"ann".into(), 0).unwrap();
        Paced::new(body(pause), Duration::from_secs(30), 1000.0, memory)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_keeps_its_pace_is_read_to_its_end() {
        let read = paced(Duration::from_millis(900), 1 << 20).collect().await;
        assert_eq!(read.unwrap().to_bytes().len(), 100_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_too_slowly_fails() {
        let begin = Instant::now();
        let read = paced(Duration::from_secs(20), 1 << 20).collect().await;
        assert_eq!(
            read.unwrap_err().to_string(),
            "the request body came too slowly"
        );
        assert_eq!(begin.elapsed(), Duration::from_secs(31));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_memory_for_it_fails() {
        let read = paced(Duration::from_millis(1), 100_000).collect().await;
        assert!(read.unwrap_err().to_string().contains("try again later"));
    }
}
