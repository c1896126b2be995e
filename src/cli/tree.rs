//! `tree`: the messages of a thread with its branches and tags. Messages that follow each other stand
//! below each other; where a message was continued in several ways, each way is indented.

use std::{collections::HashMap, io};

use serde_json::Value;

use super::screen::Screen;
use crate::client::{Client, Error, segment};

pub(super) async fn load(client: &Client, thread: &str) -> Result<Value, Error> {
    let path = format!("/threads/{}/tree", segment(thread));
    client.get(&path).await
}

/// The address of a message by its number in the drawing, or of a branch or tag by its name; what has
/// a colon is an address already.
pub(super) fn address(tree: &Value, text: &str) -> Option<String> {
    let number = text.trim_start_matches('#').parse::<usize>();
    if let Ok(number) = number {
        let nodes = by_age(tree);
        let node = nodes.get(number.checked_sub(1)?)?;
        return Some(format!("message:{}", node["id"].as_str()?));
    }
    let is_named = |list: &str| {
        let names = tree[list].as_array().into_iter().flatten();
        names.into_iter().any(|one| one["name"] == text)
    };
    if is_named("branches") {
        Some(format!("branch:{text}"))
    } else if is_named("tags") {
        Some(format!("tag:{text}"))
    } else {
        text.contains(':').then(|| text.to_owned())
    }
}

pub(super) fn draw(tree: &Value, thread: &str, screen: &mut Screen) -> io::Result<()> {
    let nodes = by_age(tree);
    let labels = labels(tree);
    if let Some(labels) = labels.get("") {
        screen.line(&format!("(nothing)  [{}]", labels.join(", ")))?;
    } else if nodes.is_empty() {
        screen.line("no messages")?;
    }
    // By parent; what has none that is shown is a root.
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        numbers.insert(text(&node["id"]), index + 1);
    }
    let mut children: HashMap<&str, Vec<&Value>> = HashMap::new();
    for node in &nodes {
        let parent = text(&node["parent_id"]);
        let parent = if numbers.contains_key(parent) {
            parent
        } else {
            ""
        };
        children.entry(parent).or_default().push(node);
    }
    // Nodes to draw, each with what stands before it and before what follows it.
    let mut stack: Vec<(&Value, String, String)> = Vec::new();
    push(&mut stack, children.get(""), "");
    while let Some((node, indent, below)) = stack.pop() {
        let id = text(&node["id"]);
        let names = labels.get(id);
        let names = names.map(|names| format!("  [{}]", names.join(", ")));
        let inherited = if text(&node["thread_id"]).eq_ignore_ascii_case(thread) {
            ""
        } else {
            "  (inherited)"
        };
        let preview = text(&node["preview"]).replace('\n', " ");
        screen.line(&format!(
            "{indent}#{} {}: {preview}{}{inherited}",
            numbers.get(id).copied().unwrap_or_default(),
            text(&node["role"]),
            names.unwrap_or_default(),
        ))?;
        push(&mut stack, children.get(id), &below);
    }
    if tree["truncated"] == true {
        screen.line("… and more: `--json` and `after_depth` of GET /threads/{id}/tree read on")?;
    }
    Ok(())
}

/// The messages, the oldest first: so numbered, a message has its number also when others have come.
fn by_age(tree: &Value) -> Vec<&Value> {
    let nodes = tree["nodes"].as_array().map(Vec::as_slice);
    let mut nodes: Vec<&Value> = nodes.unwrap_or_default().iter().collect();
    nodes.sort_by_key(|node| text(&node["created_at"]));
    nodes
}

/// Puts the continuations of a message on the stack, the first one on top.
fn push<'a>(
    stack: &mut Vec<(&'a Value, String, String)>,
    next: Option<&Vec<&'a Value>>,
    below: &str,
) {
    let next = next.map(Vec::as_slice).unwrap_or_default();
    for (index, node) in next.iter().enumerate().rev() {
        let (mark, more) = if next.len() == 1 {
            ("", "")
        } else if index + 1 < next.len() {
            ("├─ ", "│  ")
        } else {
            ("└─ ", "   ")
        };
        stack.push((node, format!("{below}{mark}"), format!("{below}{more}")));
    }
}

/// The names of branches and tags by the message that they point to; the active branch has a star.
fn labels(tree: &Value) -> HashMap<&str, Vec<String>> {
    let mut labels: HashMap<&str, Vec<String>> = HashMap::new();
    for (list, field, word) in [
        ("branches", "head_message_id", ""),
        ("tags", "message_id", "tag "),
    ] {
        for name in tree[list].as_array().into_iter().flatten() {
            let star = if name["is_active"] == true { "*" } else { "" };
            let label = format!("{word}{}{star}", text(&name["name"]));
            labels.entry(text(&name[field])).or_default().push(label);
        }
    }
    labels
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
