//! What a run fails with, under the class names clients know.

use crate::{
    channel,
    checkpoint::saver,
    error::{Raised, one_line},
    extract::Rejection,
    graph::{Goto, UnlistedTarget},
    id::{CheckpointId, TaskId},
    state::Unreadable,
    value::{Map, Value},
};
use std::{fmt, sync::Arc};

/// The failure of a run or of a state call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error with a class: of a node, of a channel, or of the engine itself.
    #[error("{class}: {message}")]
    Failed {
        /// LangGraph's class name, or what a node chose with [`Raised`].
        class: String,
        /// What happened, with node, task and checkpoint where they matter.
        message: String,
    },
    /// A mistake of the graph, of a node or of a client that has a kind of its own.
    #[error("{}: {message}{location}", kind.class())]
    Mistake {
        /// Which.
        kind: Mistake,
        /// What happened.
        message: String,
        /// Where.
        location: ErrorLocation,
    },
    /// A channel refused what was written to it.
    #[error("{}: At key '{channel}': {source}{location}", source.class())]
    Channel {
        /// The channel.
        channel: Arc<str>,
        /// Why.
        source: channel::Error,
        /// Who wrote.
        location: ErrorLocation,
    },
    /// A command for the parent graph that nobody took.
    #[error("ParentCommand: a command was sent to the parent graph, but there is none")]
    ParentCommand(Box<ToParent>),
    /// The storage failed, or another writer took over.
    #[error(transparent)]
    Storage(#[from] saver::Error),
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
}

/// Mistakes with a kind of their own. Each has the class under which LangGraph reports it, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mistake {
    /// A route chose a key that is none of its targets.
    RouteKey,
    /// A command goes to a node that the graph does not have.
    Goto,
    /// A fan-out to END, which is no node that could take an argument.
    EndArgument,
    /// One resume value for several interrupts, without the id of one.
    AmbiguousResume,
    /// A resume value while no node waits at an interrupt.
    NothingToResume,
    /// Resume values by ids of which some are of no interrupt.
    UnknownInterrupt,
    /// A resume value that the node at the interrupt cannot use.
    ResumeShape,
    /// A state update as a node that the graph does not have.
    AsNode,
    /// A state update without a node, and several could be meant.
    AmbiguousNode,
    /// A stored value does not have the form that the graph or a node needs.
    StoredForm,
    /// More tasks for one superstep than are allowed.
    FanOut,
}

impl Mistake {
    /// The class name clients see.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::RouteKey => "KeyError",
            Self::Goto => "UnknownNodeError",
            Self::NothingToResume => "NothingToResumeError",
            Self::UnknownInterrupt => "UnknownInterruptError",
            Self::ResumeShape => "ValueError",
            Self::AsNode | Self::AmbiguousNode | Self::EndArgument => "InvalidUpdateError",
            Self::AmbiguousResume => "RuntimeError",
            Self::StoredForm => "StateError",
            Self::FanOut => "FanOutError",
        }
    }
}

impl From<UnlistedTarget> for Error {
    fn from(unlisted: UnlistedTarget) -> Self {
        Self::mistake(Mistake::RouteKey, unlisted.to_string())
    }
}

/// Where in a run an error happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorLocation {
    /// The tasks, each with its node.
    pub tasks: Vec<(Arc<str>, TaskId)>,
    /// The checkpoint they run from, or the one that was addressed.
    pub checkpoint: Option<CheckpointId>,
}

/// What clients see of a failure of the storage: what the database says of it is for the log.
const STORAGE_FAILED: &str = "the storage of this server failed: its log has the cause";
/// What clients see when a run has given up a read that took too long at each attempt.
const READ_LIMIT: &str = "a read of this run takes longer in the database than this server allows \
    (BACKSTITCH_READ_LIMIT), and did each time that it was attempted";

/// Names of tasks shown in full; of a thousand nobody reads.
const SHOWN: usize = 5;

impl fmt::Display for ErrorLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self
            .tasks
            .iter()
            .take(SHOWN)
            .map(|(node, task)| format!("node `{node}`, task {task}"))
            .collect();
        if self.tasks.len() > SHOWN {
            parts.push(format!("{} more tasks", self.tasks.len() - SHOWN));
        }
        parts.extend(self.checkpoint.map(|id| format!("checkpoint {id}")));
        if parts.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", parts.join(", "))
        }
    }
}

/// A command on its way to the parent graph.
#[derive(Clone, Debug, Default)]
pub struct ToParent {
    /// Updates of the parent's channels.
    pub writes: Vec<(Arc<str>, Value)>,
    /// Nodes of the parent.
    pub goto: Vec<Goto>,
}

impl Error {
    /// An error of `class`.
    pub(crate) fn failed(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed {
            class: class.into(),
            message: message.into(),
        }
    }

    /// Writes or returned values that do not fit.
    pub(crate) fn invalid_update(message: impl Into<String>) -> Self {
        Self::failed("InvalidUpdateError", message)
    }

    /// Misuse of a call.
    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self::failed("ValueError", message)
    }

    /// A mistake with a kind of its own.
    pub(crate) fn mistake(kind: Mistake, message: impl Into<String>) -> Self {
        Self::Mistake {
            kind,
            message: message.into(),
            location: ErrorLocation::default(),
        }
    }

    /// A channel refused its writes.
    pub(crate) fn channel(name: &Arc<str>, source: channel::Error) -> Self {
        Self::Channel {
            channel: name.clone(),
            source,
            location: ErrorLocation::default(),
        }
    }

    /// The same error with the location where it happened, unless one is known that is nearer.
    #[must_use]
    pub(crate) fn at(mut self, here: impl FnOnce() -> ErrorLocation) -> Self {
        if let Self::Mistake { location, .. } | Self::Channel { location, .. } = &mut self
            && *location == ErrorLocation::default()
        {
            *location = here();
        }
        self
    }

    /// Which mistake it is, of those with a kind of their own.
    pub fn kind(&self) -> Option<Mistake> {
        match self {
            Self::Mistake { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// The class name clients see.
    pub fn class(&self) -> &str {
        match self {
            Self::Failed { class, .. } => class,
            Self::Mistake { kind, .. } => kind.class(),
            Self::Channel { source, .. } => source.class(),
            Self::ParentCommand(_) => "ParentCommand",
            Self::Storage(saver::Error::Fenced) => "Fenced",
            Self::Storage(saver::Error::Pruned(_)) => "ValueError",
            Self::Storage(saver::Error::TookTooLong) => "ReadLimitError",
            Self::Storage(_) => "InternalError",
            Self::Cancelled => "CancelledError",
        }
    }

    /// Whether it is of the server's own making, so that its text is no client's business.
    pub(crate) fn is_internal(&self) -> bool {
        use saver::Error::{Fenced, Pruned, TookTooLong};
        let shown = |error: &saver::Error| matches!(error, Fenced | Pruned(_) | TookTooLong);
        matches!(self, Self::Storage(error) if !shown(error))
    }

    /// The message clients see.
    pub fn message(&self) -> String {
        match self {
            Self::Failed { message, .. } => message.clone(),
            Self::Mistake {
                message, location, ..
            } => format!("{message}{location}"),
            Self::Channel {
                channel,
                source,
                location,
            } => format!("At key '{channel}': {source}{location}"),
            Self::Storage(error @ (saver::Error::Fenced | saver::Error::Pruned(_))) => {
                error.to_string()
            }
            Self::Storage(saver::Error::TookTooLong) => READ_LIMIT.into(),
            Self::Storage(_) => STORAGE_FAILED.into(),
            other => other.to_string(),
        }
    }

    /// `{"error": class, "message": message}`: the form of events, rows and stored failures.
    pub fn to_value(&self) -> Value {
        let mut map = Map::with_capacity(2);
        map.insert("error", self.class());
        map.insert("message", self.message());
        Value::map(map)
    }

    /// The error that a node returned. [`Raised`] anywhere in the chain decides the class.
    pub(crate) fn of_node(error: anyhow::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(error) => {
                // Of the storage a node knows nothing, and clients neither.
                if let Some(storage) = error.downcast_ref::<saver::Error>() {
                    return Self::Storage(storage.clone());
                }
                if let Some(saver::Masked(storage)) = error.downcast_ref() {
                    return Self::Storage(storage.clone());
                }
                if let Some(raised) = error.downcast_ref::<Raised>() {
                    return Self::failed(&raised.class, &raised.message);
                }
                if let Some(unlisted) = error.downcast_ref::<UnlistedTarget>() {
                    return unlisted.clone().into();
                }
                let form = matches!(error.downcast_ref(), Some(Rejection::State { .. }));
                if form || error.downcast_ref::<Unreadable>().is_some() {
                    return Self::mistake(Mistake::StoredForm, one_line(&error));
                }
                Self::failed("NodeError", one_line(&error))
            }
        }
    }
}
