//! What a run fails with, under the class names clients know.

use crate::{
    channel,
    checkpoint::saver,
    error::{Raised, one_line},
    graph::Goto,
    value::{Map, Value},
};
use std::sync::Arc;

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
    pub fn failed(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed {
            class: class.into(),
            message: message.into(),
        }
    }

    /// Writes or returned values that do not fit.
    pub fn invalid_update(message: impl Into<String>) -> Self {
        Self::failed("InvalidUpdateError", message)
    }

    /// Misuse of a call.
    pub fn value(message: impl Into<String>) -> Self {
        Self::failed("ValueError", message)
    }

    /// Stored data this graph cannot use.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::failed("StateError", message)
    }

    /// A channel refused its writes.
    pub fn channel(name: &str, error: channel::Error) -> Self {
        Self::failed(error.class(), format!("At key '{name}': {error}"))
    }

    /// The class name clients see.
    pub fn class(&self) -> &str {
        match self {
            Self::Failed { class, .. } => class,
            Self::ParentCommand(_) => "ParentCommand",
            Self::Storage(saver::Error::Fenced) => "Fenced",
            Self::Storage(_) => "StorageError",
            Self::Cancelled => "CancelledError",
        }
    }

    /// The message clients see.
    pub fn message(&self) -> String {
        match self {
            Self::Failed { message, .. } => message.clone(),
            Self::Storage(error) => error.to_string(),
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

    /// What a node returned as an error. [`Raised`] anywhere in the chain gives the class.
    pub fn of_node(error: anyhow::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(error) => {
                if let Some(raised) = error.downcast_ref::<Raised>() {
                    return Self::failed(&raised.class, &raised.message);
                }
                Self::failed("NodeError", one_line(&error))
            }
        }
    }
}
