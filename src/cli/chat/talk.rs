//! A conversation: lines go to the graph or resume what it waits for, events come back.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Map, Value, json};

use super::{
    input::{self, Shape},
    lines::Lines,
    turn::Turn,
};
use crate::{
    cli::{screen::Screen, state},
    client::{Client, Error, segment},
};

/// How long a run that the person stopped may take to end.
const CANCEL: Duration = Duration::from_secs(10);

/// A conversation on one thread.
pub(super) struct Talk<'a> {
    pub(super) client: &'a Client,
    pub(super) screen: &'a mut Screen,
    pub(super) json: bool,
    pub(super) assistant: String,
    pub(super) shape: Shape,
    pub(super) thread: String,
    /// What the graph waits for.
    pub(super) interrupts: Vec<Value>,
}

impl Talk<'_> {
    /// Reads lines until they end.
    pub(super) async fn run(&mut self, graph: &str) -> anyhow::Result<()> {
        let mut lines = Lines::stdin();
        if !self.json {
            let how = "Ctrl-C stops a reply, Ctrl-D ends the chat";
            self.screen.faint_line(&format!("{graph} · {how}"))?;
        }
        loop {
            let request = if self.interrupts.is_empty() {
                let Some(line) = self.read(&mut lines, "> ").await? else {
                    break;
                };
                if line.trim().is_empty() {
                    continue;
                }
                self.shape.input(&line).map(|input| json!({"input": input}))
            } else {
                let Some(resume) = self.resume(&mut lines).await? else {
                    break;
                };
                Ok(json!({"command": {"resume": resume}}))
            };
            match request {
                Ok(request) => self.turn(request).await?,
                Err(hint) => self.complain(&hint)?,
            }
        }
        if !self.json {
            let thread = &self.thread;
            let program = std::env::args().next().unwrap_or_default();
            let hint = format!("to go on: {program} chat {graph} --thread {thread}");
            self.screen.faint_line("")?;
            self.screen.faint_line(&hint)?;
        }
        Ok(())
    }

    async fn read(&mut self, lines: &mut Lines, prompt: &str) -> anyhow::Result<Option<String>> {
        if !self.json {
            self.screen.text(prompt)?;
        }
        let line = lines.next().await?;
        // A transcript shows what a terminal would have shown.
        if let Some(line) = &line
            && !self.json
            && !lines.is_terminal
        {
            self.screen.line(line)?;
        }
        Ok(line)
    }

    /// A value for each open interrupt, by its id; none when the lines end.
    async fn resume(&mut self, lines: &mut Lines) -> anyhow::Result<Option<Value>> {
        let mut values = Map::new();
        for interrupt in self.interrupts.clone() {
            if !self.json {
                self.show(&interrupt["value"])?;
            }
            let line = loop {
                match self.read(lines, "? ").await? {
                    Some(line) if line.trim().is_empty() => {}
                    other => break other,
                }
            };
            let Some(line) = line else { return Ok(None) };
            let value = input::resume(&line);
            match interrupt["id"].as_str() {
                Some(id) => drop(values.insert(id.to_owned(), value)),
                None => return Ok(Some(value)),
            }
        }
        Ok(Some(Value::Object(values)))
    }

    fn show(&mut self, value: &Value) -> std::io::Result<()> {
        match value {
            Value::Object(fields) => fields.iter().try_for_each(|(name, value)| match value {
                Value::String(text) => self.screen.text(&format!("{name}: {text}\n")),
                value => self.screen.line(&format!("{name}: {value}")),
            }),
            value => self.screen.line(&state::one_line(value)),
        }
    }

    /// One run, until it ends or the person stops it.
    async fn turn(&mut self, mut request: Value) -> anyhow::Result<()> {
        request["assistant_id"] = json!(self.assistant);
        request["stream_mode"] = json!(["messages-tuple", "updates", "custom"]);
        // A chat that is killed leaves nothing behind that works for nobody.
        request["on_disconnect"] = json!("cancel");
        let path = format!("/threads/{}/runs", segment(&self.thread));
        let stream = self
            .client
            .stream(&format!("{path}/stream"), Some(&request), None)
            .await;
        let mut events = match stream {
            Ok(events) => events,
            Err(error @ (Error::Refused { .. } | Error::WrongKey { .. })) => {
                return Ok(self.complain(&error.to_string())?);
            }
            Err(error) => return Err(error.into()),
        };
        let is_chat = matches!(self.shape, Shape::Messages(_));
        let mut turn = Turn::new(is_chat);
        let mut stopped = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = &mut stopped => {
                    turn.finish(self.screen)?;
                    self.cancel(&path, turn.run()).await?;
                    return Ok(());
                }
            };
            match event.transpose()? {
                Some(event) if self.json => {
                    turn.note(&event);
                    let line = json!({"event": event.name, "data": event.data});
                    self.screen.json_line(&line)?;
                }
                Some(event) => turn.show(&event, self.screen)?,
                None => break,
            }
        }
        if !self.json {
            turn.finish(self.screen)?;
        }
        self.interrupts = turn.into_interrupts();
        Ok(())
    }

    async fn cancel(&mut self, path: &str, run: Option<&str>) -> anyhow::Result<()> {
        if let Some(run) = run {
            let path = format!("{path}/{}/cancel?wait=true", segment(run));
            let body = json!({});
            let cancelled = self.client.post(&path, &body);
            match tokio::time::timeout(CANCEL, cancelled).await {
                // It had ended already.
                Ok(Ok(_) | Err(Error::Refused { .. })) => {}
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => self.complain("the run has not ended yet")?,
            }
        }
        self.interrupts.clear();
        if !self.json {
            self.screen.faint_line("(stopped)")?;
        }
        Ok(())
    }

    fn complain(&mut self, text: &str) -> std::io::Result<()> {
        if self.json {
            self.screen
                .json_line(&json!({"event": "error", "data": {"message": text}}))
        } else {
            self.screen.line(&format!("error: {text}"))
        }
    }
}
