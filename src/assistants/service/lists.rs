//! Lists of assistants and of their versions: first which ones and how large they are, so that nothing is
//! read before there is memory for it, then their contents.

use std::sync::Arc;

use super::{Service, shown};
use crate::{
    assistants::{
        Error,
        request::{Columns, Filter, Search},
        store::{VersionQuery, VersionRow},
    },
    id::AssistantId,
    value::{Map, Value},
};

impl Service {
    /// A page of versions of an assistant, newest first: which ones, and how many bytes each has.
    ///
    /// # Errors
    /// No such assistant, or the storage failed.
    pub async fn versions(
        &self,
        viewer: Option<Arc<str>>,
        id: AssistantId,
        query: VersionQuery,
    ) -> Result<Vec<(i32, u64)>, Error> {
        let subject = self.subject(viewer, id);
        let found = self.inner.store.assistant_versions(subject, query).await?;
        found.ok_or(Error::NoAssistant)
    }

    /// Versions of an assistant, newest first, in the form clients see; those that are gone are left
    /// out.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn shown_versions(
        &self,
        viewer: Option<Arc<str>>,
        id: AssistantId,
        versions: Vec<i32>,
    ) -> Result<Vec<Value>, Error> {
        let subject = self.subject(viewer, id);
        let rows = self.inner.store.versions(subject, versions).await?;
        Ok(rows.iter().map(|row| shown_version(id, row)).collect())
    }

    /// Only those of a graph of this process: of the requested one, or of all.
    fn registered(&self, mut filter: Filter) -> Result<Filter, Error> {
        if filter.graphs.is_empty() {
            filter.graphs = self.inner.names.to_vec();
        }
        for graph in &filter.graphs {
            self.required(graph)?;
        }
        Ok(filter)
    }

    /// A page of assistants: which ones, and how many bytes each has in these columns.
    ///
    /// # Errors
    /// No such graph, or the storage failed.
    pub async fn search(
        &self,
        mut search: Search,
        columns: Columns,
    ) -> Result<Vec<(AssistantId, u64)>, Error> {
        search.filter = self.registered(search.filter)?;
        let store = &self.inner.store;
        Ok(store.search_assistants(search, columns).await?)
    }

    /// Assistants in the form clients see, with these columns, in the order of their ids here; those that are gone
    /// are left out.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn shown(
        &self,
        viewer: Option<Arc<str>>,
        ids: Vec<AssistantId>,
        columns: Columns,
    ) -> Result<Vec<Value>, Error> {
        let (store, graphs) = (&self.inner.store, self.inner.names.clone());
        let found = store.assistants(ids.clone(), viewer, graphs, columns);
        let mut rows = found.await?;
        rows.sort_by_cached_key(|row| ids.iter().position(|id| *id == row.id));
        Ok(rows.iter().map(shown).collect())
    }

    /// How many assistants there are.
    ///
    /// # Errors
    /// No such graph, or the storage failed.
    pub async fn count(&self, filter: Filter) -> Result<u64, Error> {
        let filter = self.registered(filter)?;
        Ok(self.inner.store.count_assistants(filter).await?)
    }
}

/// A version of an assistant in the form clients see.
fn shown_version(id: AssistantId, row: &VersionRow) -> Value {
    let mut map = Map::with_capacity(9);
    map.insert("assistant_id", id.to_string());
    map.insert("version", row.version);
    map.insert("graph_id", Value::Str(row.content.graph.clone()));
    map.insert("config", Value::map(row.content.config.clone()));
    map.insert("context", Value::map(row.content.context.clone()));
    map.insert("metadata", Value::map(row.content.metadata.clone()));
    map.insert("created_at", row.created_at.to_string());
    map.insert("name", row.content.name.clone());
    map.insert("description", row.content.description.clone());
    Value::map(map)
}
