//! What the run service refuses or fails with.

use crate::{
    assistants, checkpoint, engine,
    id::{CheckpointId, RunId, ThreadId},
    tree::{self, members::Denied},
};

/// Why a request about runs was not carried out. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such thread.
    #[error("Thread with ID {0} not found")]
    NoThread(ThreadId),
    /// No such thread, or no such assistant, at the creation of a run.
    #[error("Thread or assistant not found.")]
    NoThreadOrAssistant,
    /// The thread that was to come into being with a run is there, and the client may not know of it.
    #[error("Thread with ID {0} already exists")]
    ThreadTaken(ThreadId),
    /// No registered graph has this name.
    #[error("there is no graph `{name}`")]
    UnknownGraph {
        /// The name in the request.
        name: String,
        /// The names of the registered graphs.
        known: Vec<String>,
    },
    /// The thread's graph is not one of this server.
    #[error("Graph '{name}' not found. Expected one of: {}", listed(known))]
    GraphGone {
        /// The thread's graph.
        name: String,
        /// The names of the registered graphs.
        known: Vec<String>,
    },
    /// A graph cannot be made for the config of a run: the whole reason.
    #[error("{0}")]
    NotMade(String),
    /// No such run.
    #[error("Run not found")]
    NoRun(RunId),
    /// An interrupt that a run is to resume was never there, or was resumed already.
    #[error("there is no open interrupt {0:?}: it was resumed already, or never there")]
    NoInterrupt(std::sync::Arc<str>),
    /// The checkpoint is not one of the thread.
    #[error("Checkpoint {0} not found")]
    NoCheckpoint(CheckpointId),
    /// The run id is taken.
    #[error("Run with ID {0} already exists")]
    RunExists(RunId),
    /// Another run is pending or running, and the strategy of the request is `reject`.
    #[error("the thread is busy")]
    Busy,
    /// The thread changed whenever the interrupts to resume were looked up.
    #[error("the thread changes all the time: send the request again")]
    Changed,
    /// As many runs as are allowed wait on the branch.
    #[error(
        "{0} runs wait on this branch already: wait for them or cancel some, or let the operator \
         raise BACKSTITCH_MAX_QUEUED"
    )]
    QueueFull(usize),
    /// The request cannot be carried out as it stands.
    #[error("{0}")]
    Invalid(String),
    /// No run that the request names can be cancelled.
    #[error("there are no runs to cancel")]
    NothingToCancel {
        /// There is such a run, and it has ended.
        known: bool,
    },
    /// There are more than one request cancels.
    #[error("{0} runs were cancelled, and there are more: send the request again")]
    MoreToCancel(usize),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// The tree refused.
    #[error(transparent)]
    Tree(#[from] tree::Error),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] checkpoint::Error),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        match denied.foreign() {
            Some(thread) => Self::NoThread(thread),
            None => Self::Tree(denied.into()),
        }
    }
}

impl From<assistants::Error> for Error {
    fn from(error: assistants::Error) -> Self {
        match error {
            assistants::Error::UnknownGraph { name, known } => Self::UnknownGraph { name, known },
            assistants::Error::Storage(error) => Self::Storage(error),
            assistants::Error::NoAssistant => Self::NoThreadOrAssistant,
            assistants::Error::NotMade { .. } => Self::NotMade(error.to_string()),
            other => Self::Invalid(other.to_string()),
        }
    }
}

/// `['a', 'b']`.
fn listed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    format!("[{}]", quoted.join(", "))
}
