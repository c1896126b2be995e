//! Long-term memory: values by namespace and key that outlive threads and are shared between them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    checkpoint::{self, codec},
    engine::Items,
    time::Timestamp,
    value::Value,
};

/// Labels from the widest to the narrowest.
pub type Namespace = Vec<String>;

/// An item to be stored.
#[derive(Clone, Debug)]
pub struct Put {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its key in the namespace.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// How long after this write it expires; by default never.
    pub ttl: Option<Duration>,
}

/// A stored item.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its key in the namespace.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// When it was first stored.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// How long after a write it expires.
    pub ttl: Option<Duration>,
}

/// A time to live as storages have it, in microseconds: at most 1,000 years, so that the moment
/// at which an item expires is one that every database knows.
pub fn ttl_micros(ttl: Duration) -> i64 {
    const LONGEST: i64 = 1000 * 365 * 24 * 3600 * 1_000_000;
    i64::try_from(ttl.as_micros()).map_or(LONGEST, |micros| micros.min(LONGEST))
}

/// A storage of long-term memory.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// One item; none that has expired.
    async fn item(
        &self,
        namespace: Namespace,
        key: String,
    ) -> Result<Option<Item>, checkpoint::Error>;

    /// Stores an item and replaces the one with its key, whose creation time stays.
    async fn put_item(&self, put: Put) -> Result<(), checkpoint::Error>;

    /// Deletes an item; returns whether there was one.
    async fn delete_item(
        &self,
        namespace: Namespace,
        key: String,
    ) -> Result<bool, checkpoint::Error>;
}

/// Why a namespace is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It has no labels.
    #[error("a namespace needs at least one label")]
    Empty,
    /// A label is empty.
    #[error("a label of a namespace cannot be empty")]
    EmptyLabel,
    /// A label contains the character that separates labels in LangGraph's addresses.
    #[error("a label of a namespace cannot hold a period")]
    Period,
}

/// Checks the labels of a namespace.
///
/// # Errors
/// It is empty, or one of its labels is not allowed (LangGraph's rules).
pub fn check(namespace: &[String]) -> Result<(), Refused> {
    if namespace.is_empty() {
        return Err(Refused::Empty);
    }
    for label in namespace {
        if label.is_empty() {
            return Err(Refused::EmptyLabel);
        }
        if label.contains('.') {
            return Err(Refused::Period);
        }
    }
    Ok(())
}

/// Gives the nodes of a run access to a storage.
pub struct Memory(Arc<dyn Store>);

impl Memory {
    /// The memory in `store`.
    pub fn over(store: Arc<dyn Store>) -> Self {
        Self(store)
    }
}

#[async_trait]
impl Items for Memory {
    async fn get(&self, namespace: &[String], key: &str) -> anyhow::Result<Option<Value>> {
        let found = self.0.item(namespace.to_vec(), key.to_owned()).await?;
        Ok(found.map(|item| item.value))
    }

    async fn put(
        &self,
        namespace: &[String],
        key: &str,
        value: Option<Value>,
        ttl: Option<Duration>,
    ) -> anyhow::Result<()> {
        check(namespace)?;
        let (namespace, key) = (namespace.to_vec(), key.to_owned());
        match value {
            Some(value) => {
                anyhow::ensure!(
                    !value.is_deeper_than(codec::MAX_DEPTH),
                    "a value in memory cannot be nested deeper than {} levels",
                    codec::MAX_DEPTH
                );
                let put = Put {
                    namespace,
                    key,
                    value,
                    ttl,
                };
                self.0.put_item(put).await?;
            }
            None => drop(self.0.delete_item(namespace, key).await?),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_needs_labels_without_periods() {
        let checked = |labels: &[&str]| {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            check(&labels)
        };
        assert_eq!(checked(&["users", "u 1", "\0"]), Ok(()));
        assert_eq!(checked(&[]), Err(Refused::Empty));
        assert_eq!(checked(&["users", ""]), Err(Refused::EmptyLabel));
        assert_eq!(checked(&["a.b"]), Err(Refused::Period));
    }
}
