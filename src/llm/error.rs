//! Why a model did not reply.

use std::time::Duration;

/// Why a model did not reply. Nodes may find it in their errors, for example to choose which
/// failures are worth another attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A scripted model was called once too often.
    #[error("the script has {replies} replies, but the conversation asks for one more")]
    ScriptEnds {
        /// How many replies the script has.
        replies: usize,
    },
    /// The client for HTTP and TLS could not be set up.
    #[error("the client for models cannot start: {0}")]
    Client(String),
    /// A message that the protocol of the model has no form for.
    #[error("message {index} of the conversation cannot be sent to the model: {reason}")]
    Message {
        /// Its position in the conversation, from 0.
        index: usize,
        /// What is wrong.
        reason: String,
    },
    /// The request could not be built from the messages and tools.
    #[error("the request cannot be sent to the model: {0}")]
    Request(String),
    /// The server cannot be reached.
    #[error("the model at {at} cannot be reached: {reason}")]
    Unreachable {
        /// Base URL.
        at: String,
        /// What went wrong.
        reason: String,
    },
    /// The server responded with an error.
    #[error("the model at {at} refused with {status}: {reason}")]
    Refused {
        /// Base URL.
        at: String,
        /// Status of HTTP.
        status: u16,
        /// The server's message.
        reason: String,
        /// How long the server wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// The name of a model is none, or what it needs is not set.
    #[error("the model `{name}` cannot be used: {reason}")]
    Unknown {
        /// The name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// Nothing came from the model for too long.
    #[error("the model at {at} has been silent for {seconds} s")]
    Silent {
        /// Base URL.
        at: String,
        /// How long it may be.
        seconds: u64,
    },
    /// The reply is longer than it may be.
    #[error("the reply of the model at {at} is longer than {most} bytes")]
    TooLong {
        /// Base URL.
        at: String,
        /// How long it may be.
        most: usize,
    },
    /// The reply ended before the model reported its end.
    #[error("the answer of the model at {at} broke off: {reason}")]
    Broken {
        /// Base URL.
        at: String,
        /// What went wrong.
        reason: String,
    },
    /// The reply does not follow the protocol.
    #[error("the model at {at} sent what cannot be read: {reason}")]
    Unreadable {
        /// Base URL.
        at: String,
        /// What went wrong.
        reason: String,
    },
}

impl Error {
    /// How long the server wants to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } | Self::Silent { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 409 | 425 | 429 | 500..),
            _ => false,
        }
    }
}
