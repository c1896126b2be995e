//! Joining a run by its id alone.

use schemars::JsonSchema;

/// What the stream of a run reads.
#[derive(JsonSchema)]
pub struct StreamQuery {
    /// Modes to be sent: one, a JSON array, or several by repetition. All without it.
    stream_mode: Option<String>,
    /// Whether the run is cancelled when its client leaves.
    cancel_on_disconnect: Option<super::Flag>,
}

/// What waiting for a run reads.
#[derive(JsonSchema)]
pub struct JoinQuery {
    /// Whether the run is cancelled when its client leaves.
    cancel_on_disconnect: Option<super::Flag>,
}
