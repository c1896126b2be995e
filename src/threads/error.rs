//! What the service of threads refuses or fails with.

use crate::{
    assistants, checkpoint, engine,
    id::{CheckpointId, ThreadId},
    runs,
    tree::{self, members::Denied},
};

/// Why a request about a thread was not carried out. Unless it says otherwise, nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such thread.
    #[error("Thread with ID {0} not found")]
    NoThread(ThreadId),
    /// The thread id is taken.
    #[error("Thread with ID {0} already exists")]
    ThreadExists(ThreadId),
    /// The thread has no graph yet: no run was ever created on it.
    #[error(
        "Thread '{0}' has no assigned graph ID. Start a run on it, or create it with \
         metadata.graph_id."
    )]
    NoGraph(ThreadId),
    /// The checkpoint is not one of the thread.
    #[error("Checkpoint {0} not found")]
    NoCheckpoint(CheckpointId),
    /// A state edit while a run is pending or running.
    #[error(
        "Thread {0} has in-flight runs: wait for them to finish or cancel them before changing \
         its state"
    )]
    InFlight(ThreadId),
    /// The request cannot be carried out as it stands.
    #[error("{0}")]
    Invalid(String),
    /// The thread was created, and updates of its state were not applied.
    #[error("Thread {0} was created, but there were problems updating the state: {1}")]
    CreatedWithoutUpdates(ThreadId, Box<Self>),
    /// The state that is read is large, and others are being read.
    #[error("Too many large states are being read. Try again later.")]
    NoMemory,
    /// The tree refused.
    #[error(transparent)]
    Tree(#[from] tree::Error),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] checkpoint::Error),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The service of runs refused, for a reason that only it has.
    #[error(transparent)]
    Run(Box<runs::Error>),
}

/// What the operations on threads return.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl From<runs::Error> for Error {
    /// What both services may say has one form here, so that nobody has to look for it in two.
    fn from(error: runs::Error) -> Self {
        match error {
            runs::Error::NoThread(id) => Self::NoThread(id),
            runs::Error::NoCheckpoint(id) => Self::NoCheckpoint(id),
            runs::Error::Invalid(reason) => Self::Invalid(reason),
            runs::Error::Tree(error) => Self::Tree(error),
            runs::Error::Storage(error) => Self::Storage(error),
            runs::Error::Engine(error) => Self::Engine(error),
            other => Self::Run(Box::new(other)),
        }
    }
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        runs::Error::from(denied).into()
    }
}

impl From<assistants::Error> for Error {
    fn from(error: assistants::Error) -> Self {
        runs::Error::from(error).into()
    }
}
