//! What a node reports of the models and tools that it calls, for callback events.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use uuid::Uuid;

use super::Ctx;
use crate::{
    message::{AiChunk, Message, Sum},
    value::Value,
};

/// One call of a chat model.
#[derive(Clone, Debug)]
pub struct ModelCall {
    /// Its id, which the message of the reply names if the model gives it none.
    pub id: Uuid,
    /// The model.
    pub name: Arc<str>,
    /// Who serves the model, if it tells.
    pub provider: Option<Arc<str>>,
    /// The conversation that it was called with, if that is known.
    pub messages: Option<Value>,
}

impl ModelCall {
    /// A call of which nothing is known but the reply.
    fn unknown() -> Self {
        Self {
            id: Uuid::now_v7(),
            name: "ChatModel".into(),
            provider: None,
            messages: None,
        }
    }
}

/// One call of a tool.
#[derive(Clone, Debug)]
pub struct ToolRun {
    /// Its id.
    pub id: Uuid,
    /// The tool.
    pub name: Arc<str>,
    /// The arguments.
    pub input: Value,
    /// The id under which a model requested it.
    pub call: Option<Arc<str>>,
}

/// What a task reports.
#[derive(Clone, Debug)]
pub enum Report {
    /// A model is called.
    ModelStart(Arc<ModelCall>),
    /// A piece of its reply.
    ModelPiece(Arc<ModelCall>, Value),
    /// The whole reply.
    ModelEnd(Arc<ModelCall>, Value),
    /// A tool is called.
    ToolStart(Arc<ToolRun>),
    /// What it returned.
    ToolEnd(Arc<ToolRun>, Value),
    /// It failed: `{"error", "message"}`.
    ToolError(Arc<ToolRun>, Value),
}

impl Ctx {
    /// Whether anybody receives reports: others need not be built.
    pub(crate) fn reports(&self) -> bool {
        self.task().host.reports()
    }

    /// Reports what the task does.
    pub(crate) fn report(&self, report: Report) {
        self.task().host.report(self.task(), report);
    }

    /// Forwards model tokens to `messages` subscribers and returns the whole message. Where the model is
    /// at hand, [`chat`](Self::chat) also tells which model is called with what.
    ///
    /// # Errors
    /// The model's error, or a stream that ends without a chunk.
    pub async fn stream(
        &self,
        tokens: impl Stream<Item = anyhow::Result<AiChunk>> + Send,
    ) -> anyhow::Result<Message> {
        self.forward(ModelCall::unknown(), tokens).await
    }

    /// Forwards the reply to a call.
    pub(crate) async fn forward(
        &self,
        call: ModelCall,
        tokens: impl Stream<Item = anyhow::Result<AiChunk>> + Send,
    ) -> anyhow::Result<Message> {
        let mut tokens = std::pin::pin!(tokens);
        let call = Arc::new(call);
        self.report(Report::ModelStart(call.clone()));
        let mut whole: Option<Sum> = None;
        while let Some(piece) = tokens.next().await {
            let mut piece = piece?;
            match &mut whole {
                Some(whole) => {
                    piece.id = whole.id().cloned();
                    whole.push(&piece);
                }
                None => {
                    // Clients join pieces and message by id, so the first piece has one.
                    let id = || format!("lc_run--{}", call.id).into();
                    piece.id.get_or_insert_with(id);
                    whole = Some(Sum::of(&piece));
                }
            }
            let piece = piece.to_value();
            if self.reports() {
                self.report(Report::ModelPiece(call.clone(), piece.clone()));
            }
            self.task().host.message(self.task(), piece, false);
        }
        let mut whole = whole.ok_or_else(|| anyhow::anyhow!("the model sent nothing"))?;
        let message = whole.message();
        if self.reports() {
            let shown = message.clone().into();
            self.report(Report::ModelEnd(call, shown));
        }
        Ok(message)
    }
}
