//! The registry of graphs with the assistant that the server makes for each of them, and the
//! assistants of clients.

mod lists;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    Change, Content, Defaults, Error, GraphConfig, Limits, Purpose, Registered, Source, Store,
    Tries,
    content::{self, UNTITLED, mirror},
    example,
    graphs::Graphs,
    schemas,
    store::{AssistantRow, ChangedAssistant, CreatedAssistant, NewAssistant, SYSTEM, Subject},
};
use crate::{
    graph::draw,
    id::{AssistantId, RunId},
    value::{Map, Value},
};

/// Which assistant a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assistant {
    /// By id.
    Id(AssistantId),
    /// The system assistant of a registered graph.
    Graph(Arc<str>),
}

/// What a run gets of its assistant.
#[derive(Clone)]
pub struct Resolved {
    /// The id.
    pub id: AssistantId,
    /// The graph, for the default config.
    pub registered: Arc<Registered>,
    /// Inherited metadata.
    pub metadata: Map,
    config: Map,
    context: Map,
}

impl Resolved {
    /// The config that its runs have below that of their requests.
    pub fn config(&self) -> &Map {
        &self.config
    }

    /// The config and the context of a run that requests these; `known` are the properties of the
    /// graph's schema of its context, if it has one.
    pub fn merge(
        &self,
        config: &Map,
        context: &Map,
        known: Option<&serde_json::Map<String, serde_json::Value>>,
    ) -> (Map, Map) {
        content::merge((&self.config, &self.context), (config, context), known)
    }
}

struct Inner {
    graphs: Graphs,
    by_id: BTreeMap<AssistantId, Arc<Registered>>,
    names: Arc<[Arc<str>]>,
    defaults: BTreeMap<Arc<str>, Defaults>,
    store: Arc<dyn Store>,
    limits: Limits,
}

/// The assistants of this server. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

impl Service {
    /// One assistant for each graph, with the defaults of its runs, and those in `store`. Making a graph
    /// for a config takes at most `making`.
    pub fn new<G: Into<Source>>(
        graphs: impl IntoIterator<Item = (Arc<str>, G)>,
        defaults: BTreeMap<Arc<str>, Defaults>,
        store: Arc<dyn Store>,
        limits: Limits,
        making: Duration,
    ) -> Self {
        let graphs = Graphs::new(graphs, making);
        let by_id = graphs
            .all()
            .map(|registered| (AssistantId::of_graph(&registered.name), registered.clone()))
            .collect();
        let mirrored = |defaults: Defaults| {
            let (config, context) = mirror(defaults.config, defaults.context);
            Defaults { config, context }
        };
        Self {
            inner: Arc::new(Inner {
                names: graphs.names().cloned().collect(),
                graphs,
                by_id,
                defaults: defaults
                    .into_iter()
                    .map(|(name, defaults)| (name, mirrored(defaults)))
                    .collect(),
                store,
                limits,
            }),
        }
    }

    /// Writes the assistants of the registered graphs.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn start(&self) -> Result<(), Error> {
        let all = self.inner.graphs.names().map(|name| NewAssistant {
            id: AssistantId::of_graph(name),
            owner: SYSTEM.into(),
            content: self.system_content(name),
        });
        Ok(self.inner.store.put_system(all.collect()).await?)
    }

    fn system_content(&self, graph: &Arc<str>) -> Content {
        let defaults = self.inner.defaults.get(graph).cloned().unwrap_or_default();
        Content {
            graph: graph.clone(),
            name: graph.to_string(),
            description: None,
            metadata: Map::from([("created_by", Value::str("system"))]),
            config: defaults.config,
            context: defaults.context,
        }
    }

    /// Names of the registered graphs, sorted.
    pub fn graph_names(&self) -> Vec<String> {
        self.inner.graphs.names().map(ToString::to_string).collect()
    }

    /// The names of the registered graphs, sorted, each with an input that it may have.
    pub fn examples(&self) -> Vec<(Arc<str>, String)> {
        let graphs = self.inner.graphs.all();
        graphs
            .map(|one| (one.name.clone(), example::input(&one.graph).to_string()))
            .collect()
    }

    /// The graph registered under a name, for the default config. Its channels are those of the graphs for
    /// all other configs, its nodes need not be.
    pub fn named(&self, name: &str) -> Option<Arc<Registered>> {
        self.inner.graphs.named(name).cloned()
    }

    /// Whether configs have graphs of their own.
    pub fn has_factory(&self, name: &str) -> bool {
        self.inner.graphs.has_factory(name)
    }

    /// The graph registered under a name, for a config; it is remembered as that of the run that it is for.
    ///
    /// # Errors
    /// No such graph, or it cannot be made.
    pub async fn made(
        &self,
        name: &str,
        config: GraphConfig,
        purpose: Purpose,
        tries: Option<&Tries>,
    ) -> Result<Arc<Registered>, Error> {
        match self.inner.graphs.of(name, config, purpose, tries).await {
            Ok(Some(registered)) => Ok(registered),
            Ok(None) => self.required(name),
            Err(reason) => Err(Error::NotMade {
                name: name.to_owned(),
                reason,
            }),
        }
    }

    /// The graph that a run had, while it is retained.
    pub fn made_for_run(&self, name: &str, run: RunId) -> Option<Arc<Registered>> {
        self.inner.graphs.of_run(name, run)
    }

    /// The graph of an assistant, for its config.
    async fn graph_of(&self, resolved: Resolved) -> Result<Arc<Registered>, Error> {
        let config = GraphConfig::of(&resolved.config, &resolved.context);
        self.made(&resolved.registered.name, config, Purpose::Assistant, None)
            .await
    }

    /// The graph registered under a name.
    ///
    /// # Errors
    /// No such graph.
    pub fn required(&self, name: &str) -> Result<Arc<Registered>, Error> {
        self.named(name).ok_or_else(|| Error::UnknownGraph {
            name: name.to_owned(),
            known: self.graph_names(),
        })
    }

    /// The graph of one of the server's own assistants.
    pub fn system(&self, id: AssistantId) -> Option<Arc<Registered>> {
        self.inner.by_id.get(&id).cloned()
    }

    /// What a run of an assistant gets. Without a viewer every assistant is seen.
    ///
    /// # Errors
    /// No such assistant, or none that the viewer sees; or the storage failed.
    pub async fn resolve(
        &self,
        viewer: Option<&Arc<str>>,
        assistant: &Assistant,
    ) -> Result<Resolved, Error> {
        let id = match assistant {
            Assistant::Graph(name) => AssistantId::of_graph(&self.required(name)?.name),
            Assistant::Id(id) => *id,
        };
        // Those of the server are known without looking them up.
        let content = match self.system(id) {
            Some(registered) => self.system_content(&registered.name),
            None => self.row(viewer.cloned(), id).await?.content,
        };
        Ok(Resolved {
            id,
            registered: self.required(&content.graph)?,
            metadata: content.metadata,
            config: content.config,
            context: content.context,
        })
    }

    fn subject(&self, viewer: Option<Arc<str>>, id: AssistantId) -> Subject {
        let graphs = self.inner.names.clone();
        Subject { id, viewer, graphs }
    }

    async fn row(&self, viewer: Option<Arc<str>>, id: AssistantId) -> Result<AssistantRow, Error> {
        let found = self.inner.store.assistant(self.subject(viewer, id)).await?;
        found.ok_or(Error::NoAssistant)
    }

    /// An assistant, in the form clients see.
    ///
    /// # Errors
    /// No such assistant, or the storage failed.
    pub async fn get(&self, viewer: Option<Arc<str>>, id: AssistantId) -> Result<Value, Error> {
        Ok(shown(&self.row(viewer, id).await?))
    }

    /// Creates an assistant of `owner`, with an id of its own without `id`; with `do_nothing` one
    /// that exists already is returned, if the owner sees it. That id is `id_of_key`, if there is one: what has it
    /// was created by an earlier attempt of the request.
    ///
    /// # Errors
    /// No such graph, the id is taken, it is too large, its owner has as many as it may, or the storage
    /// failed.
    pub async fn create(
        &self,
        owner: Arc<str>,
        viewer: Option<Arc<str>>,
        id: Option<AssistantId>,
        id_of_key: Option<AssistantId>,
        change: Change,
        do_nothing: bool,
    ) -> Result<Value, Error> {
        let graph = change.graph.clone().unwrap_or_default();
        let empty = Content {
            graph: self.required(&graph)?.name.clone(),
            name: UNTITLED.to_owned(),
            description: None,
            metadata: Map::new(),
            config: Map::new(),
            context: Map::new(),
        };
        let content = empty.with(&change);
        let (bytes, limit) = (content.bytes(), self.inner.limits.bytes);
        if bytes > limit {
            return Err(Error::TooLarge { bytes, limit });
        }
        let new = NewAssistant {
            id: id.or(id_of_key).unwrap_or_else(AssistantId::mint),
            owner,
            content,
        };
        let new_id = new.id;
        let most = self.inner.limits.most;
        match self.inner.store.create_assistant(new, most).await? {
            CreatedAssistant::New(row) => Ok(shown(&row)),
            CreatedAssistant::Full => Err(Error::Full(most)),
            CreatedAssistant::Exists(row) => {
                let is_visible =
                    viewer.is_none_or(|viewer| viewer == row.owner) || &*row.owner == SYSTEM;
                // Nobody else knows an id of ours, or of the key: its first creation was written, and its reply lost.
                if id.is_none() || (do_nothing && is_visible) {
                    Ok(shown(&row))
                } else {
                    Err(Error::Exists(new_id))
                }
            }
        }
    }

    /// Makes a new version of an assistant and activates it.
    ///
    /// # Errors
    /// No such assistant or graph, it is the server's, a limit is reached, or the storage failed.
    pub async fn change(
        &self,
        viewer: Option<Arc<str>>,
        id: AssistantId,
        change: Change,
    ) -> Result<Value, Error> {
        if let Some(graph) = &change.graph {
            self.required(graph)?;
        }
        let (subject, limits) = (self.subject(viewer, id), self.inner.limits);
        let changed = self.inner.store.change_assistant(subject, change, limits);
        self.changed(id, 0, changed.await?)
    }

    /// Activates a version of an assistant.
    ///
    /// # Errors
    /// No such assistant or version, it is the server's, or the storage failed.
    pub async fn activate(
        &self,
        viewer: Option<Arc<str>>,
        id: AssistantId,
        version: i64,
    ) -> Result<Value, Error> {
        let subject = self.subject(viewer, id);
        let changed = self.inner.store.activate_version(subject, version).await?;
        self.changed(id, version, changed)
    }

    /// Checks that an assistant may be deleted.
    ///
    /// # Errors
    /// No such assistant, it is the server's, or the storage failed.
    pub async fn check_deletion(
        &self,
        viewer: Option<Arc<str>>,
        id: AssistantId,
    ) -> Result<(), Error> {
        let row = self.row(viewer, id).await?;
        if &*row.owner == SYSTEM {
            return Err(Error::System(id));
        }
        Ok(())
    }

    /// Deletes an assistant with its versions. Runs that were created of it go on.
    ///
    /// # Errors
    /// No such assistant, it is the server's, or the storage failed.
    pub async fn delete(&self, viewer: Option<Arc<str>>, id: AssistantId) -> Result<(), Error> {
        let subject = self.subject(viewer, id);
        let deleted = self.inner.store.delete_assistant(subject).await?;
        self.changed(id, 0, deleted).map(drop)
    }

    fn changed(
        &self,
        id: AssistantId,
        version: i64,
        changed: ChangedAssistant,
    ) -> Result<Value, Error> {
        let limits = self.inner.limits;
        Err(match changed {
            ChangedAssistant::Done(row) => return Ok(shown(&row)),
            ChangedAssistant::Missing => Error::NoAssistant,
            ChangedAssistant::System => Error::System(id),
            ChangedAssistant::NoVersion => Error::NoVersion(version, id),
            ChangedAssistant::TooManyVersions => Error::TooManyVersions(id, limits.versions),
            ChangedAssistant::Metadata(reason) => Error::Metadata(reason),
            ChangedAssistant::TooLarge(bytes) => Error::TooLarge {
                bytes,
                limit: limits.bytes,
            },
        })
    }

    /// The drawing of an assistant's graph, `{"nodes", "edges"}`, with `depth` levels of subgraphs.
    ///
    /// # Errors
    /// No such assistant, or the storage failed.
    pub async fn drawing(
        &self,
        viewer: Option<Arc<str>>,
        assistant: &Assistant,
        depth: usize,
    ) -> Result<Value, Error> {
        let resolved = self.resolve(viewer.as_ref(), assistant).await?;
        let registered = self.graph_of(resolved).await?;
        let drawing = draw::draw(&registered.graph, depth);
        Ok(Value::from_serde_json(drawing.to_json()))
    }

    /// The JSON schemas of an assistant's graph.
    ///
    /// # Errors
    /// No such assistant, or the storage failed.
    pub async fn schemas(
        &self,
        viewer: Option<Arc<str>>,
        assistant: &Assistant,
    ) -> Result<Value, Error> {
        let resolved = self.resolve(viewer.as_ref(), assistant).await?;
        let registered = self.graph_of(resolved).await?;
        let mut map = Map::with_capacity(6);
        map.insert("graph_id", Value::Str(registered.name.clone()));
        map.extend(schemas::schemas(&registered.graph));
        Ok(Value::map(map))
    }

    /// The schemas of subgraphs by namespace: all of them, or those of one namespace. Those below
    /// the first level are included if `recurse` is true.
    ///
    /// # Errors
    /// No such assistant, or the storage failed.
    pub async fn subgraphs(
        &self,
        viewer: Option<Arc<str>>,
        id: AssistantId,
        namespace: Option<&str>,
        recurse: bool,
    ) -> Result<Value, Error> {
        let resolved = self.resolve(viewer.as_ref(), &Assistant::Id(id)).await?;
        let registered = self.graph_of(resolved).await?;
        Ok(schemas::subgraphs(&registered.graph, namespace, recurse))
    }
}

/// An assistant in the form clients see.
fn shown(row: &AssistantRow) -> Value {
    let content = &row.content;
    let mut map = Map::with_capacity(10);
    map.insert("assistant_id", row.id.to_string());
    map.insert("graph_id", Value::Str(content.graph.clone()));
    map.insert("config", Value::map(content.config.clone()));
    map.insert("context", Value::map(content.context.clone()));
    map.insert("metadata", Value::map(content.metadata.clone()));
    map.insert("name", content.name.clone());
    map.insert("created_at", row.created_at.to_string());
    map.insert("updated_at", row.updated_at.to_string());
    map.insert("version", row.version);
    map.insert("description", content.description.clone());
    Value::map(map)
}
