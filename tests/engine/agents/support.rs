//! A model that replies with what a test wants and records its requests, and what tests read of a run.

use std::sync::Arc;

use backstitch::{
    Local, RunOptions, Thread,
    llm::{CallOptions, Tokens},
    message::{AiChunk, ToolCallChunk},
    prelude::*,
    run::{ClientCommand, Finished, Input},
    value,
};
use parking_lot::Mutex;

/// Messages, names of tools, and options of a call.
type Request = (Vec<Message>, Vec<String>, CallOptions);

/// Replies one after another, and what the model was called with.
#[derive(Clone, Default)]
pub struct Recorder {
    replies: Arc<Mutex<Vec<AiChunk>>>,
    pub calls: Arc<Mutex<Vec<Request>>>,
    pub follows_schemas: bool,
}

impl Recorder {
    pub fn replying(replies: impl IntoIterator<Item = AiChunk>) -> Self {
        let mut replies: Vec<_> = replies.into_iter().collect();
        replies.reverse();
        Self {
            replies: Arc::new(Mutex::new(replies)),
            ..Self::default()
        }
    }

    pub fn requests(&self) -> Vec<Vec<Message>> {
        self.calls
            .lock()
            .iter()
            .map(|call| call.0.clone())
            .collect()
    }
}

impl ChatModel for Recorder {
    fn stream(&self, messages: &[Message], tools: &[Arc<Tool>]) -> Tokens {
        self.stream_with(messages, tools, &CallOptions::new())
    }

    fn stream_with(
        &self,
        messages: &[Message],
        tools: &[Arc<Tool>],
        options: &CallOptions,
    ) -> Tokens {
        let tools = tools.iter().map(|tool| tool.name().to_owned()).collect();
        self.calls
            .lock()
            .push((messages.to_vec(), tools, options.clone()));
        let reply = self.replies.lock().pop();
        let reply = reply.ok_or_else(|| anyhow::anyhow!("the script has ended"));
        Box::pin(futures::stream::iter([reply]))
    }

    fn follows_schemas(&self) -> bool {
        self.follows_schemas
    }
}

pub fn calling(name: &str, args: &str, id: &str) -> AiChunk {
    AiChunk {
        tool_call_chunks: vec![ToolCallChunk {
            name: Some(name.into()),
            args: args.into(),
            id: Some(id.into()),
            index: Some(0),
        }],
        ..AiChunk::default()
    }
}

pub fn says(text: &str) -> AiChunk {
    AiChunk::text(text)
}

pub fn hello() -> Input {
    Input::Value(value!({"messages": [{"type": "human", "content": "Hi"}]}))
}

pub fn resume(value: Value) -> Input {
    Input::Command(ClientCommand {
        resume: Some(value),
        ..ClientCommand::default()
    })
}

pub fn thread(graph: &Arc<Compiled>) -> Thread {
    Local::memory().unwrap().thread(graph)
}

pub async fn run(graph: &Arc<Compiled>) -> Finished {
    thread(graph)
        .run(hello(), RunOptions::default())
        .await
        .unwrap()
}

pub fn messages(done: &Finished) -> Vec<Message> {
    let list = done.values["messages"].as_list().unwrap();
    list.iter()
        .map(|message| message.try_into().unwrap())
        .collect()
}

pub fn texts(done: &Finished) -> Vec<String> {
    messages(done).iter().map(Message::text).collect()
}
