//! The output of one run. Messages of nodes that run at once are shown one after the other, each as it
//! comes once it is its turn.

use std::{collections::VecDeque, io};

use serde_json::Value;

use crate::{
    cli::{
        screen::Screen,
        state::{content, draw_value, one_line},
    },
    client::Event,
};

/// The output of one run.
pub(super) struct Turn {
    /// Whether the graph is a chat, whose messages are the result; else nodes are named, and what was
    /// written last is the result.
    is_chat: bool,
    run: Option<String>,
    waiting: VecDeque<Item>,
    streamed: Vec<String>,
    interrupts: Vec<Value>,
    written: Value,
    failure: Option<String>,
}

/// Something that is shown before what comes after it.
enum Item {
    /// Of lesser weight.
    Line(String),
    Message {
        id: String,
        node: String,
        /// What is not shown yet.
        text: String,
        has_begun: bool,
        is_whole: bool,
    },
}

impl Turn {
    pub(super) fn new(is_chat: bool) -> Self {
        Self {
            is_chat,
            run: None,
            waiting: VecDeque::new(),
            streamed: vec![],
            interrupts: vec![],
            written: Value::Null,
            failure: None,
        }
    }

    /// The id of the run, once it is known.
    pub(super) fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    pub(super) fn into_interrupts(self) -> Vec<Value> {
        self.interrupts
    }

    /// Shows an event.
    pub(super) fn show(&mut self, event: &Event, screen: &mut Screen) -> io::Result<()> {
        self.note(event);
        match event.name.split('|').next().unwrap_or_default() {
            "messages" => self.message(&event.data[0], &event.data[1]),
            "custom" => self.line(format!("· {}", one_line(&event.data))),
            "updates" => self.update(&event.data),
            _ => {}
        }
        self.pump(screen)
    }

    /// Remembers of an event what the conversation needs.
    pub(super) fn note(&mut self, event: &Event) {
        match &*event.name {
            "metadata" => self.run = event.data["run_id"].as_str().map(str::to_owned),
            "updates" => {
                let found = event.data["__interrupt__"].as_array();
                self.interrupts.extend(found.into_iter().flatten().cloned());
            }
            "error" => {
                let kind = one_line(&event.data["error"]);
                let message = one_line(&event.data["message"]);
                self.failure = Some(format!("{kind}: {message}"));
            }
            _ => {}
        }
    }

    /// Shows what is left, and the result.
    pub(super) fn finish(&mut self, screen: &mut Screen) -> io::Result<()> {
        for item in &mut self.waiting {
            if let Item::Message { is_whole, .. } = item {
                *is_whole = true;
            }
        }
        self.pump(screen)?;
        if let Some(failure) = self.failure.take() {
            return screen.line(&format!("error: {failure}"));
        }
        let written = self.written.take();
        if !self.is_chat && self.interrupts.is_empty() {
            for (name, value) in written.as_object().into_iter().flatten() {
                match value {
                    Value::String(text) => screen.text(&format!("{name}: {text}\n"))?,
                    value => draw_value(name, value, screen)?,
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, text: String) {
        self.waiting.push_back(Item::Line(text));
    }

    fn message(&mut self, message: &Value, metadata: &Value) {
        let id = message["id"].as_str().unwrap_or_default();
        let kind = message["type"].as_str().unwrap_or_default();
        match kind {
            "AIMessageChunk" | "ai" => {
                let is_chunk = kind == "AIMessageChunk";
                if !is_chunk && self.streamed.iter().any(|known| known == id) {
                    return;
                }
                let ends = !is_chunk || message["chunk_position"] == "last";
                let more = content(&message["content"]);
                let known = self.waiting.iter_mut().find_map(|item| match item {
                    Item::Message {
                        id: other,
                        text,
                        is_whole,
                        ..
                    } if other == id && !*is_whole => Some((text, is_whole)),
                    _ => None,
                });
                if let Some((text, is_whole)) = known {
                    text.push_str(&more);
                    *is_whole = ends;
                } else if !more.is_empty() {
                    self.streamed.push(id.to_owned());
                    self.waiting.push_back(Item::Message {
                        id: id.to_owned(),
                        node: one_line(&metadata["langgraph_node"]),
                        text: more,
                        has_begun: false,
                        is_whole: ends,
                    });
                }
            }
            "tool" => {
                let name = one_line(&message["name"]);
                self.line(format!("← {name}: {}", content(&message["content"])));
            }
            _ => {}
        }
    }

    fn update(&mut self, update: &Value) {
        for (node, written) in update.as_object().into_iter().flatten() {
            if node == "__interrupt__" {
                continue;
            }
            if written.is_object() {
                self.written = written.clone();
            }
            let values = written.as_object().into_iter().flatten();
            let messages = values.flat_map(|(_, value)| match value {
                Value::Array(items) => items.as_slice(),
                one => std::slice::from_ref(one),
            });
            for call in messages.flat_map(|message| message["tool_calls"].as_array()) {
                for call in call {
                    let name = one_line(&call["name"]);
                    let line = format!("→ {name}({})", call["args"]);
                    self.waiting.push_back(Item::Line(line));
                }
            }
        }
    }

    /// Shows what has its turn.
    fn pump(&mut self, screen: &mut Screen) -> io::Result<()> {
        while let Some(item) = self.waiting.front_mut() {
            match item {
                Item::Line(text) => screen.faint_line(text)?,
                Item::Message {
                    node,
                    text,
                    has_begun,
                    is_whole,
                    ..
                } => {
                    if !*has_begun && !self.is_chat {
                        screen.text(&format!("{node}: "))?;
                    }
                    *has_begun = true;
                    screen.text(&std::mem::take(text))?;
                    if !*is_whole {
                        return Ok(());
                    }
                    screen.text("\n")?;
                }
            }
            self.waiting.pop_front();
        }
        Ok(())
    }
}
