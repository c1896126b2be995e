//! A metadata filter of a list of checkpoints, taken apart for a storage.

use std::sync::Arc;

use super::{Source, labels::labels_of};
use crate::{
    id::RunId,
    value::{Map, Value},
};

/// Fields of metadata that the server writes into most checkpoints.
const OF_SERVER: [&str; 6] = [
    "graph_id",
    "assistant_id",
    "user_id",
    "cron_id",
    "checkpoint_id",
    "created_by",
];

/// Most labels of which the rarest one is found.
const LABELS: usize = 8;

/// Most rows of a label that are counted to find the rarest one.
pub const COUNTED: usize = 2_000;

/// What a checkpoint's metadata must contain: what has a column, and the rest.
#[derive(Clone, Debug, Default)]
pub struct MetadataFilter {
    /// What made it.
    pub source: Option<Source>,
    /// Its step.
    pub step: Option<i64>,
    /// The run that made it.
    pub run: Option<RunId>,
    /// Contained in its metadata.
    pub rest: Map,
}

impl MetadataFilter {
    /// Parses the filter of a client; `None` when no checkpoint can match.
    pub fn of(metadata: Option<&Map>) -> Option<Self> {
        let mut filter = Self::default();
        for (key, value) in metadata.into_iter().flatten() {
            match &**key {
                "source" => filter.source = Some(value.as_str()?.parse().ok()?),
                "step" => filter.step = Some(integer(value)?),
                "run_id" => filter.run = Some(value.as_str()?.parse().ok()?),
                _ => {
                    filter.rest.insert(Arc::clone(key), value.clone());
                }
            }
        }
        Some(filter)
    }

    /// Labels that its checkpoints in a namespace (`None`: in all of them) have, by which they may be looked up. None but
    /// those of the root graph have any.
    pub fn labels(&self, ns: Option<&str>) -> Vec<String> {
        if ns != Some("") {
            return Vec::new();
        }
        labels_of(&self.rest, &OF_SERVER).take(LABELS).collect()
    }
}

/// JSON knows one kind of number.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(json: &str) -> Option<MetadataFilter> {
        match Value::from_json_slice(json.as_bytes()).unwrap() {
            Value::Map(map) => MetadataFilter::of(Some(&map)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn columns_are_taken_out_of_a_metadata_filter() {
        let filter = filter(r#"{"source":"loop","step":2.0,"user":"ada"}"#).unwrap();
        assert_eq!(filter.source, Some(Source::Loop));
        assert_eq!(filter.step, Some(2));
        assert_eq!(filter.rest.len(), 1);
    }

    #[test]
    fn a_filter_that_no_checkpoint_can_match_is_recognised() {
        assert!(filter(r#"{"run_id":"not an id"}"#).is_none());
        assert!(filter(r#"{"source":"elsewhere"}"#).is_none());
        assert!(filter(r#"{"step":"2"}"#).is_none());
    }

    #[test]
    fn labels_are_the_texts_that_clients_set() {
        let labels = |json| filter(json).unwrap().labels(Some(""));
        assert_eq!(
            labels(
                r#"{"source":"loop","a=":"ä","n":1,"deep":{"b":"c"},"graph_id":"g","user_id":"u","e":""}"#
            ),
            ["a==ä", "e="]
        );
        let long = format!("{{\"x\":\"{}\"}}", "y".repeat(200));
        assert_eq!(labels(&long), [format!("x={}", "y".repeat(98))]);
        // What databases may write in different ways.
        let foreign = format!("{{\"x\":\"{}\"}}", "é".repeat(60));
        for json in [
            r#"{"x":"\u0007"}"#,
            r#"{"\"":"x"}"#,
            r#"{"\\":"x"}"#,
            &*foreign,
        ] {
            assert!(labels(json).is_empty(), "{json}");
        }
    }
}
