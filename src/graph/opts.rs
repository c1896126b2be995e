//! Options of a node: retries, limits, caching, deferral.

use std::{fmt, sync::Arc, time::Duration};

use super::{Cache, Compiled, Retry, builder::names};
use crate::value::Value;

/// Options of a node, set one after another.
///
/// ```
/// use std::time::Duration;
/// use backstitch::prelude::*;
///
/// let opts = NodeOpts::new()
///     .retry(Retry::times(3))
///     .timeout(Duration::from_secs(60));
/// ```
#[derive(Clone, Default)]
#[must_use = "options do nothing until a node gets them"]
pub struct NodeOpts {
    pub(super) retry: Vec<Retry>,
    pub(super) timeout: Option<Duration>,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) defer: bool,
    pub(super) cache: Option<Cache>,
    pub(super) destinations: Vec<Arc<str>>,
    pub(super) reads: Option<Vec<Arc<str>>>,
    pub(super) calls: Vec<(Arc<str>, Arc<Compiled>)>,
}

impl NodeOpts {
    /// No options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Retries the node when it fails. May be called several times: the first policy that takes
    /// the error counts.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry.push(retry);
        self
    }

    /// Fails an attempt that takes longer.
    pub fn timeout(mut self, longest: Duration) -> Self {
        self.timeout = Some(longest);
        self
    }

    /// Fails an attempt that neither emits an event nor finishes a step for this long.
    pub fn idle_timeout(mut self, longest: Duration) -> Self {
        self.idle_timeout = Some(longest);
        self
    }

    /// Waits until nothing else is left to run.
    pub fn defer(mut self) -> Self {
        self.defer = true;
        self
    }

    /// Reuses the result for equal inputs.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// The nodes this one's commands go to: drawn, and counted as reachable.
    pub fn destinations<N: Into<Arc<str>>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.destinations.extend(names(nodes));
        self
    }

    /// The channels the node gets as input; by default all of them, or those of its views.
    pub fn reads<N: Into<Arc<str>>>(mut self, channels: impl IntoIterator<Item = N>) -> Self {
        self.reads = Some(names(channels));
        self
    }

    /// A graph that the node's function calls: drawn, and found when nested state is read.
    pub fn calls(mut self, name: impl Into<Arc<str>>, graph: Arc<Compiled>) -> Self {
        self.calls.push((name.into(), graph));
        self
    }
}

impl Default for Retry {
    /// LangGraph's policy: three attempts, waits of 0.5 s doubled up to 128 s, with jitter.
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial: Duration::from_millis(500),
            factor: 2.0,
            max_interval: Duration::from_secs(128),
            jitter: true,
            retry_on: None,
        }
    }
}

impl Retry {
    /// This many attempts in all, the first one included; waits as in the default policy.
    pub fn times(max_attempts: u32) -> Self {
        Self {
            max_attempts,
            ..Self::default()
        }
    }

    /// Waits this long before the second attempt.
    #[must_use]
    pub fn starting_at(mut self, wait: Duration) -> Self {
        self.initial = wait;
        self
    }

    /// Waits the same time before every attempt, without jitter.
    #[must_use]
    pub fn every(mut self, wait: Duration) -> Self {
        self.initial = wait;
        self.factor = 1.0;
        self.jitter = false;
        self
    }

    /// Retries only after errors that `predicate` takes.
    #[must_use]
    pub fn only_if(
        mut self,
        predicate: impl Fn(&anyhow::Error) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.retry_on = Some(Arc::new(predicate));
        self
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("max_attempts", &self.max_attempts)
            .field("initial", &self.initial)
            .field("factor", &self.factor)
            .field("max_interval", &self.max_interval)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

impl Cache {
    /// Results are valid for ever.
    pub fn forever() -> Self {
        Self {
            ttl: None,
            key: None,
        }
    }

    /// Results are valid for this long.
    pub fn ttl(ttl: Duration) -> Self {
        Self {
            ttl: Some(ttl),
            key: None,
        }
    }

    /// Only this part of the input counts.
    #[must_use]
    pub fn key(mut self, part: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(part));
        self
    }
}
