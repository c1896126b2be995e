//! What bounds a reply of a model: its size, and how long the model may be silent.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use tokio::time::Instant;

use super::Error;
use crate::{message::AiChunk, value::Value};

/// How long a model may be silent by default: some think for minutes.
const SILENCE: Duration = Duration::from_secs(300);
/// Most bytes of a reply by default.
const REPLY: usize = 10 << 20;
/// What a piece of a call counts besides its texts: without any it would take memory and cost nothing.
const CALL: usize = 16;

/// Bounds of each reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub silence: Duration,
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            silence: SILENCE,
            bytes: REPLY,
        }
    }
}

impl Limits {
    /// Waits for a step of the model at `at`, such as its next event, as long as it may be silent.
    pub async fn within<T>(
        &self,
        at: &str,
        step: impl Future<Output = T> + Send,
    ) -> Result<T, Error> {
        let step = tokio::time::timeout(self.silence, step).await;
        step.map_err(|_| self.silent(at))
    }

    fn silent(&self, at: &str) -> Error {
        Error::Silent {
            at: at.to_owned(),
            seconds: self.silence.as_secs(),
        }
    }

    /// The silence that begins now.
    pub fn silence(&self) -> Silence {
        Silence {
            limits: *self,
            begin: Instant::now(),
        }
    }

    /// A count of the bytes of one reply.
    pub fn meter(&self, at: Arc<str>) -> Meter {
        Meter {
            at,
            most: self.bytes,
            used: 0,
        }
    }
}

/// How long the model has been silent. Only pieces of its reply end that: some servers send events without any for
/// as long as the connection lasts.
pub(super) struct Silence {
    limits: Limits,
    begin: Instant,
}

impl Silence {
    /// The next event of the reply.
    pub async fn next<S: Stream + Unpin + Send>(
        &self,
        at: &str,
        events: &mut S,
    ) -> Result<Option<S::Item>, Error> {
        let rest = self.limits.silence.saturating_sub(self.begin.elapsed());
        if rest.is_zero() {
            // A timeout takes an event that is there already, however late it is.
            return Err(self.limits.silent(at));
        }
        let event = tokio::time::timeout(rest, events.next()).await;
        event.map_err(|_| self.limits.silent(at))
    }

    /// A piece came, and was taken: the next silence begins now.
    pub fn end(&mut self) {
        self.begin = Instant::now();
    }
}

/// The bytes of a reply so far.
pub(super) struct Meter {
    at: Arc<str>,
    most: usize,
    used: usize,
}

impl Meter {
    /// Counts a piece.
    ///
    /// # Errors
    /// The reply is too long with it.
    pub fn count(&mut self, piece: &AiChunk) -> Result<(), Error> {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let calls = piece.tool_call_chunks.iter();
        let calls = calls.map(|call| CALL + text(&call.name) + text(&call.id) + call.args.len());
        let more = bytes(&piece.content) + calls.sum::<usize>();
        self.has_room(more)?;
        self.used += more;
        Ok(())
    }

    /// Whether so many more bytes may come.
    ///
    /// # Errors
    /// The reply is too long with them.
    pub fn has_room(&self, more: usize) -> Result<(), Error> {
        if self.used.saturating_add(more) > self.most {
            return Err(Error::TooLong {
                at: self.at.to_string(),
                most: self.most,
            });
        }
        Ok(())
    }
}

/// The bytes of the texts of a content, which is a text or a list of parts.
fn bytes(content: &Value) -> usize {
    match content {
        Value::Str(text) => text.len(),
        Value::List(parts) => parts.iter().map(bytes).sum(),
        Value::Map(part) => part.values().map(bytes).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{message::ToolCallChunk, value};

    #[tokio::test(start_paused = true)]
    async fn a_model_that_is_silent_for_too_long_is_left() {
        let limits = Limits {
            silence: Duration::from_secs(60),
            ..Limits::default()
        };
        let mut events = futures::stream::pending::<()>();
        let begin = tokio::time::Instant::now();
        let silence = limits.silence();
        let error = silence.next("test", &mut events).await;
        let error = error.expect_err("silence");
        assert_eq!(begin.elapsed(), Duration::from_secs(60));
        assert!(error.to_string().contains("60 s"), "{error}");
        assert!(error.is_transient(), "the next attempt may succeed");
    }

    #[tokio::test(start_paused = true)]
    async fn only_pieces_of_a_reply_end_the_silence() {
        let limits = Limits {
            silence: Duration::from_secs(60),
            ..Limits::default()
        };
        let begin = Instant::now();
        let mut events = Box::pin(futures::stream::repeat(()).then(async |()| {
            tokio::time::sleep(Duration::from_secs(25)).await;
        }));
        let mut silence = limits.silence();
        for _ in 0..2 {
            silence.next("test", &mut events).await.expect("an event");
        }
        silence.end();
        for _ in 0..2 {
            silence.next("test", &mut events).await.expect("an event");
        }
        let error = silence.next("test", &mut events).await;
        assert!(matches!(error, Err(Error::Silent { .. })));
        assert_eq!(begin.elapsed(), Duration::from_secs(110));
        // Also where there is always an event.
        let mut ready = futures::stream::repeat(());
        let error = silence.next("test", &mut ready).await;
        assert!(matches!(error, Err(Error::Silent { .. })));
    }

    #[test]
    fn every_text_of_a_reply_counts() {
        let limits = Limits {
            bytes: 40,
            ..Limits::default()
        };
        let mut meter = limits.meter("test".into());
        let piece = AiChunk {
            content: value!([{"type": "reasoning", "reasoning": "12345"}]),
            tool_call_chunks: vec![ToolCallChunk {
                args: "{}".to_owned(),
                name: Some("add".into()),
                id: Some("a".into()),
                index: None,
            }],
            ..AiChunk::default()
        };
        // `reasoning` is in it twice: as type and as text.
        meter.count(&piece).expect("36 bytes");
        let error = meter.count(&AiChunk::text("12345")).expect_err("41 bytes");
        assert!(matches!(error, Error::TooLong { most: 40, .. }), "{error}");
        assert!(!error.is_transient());
    }
}
