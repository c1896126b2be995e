//! The graph of a thread: that of its last run, for the config of that run.

use std::sync::Arc;

use super::{Error, Shared};
use crate::{
    assistants::{GraphConfig, Purpose, Registered, Tries},
    id::{RunId, ThreadId},
    value::{Map, Value},
};

/// Pages of a thread's runs in which the last one that has begun is searched for: before it come those that
/// wait, and those that were cancelled while they waited.
const PAGES: [usize; 2] = [10, 1000];

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
        tries: Option<&Tries>,
    ) -> Result<Option<Arc<Registered>>, Error> {
        let registered = self.required_graph_of(metadata)?;
        let Some(registered) = registered.filter(|one| self.assistants.has_factory(&one.name))
        else {
            return self.required_graph_of(metadata);
        };
        let name = &registered.name;
        let Some(last) = self.last_begun(thread).await? else {
            return Ok(Some(registered));
        };
        if let Some(made) = self.assistants.made_for_run(name, last) {
            return Ok(Some(made));
        }
        let config = self.of_request(thread, last, |_, kwargs| {
            let of = kwargs.configurable("graph_id").and_then(Value::as_str);
            let is_other = of.is_some_and(|of| *of != **name);
            (!is_other).then(|| GraphConfig::of(&kwargs.config, &kwargs.context))
        });
        let Some(config) = config.await?.flatten() else {
            return Ok(Some(registered));
        };
        Ok(Some(
            self.assistants
                .made(name, config, Purpose::Thread(last), tries)
                .await?,
        ))
    }

    /// The last run of a thread that has begun: one that was cancelled while it waited left nothing.
    async fn last_begun(&self, thread: ThreadId) -> Result<Option<RunId>, Error> {
        let mut offset = 0;
        for limit in PAGES {
            // Without their requests, which may be large: of most the graph is still there.
            let runs = &self.parts.runs;
            let page = runs.runs_without_requests(thread, None, limit, offset);
            let page = page.await?;
            if let Some(run) = page.iter().find(|run| run.attempt > 0) {
                return Ok(Some(run.id));
            }
            if page.len() < limit {
                break;
            }
            offset += limit;
        }
        Ok(None)
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
        tries: Option<&Tries>,
    ) -> Result<Option<Arc<Registered>>, Error> {
        match self.graph_of_thread(thread, metadata, tries).await {
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
        tries: Option<&Tries>,
    ) -> Result<Option<Arc<Registered>>, Error> {
        if self.graph_of(metadata).is_none() {
            return Ok(None);
        }
        self.readable_graph_of(thread, metadata, tries).await
    }
}
