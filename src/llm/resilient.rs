//! Models that try again, others that take their part, and limits of how often one is called.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{CallOptions, ChatModel, Error, Tokens, Tool};
use crate::message::Message;

/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Repeats what fails in a way that may pass: three attempts, with waits that fit into the time that embeddings have.
#[cfg(feature = "openai")]
pub(super) async fn repeated<T, Fut>(attempt: impl Fn() -> Fut) -> Result<T, Error>
where
    Fut: Future<Output = Result<T, Error>>,
{
    const WAIT: Duration = Duration::from_secs(5);
    let mut wait = Duration::from_millis(300);
    for _ in 0..2 {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let pause = wait.max(error.retry_after().unwrap_or_default());
        if !error.is_transient() || pause > WAIT {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        wait *= 2;
    }
    attempt().await
}

/// Calls a model again when it fails, then the next one. Nothing of an attempt that failed reaches a client: once a
/// reply has begun, its error is the error of the call.
///
/// ```
/// use std::time::Duration;
/// use backstitch::{llm::Fallback, prelude::*};
///
/// # let (large, small) = (ScriptedModel::replying([]), ScriptedModel::replying([]));
/// let model = Fallback::new(large).attempts(3).or(small);
/// ```
#[derive(Clone)]
pub struct Fallback {
    models: Vec<Arc<dyn ChatModel>>,
    attempts: u32,
    wait: Duration,
    within: Duration,
    begin_within: Option<Duration>,
    silence: Option<Duration>,
}

impl Fallback {
    /// This model, in three attempts.
    pub fn new(model: impl ChatModel) -> Self {
        Self {
            models: vec![Arc::new(model)],
            attempts: 3,
            wait: Duration::from_millis(500),
            within: Duration::from_secs(60),
            begin_within: None,
            silence: None,
        }
    }

    /// As many attempts of each model, the first one included. Only failures that may pass are worth another: a server
    /// that cannot be reached, a connection that was cut, 408, 409, 425, 429 and 5xx.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Waits this long before the second attempt, and twice as long before each further one, up to 30 s; longer if the
    /// server says so in `Retry-After`.
    #[must_use]
    pub fn starting_at(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits no longer than this between all attempts of a model; one minute by default. A server that wants to be left
    /// alone for longer is not called anew.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.within = limit;
        self
    }

    /// How long each model may take to begin its reply, in each attempt: as its client says, which is one minute, or
    /// five for those that are known to think before they begin.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use backstitch::prelude::*;
    ///
    /// let second = Duration::from_secs(1);
    /// let model = model("openai:gpt-4o-mini")?.begin_within(30 * second).silence(10 * second);
    /// # Ok::<_, backstitch::llm::Error>(())
    /// ```
    #[must_use]
    pub fn begin_within(mut self, limit: Duration) -> Self {
        self.begin_within = Some(limit);
        self
    }

    /// How long each model may be silent once it has begun to reply. Without it that is as its client says: one
    /// minute, or five where calls of tools come only when they are whole (Google, Ollama). A model that ignores options, as scripted ones do, ignores this one too.
    #[must_use]
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = Some(limit);
        self
    }

    /// And this model once the others have failed, for whatever reason.
    #[must_use]
    pub fn or(mut self, model: impl ChatModel) -> Self {
        self.models.push(Arc::new(model));
        self
    }
}

/// A model that has used its attempts: it is not repeated by another that repeats models.
#[derive(Debug, thiserror::Error)]
#[error("the model failed in {0} attempts")]
struct Exhausted(u32);

fn is_transient(error: &anyhow::Error) -> bool {
    let ends = error.downcast_ref::<Exhausted>().is_some();
    !ends && error.downcast_ref().is_some_and(Error::is_transient)
}

/// How long the server wants to be left alone.
fn retry_after(error: &anyhow::Error) -> Option<Duration> {
    error.downcast_ref().and_then(Error::retry_after)
}

impl ChatModel for Fallback {
    fn stream(&self, messages: &[Message], tools: &[Arc<Tool>]) -> Tokens {
        self.stream_with(messages, tools, &CallOptions::new())
    }

    fn stream_with(
        &self,
        messages: &[Message],
        tools: &[Arc<Tool>],
        options: &CallOptions,
    ) -> Tokens {
        let (all, messages, tools) = (self.clone(), messages.to_vec(), tools.to_vec());
        let mut options = options.clone();
        options.begin_within = options.begin_within.or(self.begin_within);
        options.silence = options.silence.or(self.silence);
        Box::pin(async_stream::try_stream! {
            let mut failed = anyhow::anyhow!("the model sent nothing");
            'models: for model in &all.models {
                let mut wait = all.wait;
                let mut left = all.within;
                for attempt in 1..=all.attempts {
                    let mut pieces = model.stream_with(&messages, &tools, &options);
                    match pieces.next().await {
                        Some(Ok(first)) => {
                            yield first;
                            while let Some(piece) = pieces.next().await {
                                yield piece?;
                            }
                            return;
                        }
                        Some(Err(error)) => {
                            tracing::info!(model = model.name(), %error, attempt, "the model failed");
                            let passes = is_transient(&error);
                            failed = error;
                            if !passes {
                                continue 'models;
                            }
                        }
                        None => {}
                    }
                    let pause = wait.max(retry_after(&failed).unwrap_or_default());
                    if attempt == all.attempts || pause > left {
                        failed = failed.context(Exhausted(attempt));
                        continue 'models;
                    }
                    left -= pause;
                    tokio::time::sleep(pause).await;
                    wait = wait.saturating_mul(2).min(LONGEST_WAIT);
                }
            }
            Err(failed)?;
        })
    }

    /// Whether all of the models do: a request is the same for each.
    fn follows_schemas(&self) -> bool {
        self.models.iter().all(|model| model.follows_schemas())
    }

    fn inner(&self) -> Option<&dyn ChatModel> {
        self.models.first().map(|model| model as &dyn ChatModel)
    }
}

/// A model that is called at most so often: further calls wait, in their order.
pub struct RateLimited<M> {
    model: M,
    calls: usize,
    period: Duration,
    /// When the last calls began, or will begin.
    begun: Arc<Mutex<VecDeque<Instant>>>,
}

impl<M: ChatModel> RateLimited<M> {
    /// At most `calls` in any `period`; at least one.
    pub fn new(model: M, calls: usize, period: Duration) -> Self {
        Self {
            model,
            calls: calls.max(1),
            period,
            begun: Arc::default(),
        }
    }
}

/// Longer than any program runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Waits for a turn. Turns are given out in order before anybody waits: one that is never taken up lets
/// nobody through in its place, and nobody has to wait for those who do not go on.
async fn turn(begun: &Mutex<VecDeque<Instant>>, calls: usize, period: Duration) {
    let turn = {
        let mut begun = begun.lock();
        let mut turn = Instant::now();
        if begun.len() >= calls
            && let Some(first) = begun.pop_front()
        {
            // A period that never ends is one of a hundred years.
            let next = first.checked_add(period).unwrap_or(first + FOREVER);
            turn = turn.max(next);
        }
        begun.push_back(turn);
        turn
    };
    tokio::time::sleep_until(turn).await;
}

impl<M: ChatModel> ChatModel for RateLimited<M> {
    fn stream(&self, messages: &[Message], tools: &[Arc<Tool>]) -> Tokens {
        self.stream_with(messages, tools, &CallOptions::new())
    }

    fn stream_with(
        &self,
        messages: &[Message],
        tools: &[Arc<Tool>],
        options: &CallOptions,
    ) -> Tokens {
        // Nothing is requested before the first piece is awaited.
        let pieces = self.model.stream_with(messages, tools, options);
        let (begun, calls, period) = (self.begun.clone(), self.calls, self.period);
        Box::pin(async_stream::stream! {
            turn(&begun, calls, period).await;
            let mut pieces = pieces;
            while let Some(piece) = pieces.next().await {
                yield piece;
            }
        })
    }

    fn inner(&self) -> Option<&dyn ChatModel> {
        Some(&self.model)
    }
}

#[cfg(test)]
mod tests;
