//! Models that try again, others that take their part, and limits of how often one is called.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{CallOptions, ChatModel, Error, Tokens, Tool};
use crate::message::Message;

/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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
}

impl Fallback {
    /// This model, in three attempts.
    pub fn new(model: impl ChatModel) -> Self {
        Self {
            models: vec![Arc::new(model)],
            attempts: 3,
            wait: Duration::from_millis(500),
        }
    }

    /// As many attempts of each model, the first one included. Only failures that may pass are worth another: a server
    /// that cannot be reached, a connection that was cut, 408, 409, 425, 429 and 5xx.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Waits this long before the second attempt, and twice as long before each further one, up to 30 s.
    #[must_use]
    pub fn starting_at(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// And this model once the others have failed, for whatever reason.
    #[must_use]
    pub fn or(mut self, model: impl ChatModel) -> Self {
        self.models.push(Arc::new(model));
        self
    }
}

impl Error {
    /// Whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 409 | 425 | 429 | 500..),
            _ => false,
        }
    }
}

fn is_transient(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(Error::is_transient)
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
        let options = options.clone();
        Box::pin(async_stream::try_stream! {
            let mut failed = anyhow::anyhow!("the model sent nothing");
            'models: for model in &all.models {
                for attempt in 0..all.attempts {
                    if attempt > 0 {
                        let factor = 1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX);
                        tokio::time::sleep(all.wait.saturating_mul(factor).min(LONGEST_WAIT)).await;
                    }
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
                            let passes = is_transient(&error);
                            tracing::info!(model = model.name(), %error, attempt, "the model failed");
                            failed = error;
                            if !passes {
                                continue 'models;
                            }
                        }
                        None => {}
                    }
                }
            }
            Err(failed)?;
        })
    }

    /// Whether all of the models do: a request is the same for each.
    fn follows_schemas(&self) -> bool {
        self.models.iter().all(|model| model.follows_schemas())
    }

    fn name(&self) -> &str {
        self.models
            .first()
            .map_or("ChatModel", |model| model.name())
    }

    fn provider(&self) -> Option<&str> {
        self.models.first().and_then(|model| model.provider())
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

/// Waits for a turn. Turns are given out in order before anybody waits: one that is never taken up lets
/// nobody through in its place, and nobody has to wait for those who do not go on.
async fn turn(begun: &Mutex<VecDeque<Instant>>, calls: usize, period: Duration) {
    let turn = {
        let mut begun = begun.lock();
        let mut turn = Instant::now();
        if begun.len() >= calls
            && let Some(first) = begun.pop_front()
        {
            turn = turn.max(first + period);
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

    fn follows_schemas(&self) -> bool {
        self.model.follows_schemas()
    }

    fn name(&self) -> &str {
        self.model.name()
    }

    fn provider(&self) -> Option<&str> {
        self.model.provider()
    }
}

#[cfg(test)]
mod tests;
