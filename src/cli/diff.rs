//! `diff`: what differs between two states of a thread; what is equal in both is left out.

use std::io;

use anyhow::Context;
use serde_json::Value;

use super::{
    screen::Screen,
    state::{message, one_line},
    tree,
};
use crate::client::{Client, segment};

pub(super) async fn load(
    client: &Client,
    thread: &str,
    from: &str,
    to: &str,
) -> anyhow::Result<Value> {
    let (mut from, mut to) = (from.to_owned(), to.to_owned());
    if !from.contains(':') || !to.contains(':') {
        let tree = tree::load(client, thread).await?;
        for end in [&mut from, &mut to] {
            *end = tree::address(&tree, end).with_context(|| {
                format!(
                    "`{end}` is neither a number of the tree nor a branch or tag of this thread; \
                     `tree` shows them"
                )
            })?;
        }
    }
    let path = format!(
        "/threads/{}/diff?from={}&to={}",
        segment(thread),
        segment(&from),
        segment(&to)
    );
    Ok(client.get(&path).await?)
}

pub(super) fn draw(diff: &Value, screen: &mut Screen) -> io::Result<()> {
    let mut lines = vec![];
    let of = |list: &str| diff["messages"][list].as_array().into_iter().flatten();
    for removed in of("removed") {
        lines.push(format!("- {}", message(removed)));
    }
    for added in of("added") {
        lines.push(format!("+ {}", message(added)));
    }
    for changed in of("changed") {
        lines.push(format!("- {}", message(&changed["from"])));
        lines.push(format!("+ {}", message(changed)));
    }
    let channels = |list: &str| diff["channels"][list].as_object().into_iter().flatten();
    for (name, value) in channels("removed") {
        lines.push(format!("- {name}: {}", one_line(value)));
    }
    for (name, value) in channels("added") {
        lines.push(format!("+ {name}: {}", one_line(value)));
    }
    for (name, value) in channels("changed") {
        compare(name, &value["from"], &value["to"], &mut lines);
    }
    if lines.is_empty() {
        lines.push("no difference".to_owned());
    }
    lines.iter().try_for_each(|line| screen.line(line))
}

/// Adds the parts that differ, each under its path.
fn compare(path: &str, from: &Value, to: &Value, lines: &mut Vec<String>) {
    match (from, to) {
        _ if from == to => {}
        (Value::Object(old), Value::Object(new)) => {
            for (name, old) in old {
                let path = format!("{path}.{name}");
                match new.get(name) {
                    Some(new) => compare(&path, old, new, lines),
                    None => lines.push(format!("- {path}: {}", one_line(old))),
                }
            }
            for (name, new) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                lines.push(format!("+ {path}.{name}: {}", one_line(new)));
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                compare(&format!("{path}[{index}]"), old, new, lines);
            }
            let both = old.len().min(new.len());
            for (index, old) in old.iter().enumerate().skip(both) {
                lines.push(format!("- {path}[{index}]: {}", one_line(old)));
            }
            for (index, new) in new.iter().enumerate().skip(both) {
                lines.push(format!("+ {path}[{index}]: {}", one_line(new)));
            }
        }
        _ => {
            lines.push(format!("- {path}: {}", one_line(from)));
            lines.push(format!("+ {path}: {}", one_line(to)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_equal_in_both_is_left_out() {
        let mut lines = vec![];
        let from = json!({"a": 1, "list": [1, {"x": "old", "y": 2}], "gone": null});
        let to = json!({"a": 1, "list": [1, {"x": "new", "y": 2}, 3], "more": true});
        compare("c", &from, &to, &mut lines);
        let expected = [
            "- c.list[1].x: old",
            "+ c.list[1].x: new",
            "+ c.list[2]: 3",
            "- c.gone: null",
            "+ c.more: true",
        ];
        assert_eq!(lines, expected);
    }
}
