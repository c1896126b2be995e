//! The events of a run as a stream of typed items, for programs that show what happens.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::stream::BoxStream;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Error, RunOutput, Thread,
    invoke::{resumed_with, started_with},
};
use crate::{
    engine::{Body, Event, Input, Interrupt, Kind, Sink},
    message::Message,
    state::IntoInput,
    value::Value,
};

/// Most events that wait to be read: a run that is so far ahead of its reader is stopped.
const MOST_UNREAD: usize = 100_000;

/// What happens while a graph runs. Tokens, messages and what nodes emit also come from graphs
/// inside; values, updates and interrupts are those of the graph itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StreamEvent {
    /// The state, after each superstep.
    Values(Value),
    /// A node has finished.
    Update {
        /// The node.
        node: Arc<str>,
        /// What it wrote, by channel; null for nothing.
        update: Value,
    },
    /// A piece of the text of a model's reply.
    Token {
        /// The node that calls the model.
        node: Arc<str>,
        /// The piece.
        text: String,
    },
    /// A message that a node wrote, unless it came in pieces before.
    Message {
        /// The node.
        node: Arc<str>,
        /// The message.
        message: Message,
    },
    /// What a node emitted with [`Ctx::emit`](crate::extract::Ctx::emit).
    Custom(Value),
    /// A node waits for a resume value.
    Interrupt(Interrupt),
    /// The run has ended, or waits: the last item of every stream that has no error.
    End(RunOutput),
}

impl Thread {
    /// Runs the graph as [`invoke`](Self::invoke) does, and shows what happens meanwhile. The
    /// last item is [`End`](StreamEvent::End) or the error. The run goes on while the stream is read,
    /// and stops when it is dropped. Of the thread's options `sink` does not count here.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use backstitch::{Local, prelude::*, run::StreamEvent};
    /// use futures::StreamExt;
    ///
    /// #[derive(State)]
    /// struct Chat {
    ///     #[state(messages)]
    ///     messages: Vec<Message>,
    /// }
    ///
    /// async fn reply(chat: Chat, model: Dep<dyn ChatModel>, ctx: Ctx) -> Result<Update<Chat>> {
    ///     let reply = ctx.chat(&*model, &chat.messages, &[]).await?;
    ///     Ok(Chat::update().messages(reply))
    /// }
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let model: Arc<dyn ChatModel> = Arc::new(ScriptedModel::replying([Message::ai("Good day!")]));
    /// let graph = Graph::<Chat>::new()
    ///     .provide(model)
    ///     .node("reply", reply)
    ///     .edge(START, "reply")
    ///     .build()?;
    /// let thread = Local::memory()?.thread(&graph);
    /// let mut events = thread.stream(json!({"messages": "Hello"}));
    /// let mut shown = String::new();
    /// while let Some(event) = events.next().await {
    ///     match event? {
    ///         StreamEvent::Token { text, .. } => shown.push_str(&text),
    ///         StreamEvent::End(done) => assert_eq!(done.values::<Chat>()?.messages.len(), 2),
    ///         _ => {}
    ///     }
    /// }
    /// assert_eq!(shown, "Good day!");
    /// # anyhow::Ok(())
    /// # }).unwrap();
    /// ```
    pub fn stream(&self, input: impl IntoInput) -> BoxStream<'static, Result<StreamEvent, Error>> {
        self.events(started_with(input))
    }

    /// As [`resume`](Self::resume), as a stream.
    pub fn stream_resume(
        &self,
        value: impl Serialize,
    ) -> BoxStream<'static, Result<StreamEvent, Error>> {
        self.events(resumed_with(value))
    }

    fn events(
        &self,
        input: Result<Input, Error>,
    ) -> BoxStream<'static, Result<StreamEvent, Error>> {
        let thread = self.clone();
        Box::pin(async_stream::stream! {
            let input = match input {
                Ok(input) => input,
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            let (sender, mut unread) = mpsc::unbounded_channel();
            let mut options = thread.options.clone();
            options.cancel = options.cancel.child_token();
            let sink = Arc::new(TypedSink {
                sender,
                waiting: AtomicUsize::new(0),
                cancel: options.cancel.clone(),
            });
            options.sink = sink.clone();
            let mut run = Box::pin(thread.finish(input, options));
            let ended = loop {
                let event = tokio::select! {
                    biased;
                    Some(event) = unread.recv() => event,
                    ended = &mut run => break ended,
                };
                sink.waiting.fetch_sub(1, Ordering::Relaxed);
                yield Ok(event);
            };
            while let Ok(event) = unread.try_recv() {
                yield Ok(event);
            }
            if sink.waiting.load(Ordering::Relaxed) > MOST_UNREAD {
                yield Err(Error::Unread(MOST_UNREAD));
            } else {
                yield ended.map(StreamEvent::End);
            }
        })
    }
}

/// Turns the events of a run into items for the reader of its stream.
struct TypedSink {
    sender: mpsc::UnboundedSender<StreamEvent>,
    /// Items that are not read yet; once the run was stopped for them, the number stays too high.
    waiting: AtomicUsize,
    cancel: CancellationToken,
}

impl TypedSink {
    fn send(&self, event: StreamEvent) {
        if self.waiting.load(Ordering::Relaxed) > MOST_UNREAD {
            return;
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST_UNREAD {
            self.cancel.cancel();
            self.waiting.store(usize::MAX / 2, Ordering::Relaxed);
        }
        // Without a reader the run is being dropped.
        drop(self.sender.send(event));
    }
}

impl Sink for TypedSink {
    fn wants(&self, kind: Kind, ns: &str) -> bool {
        match kind {
            Kind::Messages | Kind::Custom => true,
            Kind::Values | Kind::Updates => ns.is_empty(),
            Kind::Tasks | Kind::Checkpoints | Kind::Callbacks => false,
        }
    }

    fn emit(&self, event: Event) {
        match event.body {
            Body::Values(values) => self.send(StreamEvent::Values(values)),
            Body::Update { node, update, .. } => self.send(StreamEvent::Update { node, update }),
            Body::UpdateInterrupt(interrupts) => {
                for interrupt in interrupts {
                    self.send(StreamEvent::Interrupt(interrupt));
                }
            }
            Body::Custom { value, .. } => self.send(StreamEvent::Custom(value)),
            Body::Message {
                message,
                whole,
                task,
            } => {
                let node = task.name.clone();
                // Pieces have the fields of a message, and their own type.
                if !whole {
                    let text = Message::text_of(&message);
                    if !text.is_empty() {
                        self.send(StreamEvent::Token { node, text });
                    }
                } else if let Ok(message) = Message::try_from(message) {
                    self.send(StreamEvent::Message { node, message });
                }
            }
            Body::ValuesInterrupt(..)
            | Body::TaskStart { .. }
            | Body::TaskEnd { .. }
            | Body::Checkpoint(_)
            | Body::Callback(_) => {}
        }
    }
}
