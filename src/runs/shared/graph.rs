//! The graph of a thread: that of its last run, for the config of that run.

use std::sync::Arc;

use super::{Error, Shared};
use crate::{
    assistants::{GraphConfig, Purpose, Registered},
    id::ThreadId,
    runs::{Status, request::Kwargs},
    value::{Map, Value},
};

/// Runs of a thread among which the last one that has begun is looked for: those that wait come first.
const NEWEST: usize = 10;

impl Shared {
    /// The graph of a thread, for operations whose result depends on its nodes: where the author makes graphs
    /// for configs, that for the config of the last run that has begun; for a thread without a run, as a fork
    /// is at first, that for the default config. `None` for a thread on which nothing has run.
    ///
    /// # Errors
    /// The thread names a graph that is not registered, or it cannot be made; or the storage failed.
    pub(crate) async fn graph_of_thread(
        &self,
        thread: ThreadId,
        metadata: &Map,
    ) -> Result<Option<Arc<Registered>>, Error> {
        let registered = self.required_graph_of(metadata)?;
        let Some(registered) = registered.filter(|one| self.assistants.has_factory(&one.name))
        else {
            return self.required_graph_of(metadata);
        };
        let name = &registered.name;
        // Without their requests, which may be large: of most the graph is still there.
        let runs = &self.parts.runs;
        let newest = runs.runs_without_requests(thread, None, NEWEST, 0).await?;
        let begun = newest.iter().find(|run| run.status != Status::Pending);
        let Some(last) = begun.or(newest.first()) else {
            return Ok(Some(registered));
        };
        if let Some(made) = self.assistants.made_for_run(name, last.id) {
            return Ok(Some(made));
        }
        let Some(run) = runs.run(thread, last.id).await? else {
            return Ok(Some(registered));
        };
        let Ok(kwargs) = Kwargs::from_value(&run.kwargs) else {
            return Ok(Some(registered));
        };
        let configurable = kwargs.config.get("configurable").and_then(Value::as_map);
        let of = configurable.and_then(|map| map.get("graph_id")?.as_str());
        if of.is_some_and(|of| *of != **name) {
            return Ok(Some(registered));
        }
        let config = GraphConfig::of(&kwargs.config, &kwargs.context);
        Ok(Some(
            self.assistants
                .made(name, config, Purpose::Thread(run.id))
                .await?,
        ))
    }

    /// [`graph_of_thread`](Self::graph_of_thread) for reads: in place of a graph that cannot be made stands that
    /// for the default config, whose channels are the same.
    ///
    /// # Errors
    /// The thread names a graph that is not registered, or the storage failed.
    pub(crate) async fn readable_graph_of(
        &self,
        thread: ThreadId,
        metadata: &Map,
    ) -> Result<Option<Arc<Registered>>, Error> {
        match self.graph_of_thread(thread, metadata).await {
            Err(Error::NotMade(reason)) => {
                tracing::warn!(%thread, reason, "a thread is shown with the graph of the default config");
                Ok(self.graph_of(metadata))
            }
            made => made,
        }
    }

    /// [`readable_graph_of`](Self::readable_graph_of) for what is shown of a thread in any case: a graph that is
    /// not registered is none.
    ///
    /// # Errors
    /// The storage failed.
    pub(crate) async fn shown_graph_of(
        &self,
        thread: ThreadId,
        metadata: &Map,
    ) -> Result<Option<Arc<Registered>>, Error> {
        if self.graph_of(metadata).is_none() {
            return Ok(None);
        }
        self.readable_graph_of(thread, metadata).await
    }
}
