//! The items of a principal as the nodes of its runs have them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    Index,
    filter::Filter,
    service::{Error, ItemQuery, Service},
};
use crate::{
    checkpoint::{self, saver::Masked},
    engine::Items,
    extract::FoundItem,
    value::Value,
};

impl Service {
    /// The memory as the nodes of a principal's run see it.
    pub fn of(&self, owner: Arc<str>) -> Arc<dyn Items> {
        Arc::new(Memory {
            service: self.clone(),
            owner,
        })
    }
}

/// Gives the nodes of a run access to the items of its principal.
struct Memory {
    service: Service,
    owner: Arc<str>,
}

#[async_trait]
impl Items for Memory {
    async fn get(&self, namespace: &[String], key: &str) -> anyhow::Result<Option<Value>> {
        let (namespace, key) = (namespace.to_vec(), key.to_owned());
        let found = self.service.get(&self.owner, namespace, key, true).await;
        Ok(found.map_err(for_node)?.map(|item| item.value))
    }

    async fn search(
        &self,
        namespace: &[String],
        query: Option<&str>,
        limit: usize,
    ) -> anyhow::Result<Vec<FoundItem<Value>>> {
        let query = ItemQuery {
            prefix: namespace.to_vec(),
            filter: Filter::default(),
            text: query.map(Into::into),
            limit,
            offset: 0,
            refresh: true,
            // What a node has is its own.
            memory: None,
        };
        let found = self.service.search(&self.owner, query).await;
        let found = found.map_err(for_node)?.into_iter().map(|item| {
            Ok(FoundItem {
                value: item.value.decode()?,
                namespace: item.namespace,
                key: item.key,
                score: item.score,
            })
        });
        let found = found.collect::<Result<_, checkpoint::Error>>();
        found.map_err(|error| Masked(error).into())
    }

    async fn put(
        &self,
        namespace: &[String],
        key: &str,
        value: Option<Value>,
        ttl: Option<Duration>,
    ) -> anyhow::Result<()> {
        let (namespace, key) = (namespace.to_vec(), key.to_owned());
        let (service, owner) = (&self.service, &self.owner);
        match value {
            Some(value) => {
                let how = (ttl, &Index::Default);
                let stored = service.put(owner, namespace, key, value, how).await;
                stored.map_err(for_node)?;
            }
            None => drop(
                service
                    .delete(owner, namespace, key)
                    .await
                    .map_err(for_node)?,
            ),
        }
        Ok(())
    }
}

/// What a node gets. The engine recognises a failure of the storage. What took too long, or found too many waiting, is one
/// of the node: the same would happen to it again and again.
fn for_node(error: Error) -> anyhow::Error {
    use checkpoint::Error::{Crowded, TookTooLong};
    match error {
        Error::Storage(error @ (TookTooLong | Crowded(_))) => anyhow::anyhow!(error.to_string()),
        Error::Storage(error) => Masked(error).into(),
        error => error.into(),
    }
}
