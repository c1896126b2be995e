//! `tail`: what happens on a thread, as it happens.

use anyhow::Context;
use futures::StreamExt;
use serde_json::Value;

use super::{screen::Screen, state::one_line};
use crate::client::{Client, segment};

/// What a line leaves out of an event: ids that `--json` has.
const LEFT_OUT: &[&str] = &[
    "ai_message_id",
    "branch",
    "checkpoint_id",
    "head_checkpoint_id",
    "message_id",
    "message_ids",
    "parent_checkpoint_id",
];

/// Shows the last events and those that come, until the person stops it.
pub(super) async fn follow(
    client: &Client,
    thread: &str,
    earlier: u64,
    json: bool,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let path = format!("/threads/{}", segment(thread));
    let head = client.get(&format!("{path}/head")).await?;
    let last = head["event_number"].as_u64().unwrap_or_default();
    let after = Some(last.saturating_sub(earlier)).filter(|after| *after > 0);
    let mut events = client
        .stream(&format!("{path}/events"), None, after)
        .await?;
    let mut stopped = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = &mut stopped => return Ok(()),
        };
        let event = event.context("the server ended the stream of events")??;
        if json {
            screen.json_line(&event.data)?;
        } else {
            screen.line(&line(&event.data))?;
        }
    }
}

fn line(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let time = text("created_at").get(11..19).unwrap_or_default();
    let mut line = format!(
        "{:>5}  {time}  {:<20}  {:<8}",
        event["event_number"].as_u64().unwrap_or_default(),
        text("event_type"),
        text("branch"),
    );
    if event["payload"]["content"].is_string() {
        let (role, content) = (&event["payload"]["role"], &event["payload"]["content"]);
        line += &format!("  {}: {}", one_line(role), one_line(content));
        return line;
    }
    for (name, value) in event["payload"].as_object().into_iter().flatten() {
        if !LEFT_OUT.contains(&name.as_str()) && !value.is_null() {
            line += &format!("  {name} {}", one_line(value));
        }
    }
    line.trim_end().to_owned()
}
