//! What the handlers ask of the rest of the program.

pub mod assistants;
pub mod branches;
pub mod events;
pub mod forks;
pub mod messages;

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;

use super::{Error, OnDisconnect};
use crate::{
    id::{AssistantId, ThreadId},
    runs::{
        self,
        request::{
            self, Address, Assistant, Cancel, CancelAction, Prune, Target, Watch,
            threads::{Create, Edit, Filter, History, Search, View},
        },
    },
    stream::FrameSource,
    value::{Map, Value},
};

/// How deep to draw subgraphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xray {
    /// So many levels; zero draws a subgraph as one node.
    Levels(usize),
    /// All of them.
    All,
}

/// A stream of a run that was just created.
pub struct Streaming {
    /// The run.
    pub run: Target,
    /// Its frames; after the last one the run's row is final.
    pub frames: Box<dyn FrameSource>,
    /// What to do when the client leaves first.
    pub on_disconnect: Option<OnDisconnect>,
}

/// The end of a run that was just created.
pub struct Waiting {
    /// The run.
    pub run: Target,
    /// The final values with `__interrupt__`, or `__error__`.
    pub result: BoxFuture<'static, Value>,
    /// What to do when the client leaves first.
    pub on_disconnect: Option<OnDisconnect>,
}

/// The end of a run that exists already, and what to do when the client leaves first.
pub type Outcome = (BoxFuture<'static, Value>, Option<OnDisconnect>);

/// Everything HTTP clients can ask for. Requests arrive validated; a thread, run or assistant
/// that does not exist is the implementation's to report. Objects of the engine (states,
/// history, assistants, graphs) are returned in the form clients see.
///
/// A method may be dropped only at the end of the process: it runs to its end even when the
/// client has gone.
#[async_trait]
pub trait Api: branches::Branches + messages::Messages + forks::Forks + events::Events {
    /// Whether dependencies answer.
    async fn check(&self) -> Result<(), Error>;

    /// Creates a thread. A failed superstep is an error with status 201: the thread exists.
    async fn create_thread(&self, create: Create) -> Result<View, Error>;
    /// One thread.
    async fn thread(&self, id: ThreadId) -> Result<View, Error>;
    /// Merges metadata.
    async fn patch_thread(&self, id: ThreadId, metadata: Map) -> Result<View, Error>;
    /// Deletes a thread, cancelling what runs on it.
    async fn delete_thread(&self, id: ThreadId) -> Result<(), Error>;
    /// A page of threads.
    async fn search_threads(&self, search: Search) -> Result<Vec<View>, Error>;
    /// How many threads there are.
    async fn count_threads(&self, filter: Filter) -> Result<u64, Error>;

    /// Copies a thread with its history.
    async fn copy_thread(&self, _id: ThreadId, _owner: Arc<str>) -> Result<View, Error> {
        Err(Error::unsupported())
    }
    /// Deletes threads, or all but their latest checkpoint. Unknown ids are skipped.
    async fn prune_threads(&self, _ids: Vec<ThreadId>, _how: Prune) -> Result<u64, Error> {
        Err(Error::unsupported())
    }
    /// Watches all runs and edits of a thread, which need not exist; it never ends by itself.
    async fn watch_thread(
        &self,
        _id: ThreadId,
        _watch: Watch,
    ) -> Result<Box<dyn FrameSource>, Error> {
        Err(Error::unsupported())
    }

    /// State of a thread at its head or at a checkpoint, with or without nested states.
    async fn state(&self, id: ThreadId, at: Address, subgraphs: bool) -> Result<Value, Error>;
    /// States of a thread, newest first.
    async fn history(&self, id: ThreadId, page: History) -> Result<Vec<Value>, Error>;
    /// Changes the state: `{"checkpoint", "configurable", "checkpoint_id"}`.
    async fn edit_state(&self, id: ThreadId, edit: Edit) -> Result<Value, Error>;

    /// Creates a run, on a new temporary thread without `thread`, and lets it go.
    async fn create_run(
        &self,
        thread: Option<ThreadId>,
        run: request::Run,
    ) -> Result<runs::Run, Error>;
    /// Creates a run and watches it.
    async fn stream_run(
        &self,
        thread: Option<ThreadId>,
        run: request::Run,
    ) -> Result<Streaming, Error>;
    /// Creates a run and waits for its end.
    async fn wait_run(&self, thread: Option<ThreadId>, run: request::Run)
    -> Result<Waiting, Error>;
    /// Runs of a thread, newest first.
    async fn runs(
        &self,
        thread: ThreadId,
        status: Option<runs::Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<runs::Run>, Error>;
    /// One run.
    async fn run(&self, run: Target) -> Result<runs::Run, Error>;
    /// Deletes a run with its checkpoints.
    async fn delete_run(&self, run: Target) -> Result<(), Error>;
    /// Waits for the end of a run; one that does not exist is an `__error__`.
    async fn join_run(&self, run: Target, cancel_on_disconnect: bool) -> Result<Outcome, Error>;
    /// Whether the events of a run are there from its first one on.
    fn keeps_events(&self, run: Target) -> bool;
    /// Watches a run; one that does not exist is an `error` event.
    async fn join_stream(
        &self,
        run: Target,
        join: request::Join,
    ) -> Result<(Box<dyn FrameSource>, Option<OnDisconnect>), Error>;
    /// Cancels a run. With `wait` it returns when the run has stopped, with what it leaves.
    async fn cancel_run(
        &self,
        run: Target,
        action: CancelAction,
        wait: bool,
    ) -> Result<Option<Value>, Error>;
    /// Cancels several runs; none at all is a 404. Of all threads only those count that
    /// `principal` may write to.
    async fn cancel_runs(
        &self,
        _which: Cancel,
        _action: CancelAction,
        _principal: Option<Arc<str>>,
    ) -> Result<(), Error> {
        Err(Error::unsupported())
    }

    /// One assistant.
    async fn assistant(&self, id: AssistantId) -> Result<Value, Error>;
    /// A page of assistants.
    async fn search_assistants(&self, search: assistants::Search) -> Result<Vec<Value>, Error>;
    /// How many assistants there are.
    async fn count_assistants(&self, _filter: assistants::Filter) -> Result<u64, Error> {
        Err(Error::unsupported())
    }
    /// Creates an assistant.
    async fn create_assistant(&self, _create: assistants::Create) -> Result<Value, Error> {
        Err(Error::unsupported())
    }
    /// Makes a new version of an assistant.
    async fn patch_assistant(
        &self,
        _id: AssistantId,
        _patch: assistants::Patch,
    ) -> Result<Value, Error> {
        Err(Error::unsupported())
    }
    /// Deletes an assistant, with its threads when asked.
    async fn delete_assistant(&self, _id: AssistantId, _threads: bool) -> Result<(), Error> {
        Err(Error::unsupported())
    }
    /// Versions of an assistant, newest first.
    async fn assistant_versions(
        &self,
        _id: AssistantId,
        _page: assistants::Versions,
    ) -> Result<Vec<Value>, Error> {
        Err(Error::unsupported())
    }
    /// Makes a version of an assistant the one that runs.
    async fn pick_version(&self, _id: AssistantId, _version: i64) -> Result<Value, Error> {
        Err(Error::unsupported())
    }
    /// Schemas of subgraphs by name, of all levels or the first, of one namespace or all.
    async fn subgraphs(
        &self,
        _assistant: AssistantId,
        _namespace: Option<String>,
        _recurse: bool,
    ) -> Result<Value, Error> {
        Err(Error::unsupported())
    }
    /// The drawing of an assistant's graph: `{"nodes", "edges"}`.
    async fn graph(&self, assistant: Assistant, xray: Xray) -> Result<Value, Error>;
    /// JSON schemas of an assistant's graph.
    async fn schemas(&self, assistant: AssistantId) -> Result<Value, Error>;
}
