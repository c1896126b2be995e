//! A connection's socket: it fails when the client takes nothing for too long, and tells when the client has left.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::connection::Activity;

/// A socket that fails when the client reads nothing for too long while the server writes.
pub struct Socket {
    stream: Arc<Mutex<TcpStream>>,
    activity: Arc<Activity>,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    /// That of a connection, which fails after `limit`.
    pub fn new(stream: TcpStream, activity: Arc<Activity>, limit: Duration) -> Self {
        Self {
            stream: Arc::new(Mutex::new(stream)),
            activity,
            limit,
            stalled: None,
        }
    }

    /// What tells whether its client has left.
    pub fn client(&self) -> Client {
        Client(self.stream.clone())
    }

    fn with<T>(
        &mut self,
        act: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        act(Pin::new(&mut *self.stream.lock()))
    }

    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.with(|stream| stream.poll_read(cx, buf)))?;
        if buf.filled().len() > before {
            self.activity.bytes_came();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = self.with(|stream| stream.poll_write(cx, buf));
        self.watch(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = self.with(|stream| stream.poll_write_vectored(cx, bufs));
        self.watch(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.lock().is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }
}

/// The client at the other end of a socket.
pub struct Client(Arc<Mutex<TcpStream>>);

impl Client {
    /// Whether it sends nothing more. hyper notices that while it reads, and it does not read while the next request is
    /// in its buffer. The task that reads the socket has to ask, because a socket wakes the last one that wants to read.
    ///
    /// Where something is left to read, nothing wakes the task when the client leaves: it has to ask again by itself.
    pub fn has_left(&self, cx: &mut Context<'_>) -> bool {
        let stream = self.0.lock();
        if stream.poll_read_ready(cx).is_pending() {
            return false;
        }
        let readiness = stream.ready(Interest::READABLE).now_or_never();
        readiness.is_some_and(|found| found.is_ok_and(|found| found.is_read_closed()))
    }
}
