//! Deadlines by which clients must take what is written to them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    body::{Body as _, Frame, SizeHint},
    rt::Executor,
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::{
    body::{Body, BrokenOff},
    connection::Busy,
};

/// Most bytes that are handed to the connection at once, so that what waits for the client is known.
const PIECE: usize = 16 << 10;

tokio::task_local! {
    /// That of the HTTP/2 stream that a task serves.
    static STREAM: Arc<Progress>;
}

/// How slowly a client may take a response.
#[derive(Clone, Copy, Debug)]
pub struct Slowest {
    /// How long it may take nothing.
    pub stall: Duration,
    /// Bytes a second of a whole response of known size, and of each large part of another one, once that time is over.
    pub pace: usize,
}

impl Slowest {
    /// The longest that so many bytes may take.
    fn time(self, bytes: u64) -> Duration {
        self.stall + Duration::from_secs_f64(bytes as f64 / self.pace.max(1) as f64)
    }
}

/// By when the client of a response must take more of it.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Option<Instant>>);

impl Progress {
    /// That of the HTTP/2 stream that the current task serves.
    pub fn of_stream() -> Option<Arc<Self>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// The deadline; `None` while the server has nothing to write.
    pub fn deadline(&self) -> Option<Instant> {
        *self.0.lock()
    }

    fn set(&self, deadline: Option<Instant>) {
        *self.0.lock() = deadline;
    }

    /// Waits until a deadline was missed.
    pub async fn overdue(&self, limit: Duration) {
        loop {
            let now = Instant::now();
            match self.deadline() {
                Some(deadline) if deadline <= now => return,
                Some(deadline) => sleep_until(deadline).await,
                // No deadline that is set meanwhile is earlier.
                None => sleep_until(now + limit).await,
            }
        }
    }
}

/// Serves each HTTP/2 stream on a task of its own, and resets it when its client takes nothing for too
/// long: with a window of zero it would stay for ever, and not stall the others of its connection.
#[derive(Clone, Copy, Debug)]
pub struct StreamExecutor {
    /// How long a client may take nothing.
    pub limit: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let limit = self.limit;
        tokio::spawn(async move {
            let progress = Arc::new(Progress::default());
            tokio::select! {
                () = STREAM.scope(progress.clone(), stream) => {}
                // Dropped, the stream is reset.
                () = progress.overdue(limit) => {}
            }
        });
    }
}

/// The body of a response; its request is in progress until the body is written or dropped.
pub struct Guarded {
    body: Body,
    /// What is left of a frame.
    rest: Bytes,
    progress: Arc<Progress>,
    slowest: Slowest,
    /// When all of a body of known size must have been taken, and of others the frame that is being sent: others may
    /// wait for the memory that it has.
    end: Option<Instant>,
    has_size: bool,
    _busy: Busy,
}

impl Guarded {
    pub fn new(body: Body, busy: Busy, progress: Arc<Progress>, slowest: Slowest) -> Self {
        let size = body.size_hint().exact();
        let guarded = Self {
            end: size.map(|size| Instant::now() + slowest.time(size)),
            has_size: size.is_some(),
            body,
            rest: Bytes::new(),
            progress,
            slowest,
            _busy: busy,
        };
        guarded.wait_for_client();
        guarded
    }

    fn wait_for_client(&self) {
        let next = Instant::now() + self.slowest.stall;
        let deadline = self.end.map_or(next, |end| end.min(next));
        self.progress.set(Some(deadline));
    }

    fn piece(&mut self, mut data: Bytes) -> Frame<Bytes> {
        if data.len() > PIECE {
            self.rest = data.split_off(PIECE);
        }
        self.wait_for_client();
        Frame::data(data)
    }

    fn begin(&mut self, data: Bytes) -> Frame<Bytes> {
        if !self.has_size {
            let is_large = data.len() > PIECE;
            self.end = is_large.then(|| Instant::now() + self.slowest.time(data.len() as u64));
        }
        self.piece(data)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.progress.set(None);
    }
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(self.piece(rest))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            // Nothing was written that the client could take.
            self.progress.set(None);
            return Poll::Pending;
        };
        let frame = frame.map(|frame| {
            frame.map(|frame| match frame.into_data() {
                Ok(data) => self.begin(data),
                Err(frame) => frame,
            })
        });
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() {
            self.body.size_hint()
        } else {
            SizeHint::default()
        }
    }
}
