//! Whom an author's authentication lets in, what they may do, and whom it refuses.

use std::{fmt, sync::Arc};

use hyper::StatusCode;

use super::error::Error;
use crate::tree::members::NAME_MAX;

/// Who has sent a request, and what they may do, as the program that serves has found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    name: Arc<str>,
    role: Role,
}

/// What a principal may do beside what the members of a thread may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Role {
    /// Reads, and changes nothing.
    Reads,
    /// Everything with their own things, and with others' what they were given.
    Acts,
    /// Everything, with everybody's.
    Administers,
}

impl Principal {
    /// A principal of this name: threads, runs, crons and items of long-term memory that they make
    /// are theirs, and they see those of nobody else who has not shared them. The name is at most 255
    /// bytes, and the same principal has the same name in every request.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            role: Role::Acts,
        }
    }

    /// They may read what is theirs or shared with them, and change nothing.
    pub fn reads_only(mut self) -> Self {
        self.role = Role::Reads;
        self
    }

    /// They administer the server, as those do whom `BACKSTITCH_ADMINS` names.
    pub fn administers(mut self) -> Self {
        self.role = Role::Administers;
        self
    }

    /// Their name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(in crate::http) fn role(&self) -> Role {
        self.role
    }

    /// What is wrong with a name that cannot be stored.
    pub(in crate::http) fn problem(&self) -> Option<&'static str> {
        if self.name.is_empty() {
            Some("the name of the principal is empty")
        } else if self.name.len() > NAME_MAX {
            Some("the name of the principal is longer than 255 bytes")
        } else if self.name.chars().any(char::is_control) {
            Some("the name of the principal has control characters")
        } else {
            None
        }
    }
}

/// Why a request is not carried out. Any error becomes one by `?`: the client then reads that the
/// server failed, and the log why.
pub struct Refused(Reason);

enum Reason {
    /// The client reads it.
    Shown(StatusCode, String),
    /// Only the log has it.
    Failed(anyhow::Error),
}

impl Refused {
    /// 401: the request does not say who sends it, or says it wrongly. The text is for the client.
    pub fn unknown(detail: impl Into<String>) -> Self {
        Self(Reason::Shown(StatusCode::UNAUTHORIZED, detail.into()))
    }

    /// 403: it is known who sends it, and they may not. The text is for the client.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self(Reason::Shown(StatusCode::FORBIDDEN, detail.into()))
    }

    /// 503: it cannot be found out now, and the client may try again. The text is for the client.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self(Reason::Shown(
            StatusCode::SERVICE_UNAVAILABLE,
            detail.into(),
        ))
    }

    pub(in crate::http) fn into_error(self) -> Error {
        match self.0 {
            Reason::Shown(StatusCode::SERVICE_UNAVAILABLE, detail) => Error::unavailable(detail),
            Reason::Shown(status, detail) => Error::new(status, detail),
            Reason::Failed(error) => Error::internal(&*error),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(Reason::Failed(error.into()))
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Shown(status, detail) => write!(f, "{status}: {detail}"),
            Reason::Failed(error) => error.fmt(f),
        }
    }
}
