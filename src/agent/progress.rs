//! The state of an agent, and what happens next in it.

use std::{collections::HashSet, sync::Arc};

use backstitch_derive::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    message::{Message, Role, ToolCall},
    state::{Channel, State, Unreadable, Update},
    value::{Map, Value},
};

/// Where a hook leads the agent instead of to what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Jump {
    /// To the end.
    End,
    /// To the model, through the hooks before it.
    Model,
    /// To the tool calls of the last message.
    Tools,
}

/// The channels of every agent. A state of one's own may have fields of these names and types, to read and to update
/// them.
#[derive(State, Clone, Debug)]
pub struct AgentState {
    /// The conversation.
    #[state(messages)]
    pub messages: Vec<Message>,
    /// Set by a hook that does not go on to what follows it.
    #[state(ephemeral)]
    pub jump_to: Option<Jump>,
}

/// What routes and nodes of the agent read.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub messages: Vec<Message>,
    pub jump_to: Option<Jump>,
    pub structured_response: Option<Value>,
    /// Calls that a human has edited, by id.
    pub hitl_edited_tool_calls: Option<Value>,
}

/// By hand: agents without responses or approvals do not have all of the channels.
impl State for Progress {
    type Update = Update<AgentState>;
    const NAME: &'static str = "Progress";

    fn channels() -> Vec<Channel> {
        AgentState::channels()
    }

    fn decode(state: &Map) -> Result<Self, Unreadable> {
        let AgentState { messages, jump_to } = AgentState::decode(state)?;
        let value = |name: &str| state.get(name).filter(|value| !value.is_null()).cloned();
        Ok(Self {
            messages,
            jump_to,
            structured_response: value("structured_response"),
            hitl_edited_tool_calls: value("hitl_edited_tool_calls"),
        })
    }
}

/// What follows the model.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// These calls are to be run.
    Tools(Vec<ToolCall>),
    /// The model is called.
    Model,
    /// The agent has finished.
    End,
}

impl Progress {
    /// The last message of the model, and the messages of tools after it.
    pub fn last_turn(&self) -> Option<(&Message, &[Message])> {
        let is_ai = |message: &Message| message.role() == Role::Ai;
        let at = self.messages.iter().rposition(is_ai)?;
        Some((&self.messages[at], &self.messages[at + 1..]))
    }

    /// The calls of the last message of the model that have no result.
    pub fn pending_calls(&self) -> Vec<ToolCall> {
        let Some((message, results)) = self.last_turn() else {
            return Vec::new();
        };
        let done: HashSet<&str> = results.iter().filter_map(Message::tool_call_id).collect();
        let mut calls = message.tool_calls();
        calls.retain(|call| !done.contains(call.id.as_deref().unwrap_or_default()));
        calls
    }

    /// What follows the model and what comes after it. `response` is the name of the tool by which the model returns
    /// its structured response, `tools` whether there are others.
    pub fn after_model(&self, response: Option<&Arc<str>>, tools: bool) -> Step {
        match self.jump_to {
            Some(Jump::End) => return Step::End,
            Some(Jump::Model) => return Step::Model,
            Some(Jump::Tools) | None => {}
        }
        let Some((message, results)) = self.last_turn() else {
            return Step::End;
        };
        let mut pending = self.pending_calls();
        pending.retain(|call| Some(&call.name) != response);
        if !pending.is_empty() && tools {
            return Step::Tools(pending);
        }
        if self.structured_response.is_some() {
            return Step::End;
        }
        let replied = message.tool_calls().is_empty() && results.is_empty();
        // Without tools nothing but a response ends the loop; with tools the model may also just reply.
        let wants_response = response.is_some() && !tools;
        if !wants_response && (replied || !pending.is_empty()) {
            Step::End
        } else {
            Step::Model
        }
    }

    /// Whether the agent ends after its tools: all that ran return directly, or a response came with them.
    pub fn ends_after_tools(
        &self,
        response: Option<&Arc<str>>,
        returns_directly: impl Fn(&str) -> bool,
        is_tool: impl Fn(&str) -> bool,
    ) -> bool {
        let Some((message, results)) = self.last_turn() else {
            return false;
        };
        let name_of = |call: &ToolCall| {
            let id = call.id.as_deref().unwrap_or_default();
            let edited = self.hitl_edited_tool_calls.as_ref();
            let edited = edited.and_then(|edited| edited.get(id)?.get("name")?.as_str());
            if let Some(name) = edited.filter(|name| is_tool(name)) {
                return name.to_owned();
            }
            let result = results
                .iter()
                .find(|result| result.tool_call_id() == Some(id));
            let name = result.and_then(Message::name).filter(|name| is_tool(name));
            name.map_or_else(|| call.name.to_string(), str::to_owned)
        };
        let calls = message.tool_calls();
        let mut names = calls
            .iter()
            .map(name_of)
            .filter(|name| is_tool(name))
            .peekable();
        if names.peek().is_some() && names.all(|name| returns_directly(&name)) {
            return true;
        }
        response.is_some() && self.structured_response.is_some()
    }
}

/// How often in a row the last replies of the model could not be used. `response` is the name of the tool by
/// which it returns its structured response; `alone`: it has no other, so that every reply without a
/// response is of no use.
pub(super) fn unusable_replies(
    messages: &[Message],
    response: Option<&Arc<str>>,
    alone: bool,
) -> usize {
    let mut count = 0;
    let mut end = messages.len();
    while let Some(at) = messages[..end].iter().rposition(|m| m.role() == Role::Ai) {
        let after = &messages[at + 1..end];
        let of_response = |message: &Message| {
            message.role() == Role::Tool
                && response.is_some_and(|name| message.name() == Some(name))
        };
        let corrected = |message: &Message| match message.role() {
            Role::Tool => of_response(message) && message.text().starts_with(WRONG),
            Role::Human => message.name() == Some(CORRECTION),
            _ => false,
        };
        let newer =
            |message: &Message| message.role() == Role::Human && message.name() != Some(CORRECTION);
        if after.iter().any(newer) {
            break;
        }
        let complete = |message: &Message| of_response(message) && !corrected(message);
        if after.iter().any(complete) {
            break;
        }
        let unreadable = messages[at].get("invalid_tool_calls").is_some();
        let without_response = alone && response.is_some();
        if !unreadable && !without_response && !after.iter().any(corrected) {
            break;
        }
        count += 1;
        end = at;
    }
    count
}

/// What the result of a structured response begins with that is wrong.
pub(super) const WRONG: &str = "Error: ";

/// The name of the speaker who shows a model what is wrong with its reply.
pub(super) const CORRECTION: &str = "correction";
