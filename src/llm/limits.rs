//! What bounds a reply of a model: its size, and how long the model may be silent.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use tokio::time::Instant;

use super::{CallOptions, Error};
use crate::{message::AiChunk, value::Value};

/// How long a model may be silent by default.
const SILENCE: Duration = Duration::from_secs(60);
/// How long by default where it is known to work without a sign: while it thinks, or writes a call of a tool that it
/// sends when the call is whole.
const WORK: Duration = Duration::from_secs(300);
/// What names of models contain that think before they begin, and send nothing meanwhile.
const THINKING: [&str; 9] = [
    "think",
    "reason",
    "-r1",
    "qwq",
    "gpt-oss",
    "grok-4",
    "magistral",
    "gemini-2.5",
    "gemini-3",
];
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
    /// The longest time within a reply in which only signs of life come, and no piece.
    pub alive: Duration,
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            begin: SILENCE,
            silence: SILENCE,
            alive: WORK,
            bytes: REPLY,
        }
    }
}

/// What an author has set of the limits, and what is known of the model.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    /// The longest silence before the reply begins.
    pub begin: Option<Duration>,
    /// The longest silence once it has begun.
    pub silence: Option<Duration>,
    /// Most bytes of a reply.
    pub bytes: Option<usize>,
    /// It thinks or is loaded before it begins, and sends nothing meanwhile.
    pub begins_late: bool,
    /// Its calls of tools come only when they are whole: it writes a long one without a sign.
    pub sends_whole_calls: bool,
}

impl Settings {
    /// Of the model of this name.
    pub fn of_model(name: &str) -> Self {
        Self {
            begins_late: thinks(name),
            ..Self::default()
        }
    }

    /// The limits of a call with these options and as many tools.
    pub fn of_call(&self, options: &CallOptions, tools: usize) -> Limits {
        let defaults = Limits::default();
        let writes_calls = self.sends_whole_calls && tools > 0;
        let begins_late = self.begins_late || writes_calls || options.reasoning.is_some();
        let or_work = |is_long: bool| if is_long { WORK } else { SILENCE };
        let begin = options.begin_within.or(self.begin);
        let silence = options.silence.or(self.silence);
        let silence = silence.unwrap_or_else(|| or_work(writes_calls));
        Limits {
            begin: begin.unwrap_or_else(|| or_work(begins_late)),
            silence,
            alive: begin.unwrap_or(WORK).max(silence),
            bytes: self.bytes.unwrap_or(defaults.bytes),
        }
    }
}

/// Whether a model of this name is known to think before it begins. Some servers write its maker before it.
fn thinks(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let mut start = name.chars();
    let is_of_series_o =
        start.next() == Some('o') && start.next().is_some_and(|next| next.is_ascii_digit());
    is_of_series_o || name.starts_with("gpt-5") || THINKING.iter().any(|part| name.contains(part))
}

impl Limits {
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
/// as long as the connection lasts. Signs of life within a reply give it more time, up to a limit of their own.
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
        let Limits {
            begin,
            silence,
            alive,
            ..
        } = self.limits;
        let left = |most: Duration, since: Instant| (most.saturating_sub(since.elapsed()), most);
        let (rest, most) = if self.begun {
            left(silence, self.heard).min(left(alive, self.since))
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
    async fn signs_of_life_give_a_reply_five_minutes() {
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

    /// Seconds to begin, of silence in the reply, and of signs of life alone.
    fn seconds(limits: Limits) -> (u64, u64, u64) {
        let Limits {
            begin,
            silence,
            alive,
            ..
        } = limits;
        (begin.as_secs(), silence.as_secs(), alive.as_secs())
    }

    #[test]
    fn a_minute_of_silence_is_an_error_unless_the_model_is_known_to_work_without_a_sign() {
        let none = CallOptions::new();
        for name in [
            "gpt-4o-mini",
            "gpt-4.1",
            "claude-sonnet-4-5",
            "openai/gpt-4o",
            "llama-3.3-70b",
            "gemini-2.0-flash",
            "omni",
            "o",
        ] {
            let limits = Settings::of_model(name).of_call(&none, 3);
            assert_eq!(seconds(limits), (60, 60, 300), "{name}");
        }
        for name in [
            "o3-mini",
            "openai/o1",
            "gpt-5-mini",
            "deepseek/DeepSeek-R1",
            "deepseek-reasoner",
            "kimi-k2-thinking",
            "gemini-2.5-pro",
        ] {
            let limits = Settings::of_model(name).of_call(&none, 0);
            assert_eq!(seconds(limits), (300, 60, 300), "{name}");
        }
        let thinking = CallOptions::new().reasoning(crate::llm::Reasoning::High);
        let limits = Settings::of_model("claude-sonnet-4-5").of_call(&thinking, 0);
        assert_eq!(seconds(limits), (300, 60, 300));
        let whole = Settings {
            sends_whole_calls: true,
            ..Settings::default()
        };
        assert_eq!(seconds(whole.of_call(&none, 0)), (60, 60, 300));
        assert_eq!(seconds(whole.of_call(&none, 1)), (300, 300, 300));
    }

    #[test]
    fn the_limits_of_a_call_win_over_those_of_the_client_and_these_over_defaults() {
        let second = Duration::from_secs(1);
        let client = Settings {
            begin: Some(30 * second),
            silence: Some(20 * second),
            ..Settings::of_model("o3")
        };
        let none = CallOptions::new();
        assert_eq!(seconds(client.of_call(&none, 0)), (30, 20, 30));
        let options = CallOptions::new().silence(5 * second);
        assert_eq!(seconds(client.of_call(&options, 0)), (30, 5, 30));
        let options = options.begin_within(600 * second);
        assert_eq!(seconds(client.of_call(&options, 0)), (600, 5, 600));
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
