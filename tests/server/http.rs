//! What a client sees on the wire: frames, headers, waiting answers, and runs whose client leaves.
mod edits;
mod ends;
mod forms;
mod identity;
mod limits;
mod metadata;
mod readable;
mod runs;
mod wire;

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::place::{Place, serve};
use test_support::talk::{slow, with};

fn counter() -> Value {
    json!({"assistant_id": "counter", "input": {"count": 0, "log": ["in"]}})
}
