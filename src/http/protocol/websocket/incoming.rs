//! What a client sends over a WebSocket before a message of it is whole: bounded in time and memory, as the bodies of
//! requests are.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use crate::{budget::Reservation, http::server::request_body::Limits};

/// The head of a control frame of a client: two bytes, and its mask.
const CONTROL_HEAD: usize = 6;
/// Memory that a byte of a message takes: the buffer of its parts grows by doubling.
const MEMORY_PER_BYTE: usize = 2;

/// A connection that fails once the message which is being read comes too slowly, or takes more memory than there is.
pub(super) struct Incoming<S> {
    connection: S,
    limits: Limits,
    /// Bytes of the message.
    read: usize,
    begin: Instant,
    deadline: Pin<Box<Sleep>>,
    /// For the message, since it began.
    memory: Option<Reservation>,
}

impl<S> Incoming<S> {
    pub fn new(connection: S, limits: Limits) -> Self {
        let begin = Instant::now();
        Self {
            connection,
            limits,
            read: 0,
            begin,
            deadline: Box::pin(sleep_until(begin)),
            memory: None,
        }
    }

    /// The message is whole, and nobody has it any more.
    pub fn message_ended(&mut self) {
        self.read = 0;
        self.memory = None;
    }

    /// A ping or pong with so many bytes came, between or in the middle of messages: it neither counts nor gives time.
    pub fn control_ended(&mut self, bytes: usize) {
        self.read = self.read.saturating_sub(CONTROL_HEAD + bytes);
        if self.read == 0 {
            self.memory = None;
        }
    }

    fn count(&mut self, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        if self.read == 0 {
            self.begin = Instant::now();
        }
        self.read += bytes;
        let time = Duration::from_secs_f64(self.read as f64 / self.limits.pace as f64);
        let deadline = self.begin + self.limits.grace + time;
        self.deadline.as_mut().reset(deadline);
        let (most, Limits { budget, payer, .. }) = (self.read * MEMORY_PER_BYTE, &self.limits);
        let reserved = match &mut self.memory {
            Some(memory) => memory.resize(most),
            None => budget
                .reserve(payer, most)
                .map(|memory| self.memory = Some(memory)),
        };
        reserved.map_err(|_| io::ErrorKind::OutOfMemory.into())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Incoming<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.connection).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(this.count(buffer.filled().len() - before)),
            Poll::Pending if this.read > 0 => {
                ready!(this.deadline.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Incoming<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::budget::Budget;

    /// A connection that may take 30 seconds and one for each 100 bytes.
    fn incoming() -> (DuplexStream, Incoming<DuplexStream>) {
        let (client, server) = duplex(16_384);
        let limits = Limits {
            grace: Duration::from_secs(30),
            pace: 100,
            values: 100,
            budget: Budget::new(10_000),
            payer: "ann".into(),
        };
        (client, Incoming::new(server, limits))
    }

    async fn read(incoming: &mut Incoming<DuplexStream>) -> io::Result<usize> {
        incoming.read(&mut [0; 4096]).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_does_not_end_fails_after_its_time_whatever_comes_in_between() {
        let (mut client, mut incoming) = incoming();
        let begin = Instant::now();
        client.write_all(&[1; 500]).await.unwrap();
        assert_eq!(read(&mut incoming).await.unwrap(), 500);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            client.write_all(&[9; 10]).await.unwrap();
            assert_eq!(read(&mut incoming).await.unwrap(), 10);
            incoming.control_ended(4);
        }
        let failed = read(&mut incoming).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begin.elapsed().as_secs(), 35);
    }

    #[tokio::test(start_paused = true)]
    async fn between_messages_a_client_may_be_silent_for_ever() {
        let (mut client, mut incoming) = incoming();
        for _ in 0..5 {
            client.write_all(&[1; 900]).await.unwrap();
            read(&mut incoming).await.unwrap();
            incoming.message_ended();
            client.write_all(&[9; 6]).await.unwrap();
            read(&mut incoming).await.unwrap();
            incoming.control_ended(0);
            assert_eq!(incoming.limits.budget.reserved(), 0);
            let day = Duration::from_secs(86_400);
            assert!(
                tokio::time::timeout(day, read(&mut incoming))
                    .await
                    .is_err()
            );
        }
    }

    #[tokio::test]
    async fn a_message_that_takes_more_memory_than_there_is_fails() {
        let (mut client, mut incoming) = incoming();
        let budget = incoming.limits.budget.clone();
        let most = budget.share() / MEMORY_PER_BYTE;
        client.write_all(&vec![1; most]).await.unwrap();
        while incoming.read < most {
            read(&mut incoming).await.unwrap();
        }
        assert_eq!(budget.reserved(), most * MEMORY_PER_BYTE);
        client.write_all(&[1]).await.unwrap();
        let failed = read(&mut incoming).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::OutOfMemory);
        drop(incoming);
        assert_eq!(budget.reserved(), 0);
    }
}
