//! What nodes need of the memory that all threads share.

use std::time::Duration;

use async_trait::async_trait;

use crate::{extract::FoundItem, value::Value};

/// Long-term memory shared between threads. Keys are namespaces and names.
#[async_trait]
pub trait Items: Send + Sync + 'static {
    /// One value.
    async fn get(&self, namespace: &[String], key: &str) -> anyhow::Result<Option<Value>>;
    /// Items below a namespace, those first that are nearest to a text.
    async fn search(
        &self,
        namespace: &[String],
        query: Option<&str>,
        limit: usize,
    ) -> anyhow::Result<Vec<FoundItem<Value>>>;
    /// Writes a value, which expires after `ttl`; `None` deletes it.
    async fn put(
        &self,
        namespace: &[String],
        key: &str,
        value: Option<Value>,
        ttl: Option<Duration>,
    ) -> anyhow::Result<()>;
}
