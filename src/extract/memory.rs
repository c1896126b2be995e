//! The long-term memory that all threads share, as nodes see it.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use super::Ctx;
use crate::value::{self, Value};

/// An item of the long-term memory that a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundItem<T> {
    /// The labels under which it is stored.
    pub namespace: Vec<String>,
    /// Its key there.
    pub key: String,
    /// What is stored.
    pub value: T,
    /// How near it is to the query, from -1 to 1; `None` where no model compares meanings.
    pub score: Option<f32>,
}

/// The long-term memory.
///
/// ```
/// use backstitch::{Local, prelude::*};
///
/// #[derive(State)]
/// struct Visit {
///     likes: String,
///     known: Option<Vec<String>>,
/// }
///
/// async fn note(visit: Visit, ctx: Ctx) -> Result<Update<Visit>> {
///     ctx.remember(&["people", "ada"], &visit.likes, json!({"likes": visit.likes})).await?;
///     let found = ctx.search::<Value>(&["people"], None, 10).await?;
///     Ok(Visit::update().known(found.into_iter().map(|item| item.key).collect::<Vec<_>>()))
/// }
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let graph = Graph::<Visit>::new().node("note", note).edge(START, "note").build()?;
/// let local = Local::memory()?;
/// local.thread(&graph).invoke(Visit::update().likes("tea")).await?;
/// let done = local.thread(&graph).invoke(Visit::update().likes("rain")).await?;
/// assert_eq!(done["known"], json!(["rain", "tea"]));
/// # anyhow::Ok(())
/// # }).unwrap();
/// ```
impl Ctx {
    /// Stores a value in the long-term memory shared between threads and replaces the one that was
    /// stored there. It is stored at once, whatever becomes of the task: a retry stores it anew.
    ///
    /// # Errors
    /// The value cannot be encoded, the namespace is empty or has a label that is empty or contains
    /// a period, or the storage failed.
    pub async fn remember(
        &self,
        namespace: &[&str],
        key: &str,
        value: impl Serialize,
    ) -> anyhow::Result<()> {
        let value = value::to_value(&value)?;
        self.write_item(namespace, key, Some(value), None).await
    }

    /// As [`remember`](Self::remember), until `ttl` has passed since the value was last stored or read.
    ///
    /// # Errors
    /// As [`remember`](Self::remember).
    pub async fn remember_for(
        &self,
        ttl: Duration,
        namespace: &[&str],
        key: &str,
        value: impl Serialize,
    ) -> anyhow::Result<()> {
        let value = value::to_value(&value)?;
        self.write_item(namespace, key, Some(value), Some(ttl))
            .await
    }

    /// Removes a value from the long-term memory, if there is one.
    ///
    /// # Errors
    /// As [`remember`](Self::remember).
    pub async fn forget(&self, namespace: &[&str], key: &str) -> anyhow::Result<()> {
        self.write_item(namespace, key, None, None).await
    }

    async fn write_item(
        &self,
        namespace: &[&str],
        key: &str,
        value: Option<Value>,
        ttl: Option<Duration>,
    ) -> anyhow::Result<()> {
        let namespace = namespace.iter().map(|label| (*label).to_owned()).collect();
        let host = &self.task().host;
        host.remember(namespace, key.to_owned(), value, ttl).await
    }

    /// Reads the long-term memory shared between threads. The time to live of what is read begins anew.
    ///
    /// # Errors
    /// The storage failed, or the value does not fit.
    pub async fn recall<T: DeserializeOwned>(
        &self,
        namespace: &[&str],
        key: &str,
    ) -> anyhow::Result<Option<T>> {
        let namespace = namespace.iter().map(|label| (*label).to_owned()).collect();
        match self.task().host.recall(namespace, key.to_owned()).await? {
            Some(found) => Ok(Some(value::from_value(&found)?)),
            None => Ok(None),
        }
    }

    /// The items below a namespace: at most `limit` of them, those first that are nearest in meaning to
    /// `query`. Without a query, or where no model for embeddings is set up, they come by namespace and key.
    /// The time to live of what is found begins anew.
    ///
    /// # Errors
    /// A label of the namespace is not allowed, there is too much to compare, a value does not fit, or
    /// the storage or the model failed.
    pub async fn search<T: DeserializeOwned>(
        &self,
        namespace: &[&str],
        query: Option<&str>,
        limit: usize,
    ) -> anyhow::Result<Vec<FoundItem<T>>> {
        let namespace = namespace.iter().map(|label| (*label).to_owned()).collect();
        let host = &self.task().host;
        let found = host.search(namespace, query.map(str::to_owned), limit);
        let found = found.await?.into_iter().map(|item| {
            Ok(FoundItem {
                value: value::from_value(&item.value)?,
                namespace: item.namespace,
                key: item.key,
                score: item.score,
            })
        });
        found.collect()
    }
}
