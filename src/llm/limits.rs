//! What bounds a reply of a model: its size, and how long the model may be silent.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt};

use super::Error;
use crate::{message::AiChunk, value::Value};

/// How long a model may be silent by default: some think for minutes.
const SILENCE: Duration = Duration::from_secs(300);
/// Most bytes of a reply by default.
const REPLY: usize = 10 << 20;

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
        let silent = |_| Error::Silent {
            at: at.to_owned(),
            seconds: self.silence.as_secs(),
        };
        tokio::time::timeout(self.silence, step)
            .await
            .map_err(silent)
    }

    /// The next event of a reply.
    pub async fn next<S: Stream + Unpin + Send>(
        &self,
        at: &str,
        events: &mut S,
    ) -> Result<Option<S::Item>, Error> {
        self.within(at, events.next()).await
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
        let calls = piece.tool_call_chunks.iter().map(|call| call.args.len());
        let more = bytes(&piece.content) + calls.sum::<usize>();
        self.used = self.used.saturating_add(more);
        if self.used > self.most {
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
        let error = limits.next("test", &mut events).await.expect_err("silence");
        assert_eq!(begin.elapsed(), Duration::from_secs(60));
        assert!(error.to_string().contains("60 s"), "{error}");
        assert!(error.is_transient(), "the next attempt may succeed");
    }

    #[test]
    fn every_text_of_a_reply_counts() {
        let limits = Limits {
            bytes: 20,
            ..Limits::default()
        };
        let mut meter = limits.meter("test".into());
        let piece = AiChunk {
            content: value!([{"type": "reasoning", "reasoning": "12345"}]),
            tool_call_chunks: vec![ToolCallChunk {
                args: "{}".to_owned(),
                ..ToolCallChunk::default()
            }],
            ..AiChunk::default()
        };
        // `reasoning` is in it twice: as type and as text.
        meter.count(&piece).expect("16 bytes");
        let error = meter.count(&AiChunk::text("12345")).expect_err("21 bytes");
        assert!(matches!(error, Error::TooLong { most: 20, .. }), "{error}");
        assert!(!error.is_transient());
    }
}
