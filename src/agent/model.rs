//! The node that calls the agent's model, and what it makes of the reply.

use std::{collections::HashSet, sync::Arc};

use futures::future::BoxFuture;

use super::{
    hooks::{JUMP, jumped},
    limits::{self, Checked, Limit},
    progress::{Jump, Progress, unusable_replies},
    response::{RESPONSE, Response},
};
use crate::{
    extract::{Ctx, FromTask, Requires},
    graph::{Handler, Output},
    llm::{CallOptions, ChatModel, Tool, ToolChoice, tools::node::error_message},
    message::{Message, Role, ToolCall},
    value::{Map, Value},
};

/// The result of a call that has none: a run ended while it was carried out, or beside a hand-off.
const NO_RESULT: &str =
    "This call has no result: it may have been carried out. Check before you repeat it.";

type MakePrompt = dyn Fn(&Ctx) -> anyhow::Result<String> + Send + Sync;

/// Instructions of a model.
#[derive(Clone)]
pub enum Prompt {
    /// Always the same.
    Text(Arc<str>),
    /// Made for each call, and what its maker needs of the graph.
    Made(Arc<MakePrompt>, fn(&mut Requires)),
}

/// What the node has.
pub(super) struct ModelStep {
    pub model: Arc<dyn ChatModel>,
    pub options: CallOptions,
    pub prompt: Option<Prompt>,
    pub tools: Vec<Arc<Tool>>,
    pub response: Option<Arc<Response>>,
    pub corrections: usize,
    pub model_calls: Option<Limit>,
    pub tool_calls: Vec<(Option<Arc<str>>, Limit)>,
    pub last_messages: Option<usize>,
    pub name: Option<Arc<str>>,
}

/// The last replies of the model could not be used.
#[derive(Debug, thiserror::Error)]
#[error("the model has sent {0} replies in a row that cannot be used: see the last messages")]
struct Unusable(usize);

/// The step as a node.
pub(super) struct ModelNode(pub Arc<ModelStep>);

/// Marks the node among the functions that are nodes.
pub(super) struct ByModel;

impl<S> Handler<S, ByModel> for ModelNode {
    fn requires(&self, requires: &mut Requires) {
        // As of every node that returns an `Output`.
        requires.commands = true;
        if let Some(Prompt::Made(_, needs)) = &self.0.prompt {
            needs(requires);
        }
    }

    fn call(&self, ctx: &Ctx) -> BoxFuture<'static, anyhow::Result<Output>> {
        Box::pin(self.0.clone().run(ctx.clone()))
    }
}

impl ModelStep {
    pub async fn run(self: Arc<Self>, ctx: Ctx) -> anyhow::Result<Output> {
        let state = ctx.input().as_map().cloned().unwrap_or_default();
        let messages = Progress::from_task(&ctx)?.messages;
        let mut output = Output::default();
        if jumped(&ctx) {
            output.writes.push((JUMP.into(), Value::Null));
        }
        if let Some(limit) = &self.model_calls
            && let Some(message) = limits::check_model(limit, &state)?
        {
            return Ok(ending(output, vec![message]));
        }
        let by_tool = self.response_tool();
        let name = by_tool.map(|tool| Arc::from(tool.name()));
        let alone = self.tools.is_empty();
        let unusable = unusable_replies(&messages, name.as_ref(), alone);
        if unusable > self.corrections {
            return Err(Unusable(unusable).into());
        }
        let reply = self.call(&ctx, &messages).await?;
        if self.model_calls.is_some() {
            output.writes.extend(limits::count_model(&state));
        }
        self.read(reply, &state, output)
    }

    /// The tool by which the model returns a response.
    pub fn response_tool(&self) -> Option<&Arc<Tool>> {
        let response = self.response.as_ref()?;
        (!self.model.follows_schemas()).then_some(&response.tool)
    }

    async fn call(&self, ctx: &Ctx, messages: &[Message]) -> anyhow::Result<Message> {
        let mut request = Vec::with_capacity(messages.len() + 1);
        let prompt = match &self.prompt {
            None => None,
            Some(Prompt::Text(text)) => Some(text.to_string()),
            Some(Prompt::Made(make, _)) => Some(make(ctx)?),
        };
        request.extend(prompt.map(Message::system));
        let shown = match self.last_messages {
            Some(most) => last(messages, most),
            None => messages,
        };
        with_results(shown, &mut request);
        let mut tools = self.tools.clone();
        let mut options = self.options.clone();
        if let Some(tool) = self.response_tool() {
            tools.push(tool.clone());
            options.tool_choice = ToolChoice::Any;
        } else if let Some(response) = &self.response {
            options.schema = Some(response.schema());
        }
        let reply = ctx
            .chat_with(&*self.model, &request, &tools, &options)
            .await?;
        Ok(match &self.name {
            Some(name) => reply.with_name(name.clone()),
            None => reply,
        })
    }

    /// Writes the reply, and what follows from it at once: results of calls that do not run, and the response.
    fn read(&self, reply: Message, state: &Map, mut output: Output) -> anyhow::Result<Output> {
        let reply = with_ids(reply);
        let calls = reply.tool_calls();
        let mut messages = unreadable_calls(&reply);
        if let Some(response) = &self.response {
            let outcome = if self.response_tool().is_some() {
                response.of_calls(&calls)
            } else if calls.is_empty() && messages.is_empty() {
                Some(response.of_text(&reply.text()))
            } else {
                None
            };
            let found = outcome.map(|outcome| {
                messages.extend(outcome.messages);
                outcome.response
            });
            // A response of an earlier turn does not survive into this one.
            let found = found.flatten().unwrap_or_default();
            output.writes.push((RESPONSE.into(), found));
        }
        let of_tools = |call: &ToolCall| {
            self.response_tool()
                .is_none_or(|tool| tool.name() != &*call.name)
        };
        let calls: Vec<ToolCall> = calls.into_iter().filter(of_tools).collect();
        let checked = limits::check_tools(&self.tool_calls, state, &calls)?;
        messages.insert(0, reply);
        Ok(with_checked(output, messages, checked))
    }
}

/// The output with what the limits make of the calls.
fn with_checked(mut output: Output, mut messages: Vec<Message>, checked: Checked) -> Output {
    output.writes.extend(checked.counts);
    messages.extend(checked.messages);
    if checked.ends {
        return ending(output, messages);
    }
    write_messages(&mut output, messages);
    output
}

/// The node that checks limits of tools, if one of them fails the run: the reply of the model is stored before it, so
/// that a retry of the model's node does not call the model anew.
pub(super) struct LimitStep {
    pub limits: Vec<(Option<Arc<str>>, Limit)>,
    /// The tool by which the model returns a response: its calls do not count.
    pub response: Option<Arc<str>>,
}

impl LimitStep {
    pub async fn run(self: Arc<Self>, ctx: Ctx) -> anyhow::Result<Output> {
        let state = ctx.input().as_map().cloned().unwrap_or_default();
        let mut calls = Progress::from_task(&ctx)?.pending_calls();
        calls.retain(|call| Some(&call.name) != self.response.as_ref());
        let checked = limits::check_tools(&self.limits, &state, &calls)?;
        Ok(with_checked(Output::default(), vec![], checked))
    }
}

fn write_messages(output: &mut Output, messages: Vec<Message>) {
    let messages = messages.into_iter().map(Value::from).collect();
    output
        .writes
        .push(("messages".into(), Value::list(messages)));
}

/// An output with which the agent ends.
fn ending(mut output: Output, messages: Vec<Message>) -> Output {
    output.writes.retain(|(name, _)| &**name != JUMP);
    // A plain enum always has a text form.
    let end = crate::value::to_value(&Jump::End).unwrap_or_default();
    output.writes.push((JUMP.into(), end));
    write_messages(&mut output, messages);
    output
}

/// The reply with an id for each call, different ones: decisions and results belong to calls by their ids, and
/// some servers set none, or one for all.
fn with_ids(reply: Message) -> Message {
    let mut known = HashSet::new();
    let mut value = Value::from(reply.clone());
    let mut changed = false;
    for list in ["tool_calls", "invalid_tool_calls"] {
        let calls = value.make_map_mut().and_then(|map| map.get_mut(list));
        for call in calls.and_then(Value::make_list_mut).into_iter().flatten() {
            let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
            if id.is_empty() || !known.insert(id.to_owned()) {
                let id = format!("call_{}", uuid::Uuid::new_v4().simple());
                known.insert(id.clone());
                if let Some(call) = call.make_map_mut() {
                    call.insert("id", id);
                    changed = true;
                }
            }
        }
    }
    if changed {
        // Only ids have changed, so it is a message as before.
        Message::try_from(&value).unwrap_or(reply)
    } else {
        reply
    }
}

/// Results of calls with arguments that cannot be read.
fn unreadable_calls(reply: &Message) -> Vec<Message> {
    let calls = reply.get("invalid_tool_calls").and_then(Value::as_list);
    let results = calls.unwrap_or_default().iter().filter_map(|call| {
        let text = |key: &str| call.get(key).and_then(Value::as_str);
        let call = ToolCall {
            id: Some(text("id")?.into()),
            name: text("name").unwrap_or("unknown").into(),
            args: Value::Null,
        };
        let why = text("error").unwrap_or_default();
        let text = format!("Not run: the arguments are not a JSON object ({why}). Call it anew with the whole arguments.");
        Some(error_message(&call, text))
    });
    results.collect()
}

/// The last messages, from one of a human on if there is one among them: results of tools do not lose their calls.
pub(super) fn last(messages: &[Message], most: usize) -> &[Message] {
    let first = messages.len().saturating_sub(most);
    if first == 0 {
        return messages;
    }
    let of_human = |message: &Message| message.role() == Role::Human;
    let begin = match messages[first..].iter().position(of_human) {
        Some(at) => first + at,
        None => messages[..first].iter().rposition(of_human).unwrap_or(0),
    };
    &messages[begin..]
}

/// Adds messages to a request. Models refuse calls without a result: a run that was cancelled, or an edited
/// conversation, may have such.
fn with_results(messages: &[Message], request: &mut Vec<Message>) {
    let results = messages.iter().filter_map(Message::tool_call_id);
    let results: HashSet<&str> = results.collect();
    for message in messages {
        request.push(message.clone());
        let missing: Vec<ToolCall> = message
            .tool_calls()
            .into_iter()
            .filter(|call| call.id.as_deref().is_some_and(|id| !results.contains(id)))
            .collect();
        let unreadable = unreadable_calls(message);
        let unreadable = unreadable.into_iter().filter(|result| {
            result
                .tool_call_id()
                .is_some_and(|id| !results.contains(id))
        });
        request.extend(unreadable);
        request.extend(missing.iter().map(|call| error_message(call, NO_RESULT)));
    }
}
