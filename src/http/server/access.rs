//! What a client may do with the thread that its request names.

use hyper::{Method, StatusCode};

use super::{call::Call, error::Error};
use crate::{id::ThreadId, tree::members::Level};

/// Requests that may create the thread they name.
const CREATING: [&[&str]; 4] = [
    &["messages"],
    &["runs"],
    &["runs", "stream"],
    &["runs", "wait"],
];

/// The level that a request to `/threads/{id}/...` needs, by what follows the id.
fn needed(method: &Method, rest: &[&str]) -> Level {
    match (method.as_str(), rest) {
        ("GET" | "HEAD", _) => Level::Reader,
        // Reading with a body; a copy is a thread of one's own.
        ("POST", ["history"] | ["state", "checkpoint"] | ["copy"]) => Level::Reader,
        ("DELETE", []) => Level::Owner,
        ("PUT" | "DELETE", ["members", ..]) => Level::Manager,
        _ => Level::Writer,
    }
}

/// Refuses a request whose path names a thread that the client has too low a level on.
pub async fn admit(call: &Call, method: &Method, path: &str) -> Result<(), Error> {
    if !call.client.is_known {
        return Ok(());
    }
    let mut segments = path.split('/').skip(1);
    if segments.next() != Some("threads") {
        return Ok(());
    }
    let Ok(thread) = call.path.thread() else {
        // Not about one thread, or refused by its handler.
        return Ok(());
    };
    let rest: Vec<&str> = segments.skip(1).collect();
    let creates = *method == Method::POST && CREATING.contains(&&*rest);
    match call.level(thread).await? {
        None if creates && !call.exists(thread).await? => Ok(()),
        level => allow(thread, level, needed(method, &rest))
            .map_err(|error| as_if_missing(error, method, &rest)),
    }
}

/// The error for somebody else's thread: the same as for one that does not exist.
fn as_if_missing(error: Error, method: &Method, rest: &[&str]) -> Error {
    match (method.as_str(), rest) {
        _ if error.status != StatusCode::NOT_FOUND => error,
        ("POST", ["runs"] | ["runs", "stream" | "wait"]) => Error::no_thread_or_assistant(),
        (_, [] | ["state" | "history" | "runs" | "copy" | "stream", ..]) => error,
        _ => error.coded(),
    }
}

fn allow(thread: ThreadId, level: Option<Level>, needed: Level) -> Result<(), Error> {
    match level {
        None => Err(Error::no_thread(thread)),
        Some(level) if level < needed => {
            let detail = format!("This takes the level {needed} on the thread, yours is {level}");
            Err(Error::new(StatusCode::FORBIDDEN, detail).with_code("forbidden"))
        }
        Some(_) => Ok(()),
    }
}

impl Call {
    /// Refuses the request unless its client has this level on a thread: 404 without any, 403
    /// below it.
    pub async fn authorize(&self, thread: ThreadId, needed: Level) -> Result<(), Error> {
        if !self.client.is_known {
            return Ok(());
        }
        allow(thread, self.level(thread).await?, needed)
    }

    /// The client's level on a thread; `None` too when there is no such thread.
    pub async fn level(&self, thread: ThreadId) -> Result<Option<Level>, Error> {
        Ok(self.threads().level(thread, self.principal()).await?)
    }

    async fn exists(&self, thread: ThreadId) -> Result<bool, Error> {
        Ok(self.threads().is_taken(thread).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_a_thread_takes_more_than_reading_it() {
        let of = |method: &str, rest: &[&str]| needed(&method.parse().unwrap(), rest);
        assert_eq!(of("GET", &["messages"]), Level::Reader);
        assert_eq!(of("POST", &["history"]), Level::Reader);
        assert_eq!(of("POST", &["state", "checkpoint"]), Level::Reader);
        assert_eq!(of("POST", &["state"]), Level::Writer);
        assert_eq!(of("POST", &["fork"]), Level::Writer);
        assert_eq!(of("POST", &["runs", "x", "cancel"]), Level::Writer);
        assert_eq!(of("DELETE", &["runs", "x"]), Level::Writer);
        assert_eq!(of("PATCH", &[]), Level::Writer);
        assert_eq!(of("PUT", &["members", "bob"]), Level::Manager);
        assert_eq!(of("DELETE", &["members", "bob"]), Level::Manager);
        assert_eq!(of("GET", &["members"]), Level::Reader);
        assert_eq!(of("DELETE", &[]), Level::Owner);
    }
}
