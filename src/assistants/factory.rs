//! Graphs that a function of the author makes for the config of a run.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::{
    error::one_line,
    graph::Compiled,
    value::{DecodeError, Map, Value, from_value},
};

/// The longest key that is retained as it is, in bytes.
const KEY_MAX: usize = 256;

/// The config and the context for which a graph is made: those of a run, of the last run of the thread that
/// is read or edited, or of the assistant whose schemas are shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphConfig {
    /// `configurable` of the config, for a run with the ids that nodes see in it.
    pub configurable: Map,
    /// The context.
    pub context: Map,
}

impl GraphConfig {
    /// Of a whole config and a context.
    pub(crate) fn of(config: &Map, context: &Map) -> Self {
        let configurable = config.get("configurable").and_then(Value::as_map);
        Self {
            configurable: configurable.cloned().unwrap_or_default(),
            context: context.clone(),
        }
    }

    /// A value of the context, else one of `configurable`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.context.get(key).or_else(|| self.configurable.get(key))
    }

    /// A text of the context, else one of `configurable`.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }

    /// The context as a type of the author's.
    ///
    /// # Errors
    /// It is not of this form.
    pub fn context<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        from_value(&Value::map(self.context.clone()))
    }

    /// `configurable` as a type of the author's.
    ///
    /// # Errors
    /// It is not of this form.
    pub fn configurable<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        from_value(&Value::map(self.configurable.clone()))
    }
}

type Name = dyn Fn(&GraphConfig) -> String + Send + Sync;
type Make = dyn Fn(GraphConfig) -> BoxFuture<'static, anyhow::Result<Arc<Compiled>>> + Send + Sync;

/// A function that makes graphs, and one that names what it makes.
#[derive(Clone)]
pub struct Factory {
    name: Arc<Name>,
    make: Arc<Make>,
}

impl Factory {
    /// Of the author's functions: configs of the same key have the same graph.
    pub fn new<K, F, Fut, E>(key: K, make: F) -> Self
    where
        K: Fn(&GraphConfig) -> String + Send + Sync + 'static,
        F: Fn(GraphConfig) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Arc<Compiled>, E>> + Send + 'static,
        E: Into<anyhow::Error>,
    {
        Self {
            name: Arc::new(key),
            make: Arc::new(move |config| make(config).map(|made| made.map_err(Into::into)).boxed()),
        }
    }

    /// The key of a config.
    ///
    /// # Errors
    /// The author's function panics.
    pub(super) fn key(&self, config: &GraphConfig) -> Result<Arc<str>, String> {
        let named = std::panic::catch_unwind(AssertUnwindSafe(|| (self.name)(config)));
        named
            .map(short)
            .map_err(|_| "the function of its key panicked".to_owned())
    }

    /// Makes a graph.
    ///
    /// # Errors
    /// The author's function fails, panics or takes longer than `limit`: the reason.
    pub(crate) async fn make(
        &self,
        config: GraphConfig,
        limit: Duration,
    ) -> Result<Arc<Compiled>, String> {
        let make = self.make.clone();
        let work = AssertUnwindSafe(async move { make(config).await }).catch_unwind();
        match timeout(limit, work).await {
            Ok(Ok(made)) => made.map_err(|error| one_line(&error)),
            Ok(Err(_)) => Err("the function that makes it panicked".to_owned()),
            Err(_) => Err(format!(
                "the function that makes it took longer than {} s (BACKSTITCH_GRAPH_TIMEOUT)",
                limit.as_secs()
            )),
        }
    }
}

/// A key as it is retained: long ones, such as texts of clients, by their hash.
fn short(key: String) -> Arc<str> {
    if key.len() <= KEY_MAX {
        return key.into();
    }
    let hash = Sha256::digest(key.as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hash}").into()
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory").finish_non_exhaustive()
    }
}
