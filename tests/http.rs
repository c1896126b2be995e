//! What a client sees on the wire: frames, headers, waiting answers, and runs whose client leaves.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of the test")]

#[path = "http/edits.rs"]
mod edits;
#[path = "http/ends.rs"]
mod ends;
#[path = "http/forms.rs"]
mod forms;
#[path = "http/metadata.rs"]
mod metadata;
#[path = "http/readable.rs"]
mod readable;
#[path = "http/runs.rs"]
mod runs;
mod support;
#[path = "http/wire.rs"]
mod wire;

use serde_json::{Value, json};
use support::client::Client;
use support::place::{Place, serve};
use support::talk::{slow, with};

fn counter() -> Value {
    json!({"assistant_id": "counter", "input": {"count": 0, "log": ["in"]}})
}
