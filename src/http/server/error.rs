//! Error responses: `{"detail": "...", "code"?: "..."}`.

use std::{borrow::Cow, fmt};

use hyper::{
    Response, StatusCode,
    header::{HeaderValue, RETRY_AFTER},
};
use uuid::Uuid;

use super::body::{self, Body};
use crate::{
    checkpoint, engine,
    id::{RunId, ThreadId},
    runs, threads, tree,
    value::{Map, Value},
};

/// An error as the response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// HTTP status.
    pub status: StatusCode,
    /// What went wrong and what to do, for people.
    pub detail: Cow<'static, str>,
    /// A stable word for programs; only for conditions LangGraph's server does not have.
    pub code: Option<&'static str>,
    /// The word for a condition that it does have; shown in operations that it does not have.
    own_code: Option<&'static str>,
}

impl Error {
    /// An error with this status.
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            detail: detail.into(),
            code: None,
            own_code: None,
        }
    }

    /// With a word for programs.
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    fn with_own_code(mut self, code: &'static str) -> Self {
        self.own_code = Some(code);
        self
    }

    /// With a code in any case, as operations have it that LangGraph does not have.
    pub fn coded(mut self) -> Self {
        self.code = self.code.or(self.own_code).or(match self.status {
            StatusCode::UNPROCESSABLE_ENTITY => Some("invalid_request"),
            StatusCode::PAYLOAD_TOO_LARGE => Some("too_large"),
            _ => None,
        });
        self
    }

    /// 422: the request has a wrong form.
    pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// 400: the request has the right form, and makes no sense for what is stored.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 409: in conflict with the state of things.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// 404: there is no such thing.
    pub fn missing(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// 403: who sends the request may read, and nothing else.
    pub fn reads_only() -> Self {
        let detail = "You may read here, and change nothing";
        Self::new(StatusCode::FORBIDDEN, detail).with_code("forbidden")
    }

    /// 404 of an unknown route, and of things whose kind the response does not name.
    pub fn not_found() -> Self {
        Self::missing("Not Found")
    }

    /// 404: no such thread.
    pub fn no_thread(id: ThreadId) -> Self {
        Self::missing(format!("Thread with ID {id} not found")).with_own_code("thread_not_found")
    }

    /// Without the name of what is missing.
    pub fn plain(self) -> Self {
        match self.status {
            StatusCode::NOT_FOUND => Self::not_found(),
            _ => self,
        }
    }

    /// 404 at the creation of a run.
    pub fn no_thread_or_assistant() -> Self {
        Self::missing("Thread or assistant not found.")
    }

    /// 404: a checkpoint that is not one of the thread.
    pub fn no_checkpoint(id: impl fmt::Display) -> Self {
        Self::missing(format!("Checkpoint {id} not found")).with_own_code("checkpoint_not_found")
    }

    /// 404: nothing to cancel, since the run is not there or has ended.
    pub fn nothing_to_cancel(known: bool) -> Self {
        Self::missing(if known {
            "No matching runs to cancel. They may have ended already."
        } else {
            "No runs found to cancel."
        })
    }

    /// 409: the thread id is taken.
    pub fn thread_exists(id: ThreadId) -> Self {
        Self::conflict(format!("Thread with ID {id} already exists")).with_own_code("thread_exists")
    }

    /// 409: a run with this id exists.
    pub fn run_exists(id: RunId) -> Self {
        Self::conflict(format!("Run with ID {id} already exists"))
    }

    /// 409: a run is pending or running, and the request said `reject`.
    pub fn busy() -> Self {
        Self::conflict(
            "Thread is already running a task. Wait for it to finish or choose a different \
             multitask strategy.",
        )
    }

    /// 422: no registered graph has this name.
    pub fn unknown_graph(name: &str, known: &[&str]) -> Self {
        Self::invalid(format!(
            "Invalid assistant: '{name}'. Must be either:\n- A valid assistant UUID, or\n\
             - One of the registered graphs: {}",
            known.join(", ")
        ))
    }

    /// 503: the client may try again later.
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// 500 for a failure whose text is no client's business: it goes to the log under an id
    /// that the response names.
    pub fn internal(cause: &dyn fmt::Display) -> Self {
        let id = Uuid::new_v4();
        tracing::error!(error_id = %id, error = %cause, "a request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Internal Server Error (id {id}, see the server's log)"),
        )
    }

    /// The response that reports it to the client.
    pub fn into_response(self) -> Response<Body> {
        let mut map = Map::default();
        map.insert("detail", &*self.detail);
        if let Some(code) = self.code {
            map.insert("code", code);
        }
        let mut response = body::json(self.status, &Value::map(map));
        if matches!(
            self.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        ) {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.detail)
    }
}

impl std::error::Error for Error {}

impl From<checkpoint::Error> for Error {
    fn from(error: checkpoint::Error) -> Self {
        use checkpoint::Error as E;
        match &error {
            E::Fenced => Self::conflict(
                "Somebody else changed the thread at the same time. Read its state and try again.",
            ),
            E::Pruned(_) => Self::conflict(error.to_string()).with_code("checkpoint_pruned"),
            E::Unavailable(_) => {
                tracing::warn!(%error, "the database is not available");
                Self::unavailable("The database is not available. Try again.")
            }
            E::TookTooLong => {
                tracing::warn!("a read or a search took longer than it may");
                Self::unavailable(
                    "The request took longer than this server allows: ask for less at once, with a filter by \
                     `ids`, `metadata` or `status`, or for fewer rows.",
                )
            }
            E::Crowded(_) => Self::unavailable(
                "Too many requests wait for each other to change this thread or its relatives. \
                 Try again.",
            ),
            E::ShareUsed(_) => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "Other requests of yours use your share of this server's connections to its database: wait for \
                 their responses, send fewer at once or ask for less with each, and try again. The operator sets \
                 BACKSTITCH_SHARE and BACKSTITCH_CONNECTIONS.",
            )
            .with_code("too_many_requests"),
            E::Corrupt(_) | E::Database(_) => Self::internal(&error),
        }
    }
}

impl From<runs::Error> for Error {
    fn from(error: runs::Error) -> Self {
        use runs::Error as E;
        match error {
            E::NoThread(id) => Self::no_thread(id),
            E::NoThreadOrAssistant => Self::no_thread_or_assistant(),
            E::UnknownGraph { name, known } => {
                let known: Vec<_> = known.iter().map(String::as_str).collect();
                Self::unknown_graph(&name, &known)
            }
            E::NoRun(_) | E::GraphGone { .. } => Self::missing(error.to_string()),
            E::NoInterrupt(_) | E::Changed => Self::conflict(error.to_string()),
            E::NoCheckpoint(id) => Self::no_checkpoint(id),
            E::ThreadTaken(id) => Self::thread_exists(id),
            E::RunExists(id) => Self::run_exists(id),
            E::Busy => Self::busy(),
            E::QueueFull(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()).with_code("queue_full")
            }
            E::Invalid(_) | E::NotMade(_) => Self::bad_request(error.to_string()),
            E::NothingToCancel { known } => Self::nothing_to_cancel(known),
            E::MoreToCancel(_) => Self::unavailable(error.to_string()),
            E::Draining => Self::unavailable("The server is shutting down. Try again."),
            E::Tree(error) => error.into(),
            E::Storage(error) => error.into(),
            E::Engine(error) => error.into(),
        }
    }
}

impl From<threads::Error> for Error {
    fn from(error: threads::Error) -> Self {
        use threads::Error as E;
        match error {
            E::NoThread(id) => Self::no_thread(id),
            E::ThreadExists(id) => Self::thread_exists(id),
            E::NoCheckpoint(id) => Self::no_checkpoint(id),
            E::InFlight(_) => Self::conflict(error.to_string()).with_code("branch_busy"),
            E::NoGraph(_) | E::Invalid(_) => Self::bad_request(error.to_string()),
            E::NoMemory => Self::unavailable(error.to_string()),
            // The thread exists, so this is no failure of the creation.
            E::CreatedWithoutUpdates(..) => Self::new(StatusCode::CREATED, error.to_string()),
            E::Tree(error) => error.into(),
            E::Storage(error) => error.into(),
            E::Engine(error) => error.into(),
            E::Run(error) => (*error).into(),
        }
    }
}

impl From<tree::Error> for Error {
    fn from(error: tree::Error) -> Self {
        match error {
            tree::Error::Refused {
                kind: tree::ErrorKind::NoMemory,
                detail,
                ..
            } => Self::unavailable(detail),
            tree::Error::Refused { kind, code, detail } => {
                let status = match kind {
                    tree::ErrorKind::Malformed => StatusCode::BAD_REQUEST,
                    tree::ErrorKind::Forbidden => StatusCode::FORBIDDEN,
                    tree::ErrorKind::Missing => StatusCode::NOT_FOUND,
                    tree::ErrorKind::Conflict => StatusCode::CONFLICT,
                    tree::ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                    tree::ErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
                    tree::ErrorKind::Behind | tree::ErrorKind::NoMemory => {
                        StatusCode::SERVICE_UNAVAILABLE
                    }
                };
                Self::new(status, detail).with_code(code)
            }
            tree::Error::Storage(error) => error.into(),
            tree::Error::Engine(error) => error.into(),
        }
    }
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Self {
        use engine::Error as E;
        match error {
            E::Storage(error) => error.into(),
            // The graph or its stored state is at fault, not the request.
            E::Mistake {
                kind: engine::Mistake::StoredForm,
                ..
            } => {
                tracing::error!(%error, "a stored state does not fit its graph");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.message())
            }
            E::Failed { .. } | E::Mistake { .. } | E::Channel { .. } => {
                Self::bad_request(error.message())
            }
            E::ParentCommand(_) => Self::bad_request(error.to_string()),
            E::Cancelled => Self::conflict("The run was cancelled."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contention::shares::Full;

    #[test]
    fn storage_errors_have_a_status_and_keep_their_text_to_the_log() {
        let of = |error: checkpoint::Error| Error::from(error);
        assert_eq!(of(checkpoint::Error::Fenced).status, 409);
        let pruned = of(checkpoint::Error::Pruned(crate::id::CheckpointId::mint(
            0,
            [],
        )));
        assert_eq!(pruned.status, 409);
        let unavailable = of(checkpoint::Error::Unavailable("secret dsn".into()));
        assert_eq!(unavailable.status, 503);
        assert!(
            unavailable
                .into_response()
                .headers()
                .contains_key("retry-after")
        );
        let share_used = of(checkpoint::Error::ShareUsed(Full));
        assert_eq!(share_used.status, 429);
        assert!(share_used.detail.contains("try again"));
        let response = share_used.into_response();
        assert!(response.headers().contains_key("retry-after"));
        for error in [
            checkpoint::Error::Database("secret".into()),
            checkpoint::Error::Corrupt("secret".into()),
        ] {
            let error = of(error);
            assert_eq!(error.status, 500);
            assert!(!error.detail.contains("secret"));
        }
    }

    #[test]
    fn what_the_run_service_refuses_has_the_status_clients_know() {
        let id: ThreadId = "5a65802f-74fe-4e41-9a19-5fa219b2c04e".parse().unwrap();
        let failed = |class: &str| engine::Error::failed(class, "Node nonode does not exist");
        for (error, status, detail) in [
            (
                runs::Error::NoThread(id),
                404,
                format!("Thread with ID {id} not found"),
            ),
            (
                runs::Error::NoThreadOrAssistant,
                404,
                "Thread or assistant not found.".into(),
            ),
            (runs::Error::Busy, 409, Error::busy().detail.into()),
            (runs::Error::Invalid("no".into()), 400, "no".into()),
            (
                runs::Error::Engine(failed("InvalidUpdateError")),
                400,
                "Node nonode does not exist".into(),
            ),
        ] {
            let error = Error::from(error);
            assert_eq!((error.status.as_u16(), &*error.detail), (status, &*detail));
        }
        assert_eq!(Error::from(runs::Error::Draining).status, 503);
        let taken = Error::from(threads::Error::ThreadExists(id));
        assert_eq!(taken.status, 409);
        assert_eq!(taken.detail, format!("Thread with ID {id} already exists"));
        let stored = engine::Error::mistake(engine::Mistake::StoredForm, "channel `x`");
        assert_eq!(Error::from(stored).status, 500);
    }
}
