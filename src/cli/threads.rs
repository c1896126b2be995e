//! `threads`: the threads that changed last.

use std::io;

use serde_json::{Value, json};

use super::screen::Screen;
use crate::client::{Client, Error};

pub(super) async fn load(client: &Client, limit: u16) -> Result<Value, Error> {
    let body = json!({
        "limit": limit,
        "select": ["thread_id", "status", "updated_at", "metadata"],
    });
    client.post("/threads/search", &body).await
}

pub(super) fn draw(found: &Value, screen: &mut Screen) -> io::Result<()> {
    let threads = found.as_array().map(Vec::as_slice).unwrap_or_default();
    if threads.is_empty() {
        return screen.line("no threads yet; `chat` begins one");
    }
    for thread in threads {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        // Up to the seconds, in UTC as the server writes it.
        let changed: String = text(&thread["updated_at"]).chars().take(19).collect();
        screen.line(&format!(
            "{}  {:<11}  {}  {}",
            text(&thread["thread_id"]),
            text(&thread["status"]),
            changed.replace('T', " "),
            text(&thread["metadata"]["graph_id"]),
        ))?;
    }
    Ok(())
}
