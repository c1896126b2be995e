//! The updates of a task as a stream of events: what the agent says as it grows, and how the task ends.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};

use super::{
    generation::{Message, State, Status},
    part,
    task::{Task, Tasks, missing},
};
use crate::{
    http::json_rpc,
    stream::{FrameSource, write_frame},
    time::Timestamp,
    value::Value,
};

/// The stream of one message.
pub struct Updates {
    /// The id of the request.
    id: Value,
    tasks: Tasks,
    task: Task,
    frames: Option<Box<dyn FrameSource>>,
    state: Progress,
    /// Resolves once the run has ended.
    end: Option<BoxFuture<'static, ()>>,
}

enum Progress {
    Begins,
    Runs,
    Ends(BoxFuture<'static, Bytes>),
    Ended,
}

impl Updates {
    pub fn new(
        id: Value,
        tasks: Tasks,
        task: Task,
        frames: Option<Box<dyn FrameSource>>,
        end: BoxFuture<'static, ()>,
    ) -> Self {
        Self {
            id,
            tasks,
            task,
            frames,
            state: Progress::Begins,
            end: Some(end),
        }
    }

    fn first(&self) -> Bytes {
        let mut out = vec![];
        let task = self.tasks.show(&self.task, None);
        push(
            &mut out,
            &self.id,
            self.tasks.generation.task_or_message(task),
        );
        out.into()
    }

    /// The updates that some frames of the run make.
    fn updates(&self, frames: &[u8]) -> Bytes {
        let mut out = vec![];
        for (event, data) in events(frames) {
            if !matches!(event, "messages/partial" | "messages/complete") {
                continue;
            }
            // What the server has written itself is JSON.
            let Ok(Value::List(messages)) = Value::from_json_slice(data) else {
                continue;
            };
            for message in messages.iter() {
                if let Some(update) = self.working(message) {
                    push(&mut out, &self.id, update);
                }
            }
        }
        out.into()
    }

    /// The update with what a model has said so far.
    fn working(&self, message: &Value) -> Option<Value> {
        let kind = message.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("ai" | "AIMessageChunk")) {
            return None;
        }
        let parts = part::parts(message.get("content")?);
        if parts.is_empty() {
            return None;
        }
        let key = self.task.key;
        let (id, context) = (key.to_string(), key.context());
        let status = Status {
            state: State::Working,
            message: Some(Message {
                is_users: false,
                parts,
                id: message.get("id").and_then(Value::as_str)?.into(),
                task: Some((&*id).into()),
            }),
            at: Timestamp::now().to_string(),
        };
        let generation = self.tasks.generation;
        Some(generation.status_update(&id, &context, &status, false))
    }
}

/// The last updates of a task, once its run has ended.
async fn last(id: Value, tasks: Tasks, task: Task, end: BoxFuture<'static, ()>) -> Bytes {
    end.await;
    let mut out = vec![];
    let key = task.key;
    let ended = match tasks.load(key).await {
        Ok(Some(ended)) => ended,
        Ok(None) => {
            let gone = missing(&key.to_string()).into_message(&id);
            frame(&mut out, &gone);
            return out.into();
        }
        Err(error) => {
            let failed = json_rpc::Failure::from(error).into_message(&id);
            frame(&mut out, &failed);
            return out.into();
        }
    };
    let (name, context) = (key.to_string(), key.context());
    for artifact in &ended.artifacts {
        let update = tasks.generation.artifact_update(&name, &context, artifact);
        push(&mut out, &id, update);
    }
    let status = &ended.status;
    push(
        &mut out,
        &id,
        tasks
            .generation
            .status_update(&name, &context, status, true),
    );
    out.into()
}

#[async_trait]
impl FrameSource for Updates {
    fn paid_by(&mut self, payer: &Arc<str>) {
        if let Some(frames) = &mut self.frames {
            frames.paid_by(payer);
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match &mut self.state {
                Progress::Begins => {
                    self.state = Progress::Runs;
                    return Some(self.first());
                }
                Progress::Runs => {
                    let frames = match &mut self.frames {
                        Some(frames) => frames.next().await,
                        None => None,
                    };
                    if let Some(frames) = frames {
                        let updates = self.updates(&frames);
                        if updates.is_empty() {
                            continue;
                        }
                        return Some(updates);
                    }
                    let Some(end) = self.end.take() else {
                        self.state = Progress::Ended;
                        continue;
                    };
                    let (id, tasks, task) =
                        (self.id.clone(), self.tasks.clone(), self.task.clone());
                    self.state = Progress::Ends(last(id, tasks, task, end).boxed());
                }
                Progress::Ends(last) => {
                    let last = last.await;
                    self.state = Progress::Ended;
                    return Some(last);
                }
                Progress::Ended => return None,
            }
        }
    }
}

fn push(out: &mut Vec<u8>, id: &Value, result: Value) {
    frame(out, &json_rpc::result(id, result));
}

fn frame(out: &mut Vec<u8>, message: &Value) {
    write_frame(out, "message", message.to_json().as_bytes(), None);
}

/// The events in whole frames, as [`write_frame`] makes them: the name and the data of each.
fn events(frames: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    let lines = frames.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut name = "";
    lines.filter_map(move |line| {
        if let Some(text) = line.strip_prefix(b"event: ") {
            name = std::str::from_utf8(text).unwrap_or_default();
        }
        line.strip_prefix(b"data: ").map(|data| (name, data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_back_as_they_were_written() {
        let mut out = vec![];
        write_frame(&mut out, "metadata", b"{}", None);
        write_frame(&mut out, "messages/partial", b"[1]", Some(7));
        let read: Vec<_> = events(&out).collect();
        assert_eq!(
            read,
            [("metadata", &b"{}"[..]), ("messages/partial", b"[1]")]
        );
    }
}
