//! What bounds a reply of a model: its size, and how long the model may be silent.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use tokio::time::Instant;

use super::{CallOptions, Error};
use crate::{message::AiChunk, value::Value};

/// How long a model may take to begin its reply by default: some think for minutes without sending a byte.
const BEGIN: Duration = Duration::from_secs(300);
/// How long it may be silent by default once it has begun.
const SILENCE: Duration = Duration::from_secs(60);
/// Most bytes of a reply by default.
const REPLY: usize = 10 << 20;
/// What a piece of a call counts besides its texts: without any it would take memory and cost nothing.
const CALL: usize = 16;

/// Bounds of each reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The longest silence before the reply begins.
    pub begin: Duration,
    /// The longest silence once it has begun.
    pub silence: Duration,
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            begin: BEGIN,
            silence: SILENCE,
            bytes: REPLY,
        }
    }
}

impl Limits {
    /// Of a model whose calls of tools come only when they are whole: it writes a long one without a sign.
    #[cfg(feature = "models")]
    pub fn of_whole_calls() -> Self {
        Self {
            silence: BEGIN,
            ..Self::default()
        }
    }

    /// The limits of a call with these options.
    pub fn of_call(mut self, options: &CallOptions) -> Self {
        self.begin = options.begin_within.unwrap_or(self.begin);
        self.silence = options.silence.unwrap_or(self.silence);
        self
    }

    /// Waits for what the model at `at` makes in one piece.
    pub async fn within<T>(
        &self,
        at: &str,
        step: impl Future<Output = T> + Send,
    ) -> Result<T, Error> {
        self.silence().within(at, step).await
    }

    /// The silence that begins now, before the reply.
    pub fn silence(&self) -> Silence {
        Silence {
            limits: *self,
            since: Instant::now(),
            heard: Instant::now(),
            begun: false,
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
/// as long as the connection lasts. A sign of life within a reply gives it the time that it may take to begin.
pub(super) struct Silence {
    limits: Limits,
    /// Since when there is no piece.
    since: Instant,
    /// Since when there is no sign of life.
    heard: Instant,
    /// Whether the reply has begun: a model that has shown what it thinks may go on thinking.
    begun: bool,
}

impl Silence {
    /// Waits for a step of the model at `at`.
    pub async fn within<T>(
        &self,
        at: &str,
        step: impl Future<Output = T> + Send,
    ) -> Result<T, Error> {
        let Limits { begin, silence, .. } = self.limits;
        let left = |most: Duration, since: Instant| (most.saturating_sub(since.elapsed()), most);
        let (rest, most) = if self.begun {
            left(silence, self.heard).min(left(begin.max(silence), self.since))
        } else {
            left(begin, self.since)
        };
        let silent = || Error::Silent {
            at: at.to_owned(),
            seconds: most.as_secs(),
        };
        if rest.is_zero() {
            // A timeout takes what is there already, however late it is.
            return Err(silent());
        }
        let step = tokio::time::timeout(rest, step).await;
        step.map_err(|_| silent())
    }

    /// The next event of the reply.
    pub async fn next<S: Stream + Unpin + Send>(
        &self,
        at: &str,
        events: &mut S,
    ) -> Result<Option<S::Item>, Error> {
        self.within(at, events.next()).await
    }

    /// A piece came.
    pub fn piece(&mut self, piece: &AiChunk) {
        self.begun |= !is_reasoning(piece);
    }

    /// The piece was taken: the next silence begins now.
    pub fn end(&mut self) {
        self.since = Instant::now();
        self.heard = self.since;
    }

    /// The server shows that the model works on its reply.
    #[cfg(feature = "models")]
    pub fn sign_of_life(&mut self) {
        self.heard = Instant::now();
    }
}

/// Whether a piece has nothing but what the model thinks.
fn is_reasoning(piece: &AiChunk) -> bool {
    let parts = piece.content.as_list().unwrap_or_default();
    let kind = |part: &Value| part.get("type").and_then(Value::as_str) == Some("reasoning");
    piece.tool_call_chunks.is_empty() && !parts.is_empty() && parts.iter().all(kind)
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

    fn limits() -> Limits {
        Limits {
            begin: Duration::from_secs(300),
            silence: Duration::from_secs(60),
            ..Limits::default()
        }
    }

    /// The seconds after which a model is left that sends nothing more.
    async fn left_after(silence: &Silence) -> u64 {
        let begin = Instant::now();
        let mut events = futures::stream::pending::<()>();
        let error = silence.next("test", &mut events).await;
        let error = error.expect_err("silence");
        assert!(error.is_transient(), "the next attempt may succeed");
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_may_take_longer_to_begin_than_to_go_on() {
        let mut silence = limits().silence();
        assert_eq!(left_after(&silence).await, 300);
        silence.piece(&AiChunk::text("It "));
        silence.end();
        assert_eq!(left_after(&silence).await, 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_shows_what_it_thinks_has_not_begun_to_reply() {
        let mut silence = limits().silence();
        silence.piece(&AiChunk {
            content: value!([{"type": "reasoning", "reasoning": "Let me see."}]),
            ..AiChunk::default()
        });
        silence.end();
        assert_eq!(left_after(&silence).await, 300);
        silence.piece(&AiChunk {
            tool_call_chunks: vec![ToolCallChunk::default()],
            ..AiChunk::default()
        });
        silence.end();
        assert_eq!(left_after(&silence).await, 60);
    }

    #[cfg(feature = "models")]
    #[tokio::test(start_paused = true)]
    async fn signs_of_life_give_a_reply_the_time_that_it_may_take_to_begin() {
        let mut silence = limits().silence();
        silence.piece(&AiChunk::text("It "));
        silence.end();
        for _ in 0..5 {
            let pause = tokio::time::sleep(Duration::from_secs(45));
            silence.within("test", pause).await.expect("a sign of life");
            silence.sign_of_life();
        }
        assert_eq!(left_after(&silence).await, 60, "after 225 seconds");
        silence.sign_of_life();
        let pause = tokio::time::sleep(Duration::from_secs(45));
        let error = silence.within("test", pause).await.expect_err("silence");
        assert!(error.to_string().contains("300 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_takes_to_reach_the_server_counts() {
        let silence = limits().silence();
        let connect = tokio::time::sleep(Duration::from_secs(100));
        silence.within("test", connect).await.expect("in time");
        assert_eq!(left_after(&silence).await, 200);
    }

    #[test]
    fn the_limits_of_a_call_win() {
        let options = CallOptions::new().silence(Duration::from_secs(5));
        let limits = limits().of_call(&options);
        assert_eq!(limits.silence, Duration::from_secs(5));
        assert_eq!(limits.begin, Duration::from_secs(300));
    }

    #[tokio::test(start_paused = true)]
    async fn only_pieces_of_a_reply_end_the_silence() {
        let begin = Instant::now();
        let mut events = Box::pin(futures::stream::repeat(()).then(async |()| {
            tokio::time::sleep(Duration::from_secs(25)).await;
        }));
        let mut silence = limits().silence();
        for _ in 0..4 {
            silence.next("test", &mut events).await.expect("an event");
        }
        silence.piece(&AiChunk::text("It "));
        silence.end();
        for _ in 0..2 {
            silence.next("test", &mut events).await.expect("an event");
        }
        let error = silence.next("test", &mut events).await;
        let error = error.expect_err("silence");
        assert!(error.to_string().contains("60 s"), "{error}");
        assert_eq!(begin.elapsed(), Duration::from_secs(160));
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
