//! Tasks and checkpoints: what the frames of the modes `debug`, `tasks` and `checkpoints` contain.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::time::Timestamp;

/// A frame of the mode `debug`.
#[derive(Deserialize)]
pub struct Debug<'a> {
    /// When it was emitted.
    pub timestamp: Timestamp,
    /// What its payload is.
    #[serde(rename = "type", borrow)]
    pub kind: &'a str,
    /// The payload, as the modes `tasks` and `checkpoints` have it.
    #[serde(borrow)]
    pub payload: &'a RawValue,
}

/// The beginning or the end of a task.
#[derive(Deserialize)]
pub struct Task {
    /// Id.
    pub id: String,
    /// The node.
    pub name: String,
    /// What it wrote; only at its end.
    #[serde(default)]
    pub result: Option<IgnoredAny>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<IgnoredAny>,
    /// Its open interrupts.
    #[serde(default)]
    pub interrupts: Vec<IgnoredAny>,
}

/// A checkpoint.
#[derive(Deserialize)]
pub struct Checkpoint {
    config: Config,
    parent_config: Option<Config>,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Config {
    configurable: Configurable,
}

#[derive(Deserialize)]
struct Configurable {
    checkpoint_id: String,
}

#[derive(Deserialize)]
struct Metadata {
    source: String,
    step: i64,
}

impl Checkpoint {
    /// Writes the data of its event.
    pub fn write(&self, out: &mut Vec<u8>) {
        use crate::stream::frame::{number, text};
        out.extend_from_slice(b"{\"id\":");
        text(out, &self.config.configurable.checkpoint_id);
        if let Some(parent) = &self.parent_config {
            out.extend_from_slice(b",\"parent_id\":");
            text(out, &parent.configurable.checkpoint_id);
        }
        out.extend_from_slice(b",\"step\":");
        number(out, self.metadata.step);
        out.extend_from_slice(b",\"source\":");
        text(out, &self.metadata.source);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_its_ids_its_step_and_its_source() {
        let data = r#"{"config":{"configurable":{"thread_id":"t","checkpoint_id":"c1"}},
            "parent_config":{"configurable":{"checkpoint_id":"c0"}},"values":{"a":1},
            "metadata":{"source":"loop","step":1,"parents":{}},"next":[],"tasks":[]}"#;
        let mut out = vec![];
        serde_json::from_str::<Checkpoint>(data)
            .unwrap()
            .write(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"id":"c1","parent_id":"c0","step":1,"source":"loop"}"#
        );
    }

    #[test]
    fn the_end_of_a_task_has_a_result_and_its_beginning_none() {
        let end = r#"{"id":"k","name":"n","error":null,"result":{},"interrupts":[]}"#;
        let end: Task = serde_json::from_str(end).unwrap();
        assert!(end.result.is_some() && end.error.is_none() && end.interrupts.is_empty());
        let begin = r#"{"id":"k","name":"n","input":null,"triggers":["a"],"metadata":{}}"#;
        let begin: Task = serde_json::from_str(begin).unwrap();
        assert!(begin.result.is_none());
    }
}
