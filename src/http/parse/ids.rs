//! Ids in bodies and queries.

use crate::{
    http::server::error::Error,
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

/// An assistant by id or by the name of its graph.
pub fn assistant(text: &str) -> Assistant {
    match text.parse() {
        Ok(id) => Assistant::Id(id),
        Err(_) => Assistant::Graph(text.into()),
    }
}
