//! The registry of graphs, and the assistant that the server makes for each of them.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Error,
    request::{Search, SortBy},
    schemas,
};
use crate::{
    engine::topology::Topology,
    graph::{Compiled, draw},
    id::AssistantId,
    time::Timestamp,
    value::{Map, Value, contains_map},
};

/// Which assistant a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assistant {
    /// By id.
    Id(AssistantId),
    /// The system assistant of a registered graph.
    Graph(Arc<str>),
}

/// A graph with its name.
pub struct Registered {
    /// The name clients use.
    pub name: Arc<str>,
    /// The graph.
    pub graph: Arc<Compiled>,
    /// Its wiring, worked out once.
    pub wiring: Arc<Topology>,
}

struct Inner {
    graphs: BTreeMap<Arc<str>, Arc<Registered>>,
    by_id: BTreeMap<AssistantId, Arc<Registered>>,
    started: Timestamp,
}

/// The assistants of this server. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

impl Service {
    /// One assistant for each graph.
    pub fn new(graphs: impl IntoIterator<Item = (Arc<str>, Arc<Compiled>)>) -> Self {
        let graphs: BTreeMap<Arc<str>, Arc<Registered>> = graphs
            .into_iter()
            .map(|(name, graph)| {
                let registered = Registered {
                    name: name.clone(),
                    wiring: Arc::new(Topology::new(graph.clone())),
                    graph,
                };
                (name, Arc::new(registered))
            })
            .collect();
        let by_id = graphs
            .iter()
            .map(|(name, registered)| (AssistantId::of_graph(name), registered.clone()))
            .collect();
        Self {
            inner: Arc::new(Inner {
                graphs,
                by_id,
                started: Timestamp::now(),
            }),
        }
    }

    /// Names of the registered graphs, sorted.
    pub fn graph_names(&self) -> Vec<String> {
        self.inner.graphs.keys().map(ToString::to_string).collect()
    }

    /// The graph registered under a name.
    pub fn named(&self, name: &str) -> Option<Arc<Registered>> {
        self.inner.graphs.get(name).cloned()
    }

    /// The id and the graph of an assistant.
    ///
    /// # Errors
    /// No such assistant.
    pub fn find(&self, assistant: &Assistant) -> Result<(AssistantId, Arc<Registered>), Error> {
        match assistant {
            Assistant::Graph(name) => match self.named(name) {
                Some(registered) => Ok((AssistantId::of_graph(name), registered)),
                None => Err(Error::UnknownGraph {
                    name: name.to_string(),
                    known: self.graph_names(),
                }),
            },
            Assistant::Id(id) => match self.inner.by_id.get(id) {
                Some(registered) => Ok((*id, registered.clone())),
                None => Err(Error::NoAssistant),
            },
        }
    }

    /// An assistant, in the form clients see.
    ///
    /// # Errors
    /// No such assistant.
    pub fn get(&self, id: AssistantId) -> Result<Value, Error> {
        let (_, registered) = self.find(&Assistant::Id(id))?;
        Ok(self.to_value(id, &registered))
    }

    fn to_value(&self, id: AssistantId, registered: &Registered) -> Value {
        let mut metadata = Map::new();
        metadata.insert("created_by", "system");
        let time = self.inner.started.to_string();
        let mut map = Map::with_capacity(10);
        map.insert("assistant_id", id.to_string());
        map.insert("graph_id", Value::Str(registered.name.clone()));
        map.insert("config", Value::map(Map::new()));
        map.insert("context", Value::map(Map::new()));
        map.insert("metadata", Value::map(metadata));
        map.insert("name", Value::Str(registered.name.clone()));
        map.insert("created_at", time.clone());
        map.insert("updated_at", time);
        map.insert("version", 1);
        map.insert("description", Value::Null);
        Value::map(map)
    }

    /// A page of assistants, in the form clients see.
    pub fn search(&self, search: &Search) -> Vec<Value> {
        let filter = &search.filter;
        let name = filter.name.as_ref().map(|name| name.to_lowercase());
        let matches = |graph: &str, assistant: &Value| {
            let metadata = assistant.get("metadata").and_then(Value::as_map);
            filter.graph_id.as_ref().is_none_or(|id| id == graph)
                && name
                    .as_ref()
                    .is_none_or(|name| graph.to_lowercase().contains(name))
                && metadata.is_some_and(|metadata| contains_map(metadata, &filter.metadata))
        };
        let all = self.inner.by_id.iter();
        let mut found: Vec<Value> = all
            .map(|(id, registered)| (registered, self.to_value(*id, registered)))
            .filter(|(registered, assistant)| matches(&registered.name, assistant))
            .map(|(_, assistant)| assistant)
            .collect();
        let key = match search.sort_by {
            SortBy::AssistantId => "assistant_id",
            SortBy::Name => "name",
            SortBy::GraphId => "graph_id",
            SortBy::CreatedAt | SortBy::UpdatedAt => "created_at",
        };
        let text = |one: &Value| {
            let text = one.get(key).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        found.sort_by_key(text);
        if !search.ascending {
            found.reverse();
        }
        let page = found.into_iter().skip(search.offset);
        page.take(search.limit).collect()
    }

    /// The drawing of an assistant's graph, `{"nodes", "edges"}`, with `depth` levels of subgraphs.
    ///
    /// # Errors
    /// No such assistant.
    pub fn drawing(&self, assistant: &Assistant, depth: usize) -> Result<Value, Error> {
        let (_, registered) = self.find(assistant)?;
        Ok(Value::from_serde_json(
            draw::draw(&registered.graph, depth).to_json(),
        ))
    }

    /// The JSON schemas of an assistant's graph.
    ///
    /// # Errors
    /// No such assistant.
    pub fn schemas(&self, id: AssistantId) -> Result<Value, Error> {
        let (_, registered) = self.find(&Assistant::Id(id))?;
        let mut map = Map::with_capacity(6);
        map.insert("graph_id", Value::Str(registered.name.clone()));
        map.extend(schemas::schemas(&registered.graph));
        Ok(Value::map(map))
    }

    /// The schemas of subgraphs by namespace: all of them, or those of one namespace. Those below
    /// the first level are included if `recurse` is true.
    ///
    /// # Errors
    /// No such assistant.
    pub fn subgraphs(
        &self,
        id: AssistantId,
        namespace: Option<&str>,
        recurse: bool,
    ) -> Result<Value, Error> {
        let (_, registered) = self.find(&Assistant::Id(id))?;
        Ok(schemas::subgraphs(&registered.graph, namespace, recurse))
    }
}
