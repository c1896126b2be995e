//! Ids in bodies and queries.

use crate::{
    http::server::Error,
    id::{CheckpointId, ThreadId},
    runs::request::Assistant,
};

/// The id of a thread.
pub fn thread(text: &str) -> Result<ThreadId, Error> {
    text.parse()
        .map_err(|_| Error::invalid("Invalid thread ID: must be a UUID"))
}

/// The id of a checkpoint.
pub fn checkpoint(text: &str) -> Result<CheckpointId, Error> {
    text.parse()
        .map_err(|_| Error::invalid("Invalid checkpoint ID"))
}

/// The id of an assistant or a cron, in the form with hyphens alone.
pub fn hyphenated<T: From<uuid::Uuid>>(text: &str) -> Option<T> {
    let id: uuid::fmt::Hyphenated = text.parse().ok()?;
    Some(T::from(id.into_uuid()))
}

/// An assistant by id or by the name of its graph.
pub fn assistant(text: &str) -> Assistant {
    match hyphenated(text) {
        Some(id) => Assistant::Id(id),
        None => Assistant::Graph(text.into()),
    }
}
