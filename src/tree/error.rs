//! Errors of operations on the conversation tree.

use crate::{checkpoint, engine};

/// The kind of a refusal, which decides the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// 400: a value of the message API has the wrong form.
    Malformed,
    /// 403: the principal's level is too low.
    Forbidden,
    /// 404: there is no such thing, or it is not visible in the thread.
    Missing,
    /// 409: in conflict with the state of things.
    Conflict,
    /// 413: more than may be submitted, copied, stored or read at once.
    TooLarge,
    /// 422: the request has the wrong form.
    Invalid,
    /// 503: a projection has not reached the requested event.
    Behind,
    /// 503: what the request reads takes memory that others have now.
    NoMemory,
}

/// A failure. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is refused.
    #[error("{detail}")]
    Refused {
        /// Which status it is.
        kind: ErrorKind,
        /// A stable word for programs, for example `name_taken`.
        code: &'static str,
        /// What went wrong and what to do, for people.
        detail: String,
    },
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] checkpoint::Error),
    /// The graph's channels refuse a change.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

/// What the operations on trees return.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A refusal.
    pub fn refused(kind: ErrorKind, code: &'static str, detail: impl Into<String>) -> Self {
        Self::Refused {
            kind,
            code,
            detail: detail.into(),
        }
    }

    /// 413: a state takes more memory than one client may have. `instead` begins behind the setting.
    pub fn state_too_large(weight: u64, most: u64, instead: &str) -> Self {
        let detail = format!(
            "The state counts as {weight} bytes (those of many small values count several times), more than the \
             limit of {most}: raise BACKSTITCH_MEMORY_BUDGET or BACKSTITCH_SHARE{instead}"
        );
        Self::refused(ErrorKind::TooLarge, "too_large", detail)
    }

    /// 404 with a code, for example `branch_not_found`.
    pub fn missing(code: &'static str, detail: impl Into<String>) -> Self {
        Self::refused(ErrorKind::Missing, code, detail)
    }

    /// 503: a state is large, and others have the memory for it now.
    pub fn no_memory() -> Self {
        let detail = "Too many large states are being read. Try again later.";
        Self::refused(ErrorKind::NoMemory, "no_memory", detail)
    }

    /// Whether there was no memory for what was to be read.
    pub fn is_for_memory(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                kind: ErrorKind::NoMemory,
                ..
            }
        )
    }

    /// 409 with a code.
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::refused(ErrorKind::Conflict, code, detail)
    }

    /// 422 `invalid_request`.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::refused(ErrorKind::Invalid, "invalid_request", detail)
    }

    /// 400 with a code, for example `invalid_id`.
    pub fn malformed(code: &'static str, detail: impl Into<String>) -> Self {
        Self::refused(ErrorKind::Malformed, code, detail)
    }
}
