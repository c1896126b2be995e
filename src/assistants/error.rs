//! Why an operation on assistants failed.

use crate::{checkpoint, id::AssistantId};

/// Why an operation on assistants failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No registered graph has this name.
    #[error("there is no graph `{name}`")]
    UnknownGraph {
        /// The name in the request.
        name: String,
        /// The names of the registered graphs.
        known: Vec<String>,
    },
    /// The graph cannot be made for the config.
    #[error("the graph `{name}` cannot be made for this config: {reason}")]
    NotMade {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// No assistant has this id.
    #[error("there is no such assistant")]
    NoAssistant,
    /// An assistant has this id.
    #[error("Assistant {0} already exists")]
    Exists(AssistantId),
    /// It has no such version.
    #[error("Version {0} not found for assistant {1}")]
    NoVersion(i64, AssistantId),
    /// The server made it.
    #[error(
        "Assistant {0} is the server's own and cannot be changed: create one of the same graph"
    )]
    System(AssistantId),
    /// It has as many versions as it may.
    #[error("Assistant {0} has {1} versions, which is the most: create another one")]
    TooManyVersions(AssistantId, usize),
    /// Its principal has as many as it may.
    #[error(
        "A principal has at most {0} assistants: delete some, or let the operator raise BACKSTITCH_MAX_ASSISTANTS"
    )]
    Full(usize),
    /// It is too large.
    #[error("An assistant has at most {limit} bytes, not {bytes}")]
    TooLarge {
        /// How many it would have.
        bytes: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// Its metadata are too large.
    #[error("{0}")]
    Metadata(String),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] checkpoint::Error),
}
