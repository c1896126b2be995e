//! Summaries of long conversations: older messages are replaced by what a model says about them.

use std::sync::Arc;

use crate::{
    agent::progress::Progress,
    extract::{Ctx, FromTask},
    graph::Output,
    llm::{CallOptions, ChatModel, complete},
    message::{Message, Role},
    value::{Map, Value},
};

/// What the model is asked for.
const INSTRUCTIONS: &str = "Below is the beginning of a conversation, which will be replaced by your summary. Write \
    down what is needed to go on with it: what the human wants, what was found out and decided, what is still to be \
    done. Reply with the summary alone.";

/// The longest text of one message that is summarized, in characters.
const LONGEST_TEXT: usize = 20_000;

/// When and how a conversation is summarized.
///
/// ```
/// use backstitch::{agent::Summary, prelude::*};
///
/// # let small_model = ScriptedModel::replying([]);
/// let summary = Summary::by(small_model).after_messages(60).or_after_tokens(30_000).keep(20);
/// ```
#[derive(Clone)]
#[must_use = "a summary does nothing until an agent gets it"]
pub struct Summary {
    model: Arc<dyn ChatModel>,
    messages: Option<usize>,
    tokens: Option<usize>,
    keep: usize,
}

impl Summary {
    /// Summaries by this model, of conversations with more than 100 messages; the last 20 stay as they are.
    pub fn by(model: impl ChatModel) -> Self {
        Self {
            model: Arc::new(model),
            messages: Some(100),
            tokens: None,
            keep: 20,
        }
    }

    /// Summarizes once there are as many messages.
    pub fn after_messages(mut self, messages: usize) -> Self {
        self.messages = Some(messages);
        self
    }

    /// Summarizes also once the messages have about as many tokens, of four characters each.
    pub fn or_after_tokens(mut self, tokens: usize) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// As many of the last messages stay as they are.
    pub fn keep(mut self, messages: usize) -> Self {
        self.keep = messages;
        self
    }

    fn is_due(&self, messages: &[Message]) -> bool {
        let tokens = || messages.iter().map(tokens).sum::<usize>();
        self.messages.is_some_and(|most| messages.len() >= most)
            || self.tokens.is_some_and(|most| tokens() >= most)
    }

    /// How many messages are summarized: calls of tools stay with their results.
    fn cut(&self, messages: &[Message]) -> usize {
        let mut cut = messages.len().saturating_sub(self.keep);
        while cut > 0 && messages.get(cut).is_some_and(|m| m.role() == Role::Tool) {
            cut -= 1;
        }
        cut
    }

    /// Replaces the older messages if that is due.
    pub(super) async fn run(self: Arc<Self>, ctx: Ctx) -> anyhow::Result<Output> {
        let messages = Progress::from_task(&ctx)?.messages;
        let cut = self.cut(&messages);
        if cut == 0 || !self.is_due(&messages) {
            return Ok(Output::default());
        }
        let (old, new) = messages.split_at(cut);
        let request = [
            Message::system(INSTRUCTIONS),
            Message::human(transcript(old)),
        ];
        let summary = complete(&self.model, &request, &[], &CallOptions::new()).await?;
        let text = format!("Summary of the conversation so far:\n\n{}", summary.text());
        let source = Value::map(Map::from([("lc_source", "summarization".into())]));
        let summary = Message::human(text).with_field("additional_kwargs", source);
        let mut all = vec![Message::remove_all(), summary];
        all.extend(new.iter().cloned());
        let all: Value = all.into_iter().collect();
        Ok(Output::update([("messages", all)]))
    }
}

fn tokens(message: &Message) -> usize {
    let calls = message.get("tool_calls").map(|calls| calls.to_json().len());
    (message.text().len() + calls.unwrap_or(0)).div_ceil(4)
}

/// The messages as a text.
fn transcript(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages {
        let text: String = message.text().chars().take(LONGEST_TEXT).collect();
        out.push_str(&format!("{}: {text}\n", message.role().as_str()));
        for call in message.tool_calls() {
            let args: String = call.args.to_json().chars().take(LONGEST_TEXT).collect();
            out.push_str(&format!(
                "{} calls {} with {args}\n",
                message.role().as_str(),
                call.name
            ));
        }
    }
    out
}
