//! States and updates as the protocol shows them: messages without empty fields, no open interrupts.

use std::sync::Arc;

use crate::{
    engine::Interrupt,
    message::blocks::{is_dumped, to_protocol},
    value::{Map, Value},
};

/// The key under which a state has its open interrupts.
const INTERRUPTS: &str = "__interrupt__";

/// A state: what is shown of it, and the interrupts that came with it.
pub struct Shown {
    /// The data, a JSON text.
    pub data: Vec<u8>,
    /// Open interrupts, if it names any, even none.
    pub interrupts: Option<Vec<Interrupt>>,
}

/// Shows a state. The content of models' messages is shown as blocks if `blocks` says so.
pub fn values(data: &str, blocks: bool) -> Shown {
    // Only a text with one of these needs to be taken apart.
    if !data.contains("\"additional_kwargs\"") && !data.contains(INTERRUPTS) {
        return Shown {
            data: data.as_bytes().to_vec(),
            interrupts: None,
        };
    }
    let Ok(Value::Map(mut map)) = Value::from_json_slice(data.as_bytes()) else {
        return Shown {
            data: data.as_bytes().to_vec(),
            interrupts: None,
        };
    };
    let map = Arc::make_mut(&mut map);
    let interrupts = map.remove(INTERRUPTS);
    let mut shown = vec![];
    channels(map, blocks).write_json(&mut shown);
    Shown {
        data: shown,
        interrupts: interrupts.as_ref().map(interrupts_of),
    }
}

/// The update of each node.
type NodeUpdates = Vec<(Arc<str>, Value)>;

/// The update of each node in an `updates` frame, and its interrupts.
pub fn updates(data: &str, blocks: bool) -> (NodeUpdates, Option<Vec<Interrupt>>) {
    let Ok(Value::Map(map)) = Value::from_json_slice(data.as_bytes()) else {
        return (vec![], None);
    };
    let interrupts = map.get(INTERRUPTS).map(interrupts_of);
    let nodes = map
        .iter()
        .filter(|(node, _)| !matches!(&***node, INTERRUPTS | "__metadata__"))
        .map(|(node, update)| {
            let update = match update {
                Value::Map(update) => channels(update, blocks),
                // One for each time that the task wrote a channel.
                Value::List(parts) => parts
                    .iter()
                    .map(|part| match part {
                        Value::Map(part) => channels(part, blocks),
                        other => other.clone(),
                    })
                    .collect(),
                other => other.clone(),
            };
            (node.clone(), update)
        });
    (nodes.collect(), interrupts)
}

fn channels(map: &Map, blocks: bool) -> Value {
    let shown = map
        .iter()
        .map(|(name, value)| (name.clone(), channel(value, blocks)));
    Value::map(shown.collect())
}

/// The value of a channel: messages may be in lists, and in several writes of these.
fn channel(value: &Value, blocks: bool) -> Value {
    match value {
        Value::Map(map) if is_dumped(value) => Value::map(to_protocol(map, blocks)),
        Value::Map(map) if map.len() == 1 && map.contains_key("$writes") => channels(map, blocks),
        Value::List(items) => items.iter().map(|item| channel(item, blocks)).collect(),
        other => other.clone(),
    }
}

fn interrupts_of(list: &Value) -> Vec<Interrupt> {
    let items = list.as_list().unwrap_or_default().iter();
    items.filter_map(Interrupt::from_value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn shown(data: &str) -> (Value, Option<usize>) {
        let shown = values(data, true);
        let value = Value::from_json_slice(&shown.data).unwrap();
        (value, shown.interrupts.map(|list| list.len()))
    }

    #[test]
    fn a_state_without_messages_is_shown_as_it_is() {
        assert_eq!(values("{\"a\": 1.0}", true).data, b"{\"a\": 1.0}");
        assert_eq!(shown("null"), (Value::Null, None));
    }

    #[test]
    fn open_interrupts_are_no_part_of_the_state() {
        let data =
            r#"{"request":"pay","__interrupt__":[{"value":1,"id":"i","response_schema":null}]}"#;
        assert_eq!(shown(data), (value!({"request": "pay"}), Some(1)));
        assert_eq!(
            updates(r#"{"__interrupt__":[]}"#, true),
            (vec![], Some(vec![]))
        );
    }

    #[test]
    fn the_update_of_each_node_stands_alone() {
        let (nodes, open) = updates(r#"{"a":{"x":1},"__metadata__":{"cached":true}}"#, true);
        assert_eq!(nodes, [("a".into(), value!({"x": 1}))]);
        assert_eq!(open, None);
        let (nodes, _) = updates(r#"{"split":null}"#, true);
        assert_eq!(nodes, [("split".into(), Value::Null)]);
    }
}
