//! `state`: the values of a thread, what runs next, and what it waits for.

use std::io;

use serde_json::Value;

use super::screen::Screen;
use crate::client::{Client, segment};

pub(super) async fn load(
    client: &Client,
    thread: &str,
    checkpoint: Option<&str>,
) -> anyhow::Result<Value> {
    let mut path = format!("/threads/{}/state", segment(thread));
    if let Some(checkpoint) = checkpoint {
        path += &format!("/{}", segment(checkpoint));
    }
    let found = client.get(&path).await?;
    // As on LangGraph's server an unknown checkpoint has an empty state.
    if let Some(checkpoint) = checkpoint
        && found["created_at"].is_null()
    {
        anyhow::bail!("the thread has no checkpoint {checkpoint}");
    }
    Ok(found)
}

pub(super) fn draw(state: &Value, screen: &mut Screen) -> io::Result<()> {
    let checkpoint = state["checkpoint"]["checkpoint_id"].as_str();
    let created: String = (state["created_at"].as_str().unwrap_or_default())
        .chars()
        .take(19)
        .collect();
    screen.faint_line(&format!(
        "checkpoint {}  {}",
        checkpoint.unwrap_or("none"),
        created.replace('T', " ")
    ))?;
    let next: Vec<&str> = (state["next"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    if !next.is_empty() {
        screen.faint_line(&format!("next {}", next.join(", ")))?;
    }
    for interrupt in interrupts(state) {
        screen.line(&format!("interrupted: {}", one_line(&interrupt["value"])))?;
    }
    let values = state["values"].as_object();
    for (name, value) in values.into_iter().flatten() {
        draw_value(name, value, screen)?;
    }
    Ok(())
}

/// The open interrupts of a state.
pub(super) fn interrupts(state: &Value) -> Vec<&Value> {
    let tasks = state["tasks"].as_array().into_iter().flatten();
    tasks
        .filter_map(|task| task["interrupts"].as_array())
        .flatten()
        .collect()
}

/// A value; of messages each on a line.
pub(super) fn draw_value(name: &str, value: &Value, screen: &mut Screen) -> io::Result<()> {
    let is_message = |item: &Value| item["type"].is_string() && !item["content"].is_null();
    match value {
        Value::Array(items) if !items.is_empty() && items.iter().all(is_message) => {
            screen.line(&format!("{name}:"))?;
            for item in items {
                screen.line(&format!("  {}", message(item)))?;
            }
            Ok(())
        }
        value => screen.line(&format!("{name}: {}", one_line(value))),
    }
}

/// A message on one line: who says what, and which tools it calls.
pub(super) fn message(message: &Value) -> String {
    let role = message["type"].as_str().or(message["role"].as_str());
    let mut line = format!(
        "{}: {}",
        role.unwrap_or("?"),
        content(&message["content"]).replace('\n', " ")
    );
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        line += &format!(" → {}({})", one_line(&call["name"]), call["args"]);
    }
    line
}

/// The text of a content, which may be a list of parts.
pub(super) fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| match part {
                Value::String(text) => Some(text.as_str()),
                part => part["text"].as_str(),
            });
            texts.collect()
        }
        _ => String::new(),
    }
}

/// A value on one line: texts as they are.
pub(super) fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) => text.replace('\n', " "),
        value => value.to_string(),
    }
}
