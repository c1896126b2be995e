//! Limits of model and tool calls, per run and per thread.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    llm::tools::node::error_message,
    message::{Message, ToolCall},
    value::{self, Map, Value},
};

/// The channels of the counts. Those of a run are not stored: a run that is resumed, or goes on in another process,
/// counts anew.
pub(super) const THREAD_MODEL_CALLS: &str = "thread_model_call_count";
pub(super) const RUN_MODEL_CALLS: &str = "run_model_call_count";
pub(super) const THREAD_TOOL_CALLS: &str = "thread_tool_call_count";
pub(super) const RUN_TOOL_CALLS: &str = "run_tool_call_count";

/// The key of the count of all tools.
const ALL_TOOLS: &str = "__all__";

/// What happens at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exceeded {
    /// The default: a model is not called and the agent ends; a tool is not called and the model reads why.
    Default,
    End,
    Fail,
}

/// How many calls there may be.
///
/// ```
/// use backstitch::agent::Limit;
///
/// let limit = Limit::per_run(5).per_thread(20).or_fail();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a limit does nothing until an agent gets it"]
pub struct Limit {
    run: Option<u64>,
    thread: Option<u64>,
    exceeded: Exceeded,
}

impl Limit {
    /// This many calls in one run; an interrupt ends a run.
    pub fn per_run(calls: u64) -> Self {
        Self {
            run: Some(calls),
            thread: None,
            exceeded: Exceeded::Default,
        }
    }

    /// This many calls in all runs of a thread.
    pub fn in_thread(calls: u64) -> Self {
        Self {
            run: None,
            ..Self::per_run(0)
        }
        .per_thread(calls)
    }

    /// And this many calls in all runs of a thread.
    pub fn per_thread(mut self, calls: u64) -> Self {
        self.thread = Some(calls);
        self
    }

    /// Ends the agent at the limit. That is the default for calls of the model; calls of tools are refused one by one,
    /// and the model goes on.
    pub fn or_end(mut self) -> Self {
        self.exceeded = Exceeded::End;
        self
    }

    /// Fails the run at the limit.
    pub fn or_fail(mut self) -> Self {
        self.exceeded = Exceeded::Fail;
        self
    }

    /// Whether a call beyond it fails the run.
    pub(super) fn fails(&self) -> bool {
        self.exceeded == Exceeded::Fail
    }

    fn allows(&self, in_run: u64, in_thread: u64) -> bool {
        self.run.is_none_or(|most| in_run <= most)
            && self.thread.is_none_or(|most| in_thread <= most)
    }

    fn describe(&self, in_run: u64, in_thread: u64) -> String {
        let part = |what: &str, count: u64, most: Option<u64>| {
            let most = most.filter(|most| count > *most)?;
            Some(format!("{most} in this {what}"))
        };
        let parts = [
            part("thread", in_thread, self.thread),
            part("run", in_run, self.run),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A call beyond a limit that fails the run.
#[derive(Debug, thiserror::Error)]
#[error("the limit of {what} is reached: {limit}")]
pub(super) struct LimitReached {
    what: String,
    limit: String,
}

fn count(state: &Map, channel: &str) -> u64 {
    state.get(channel).and_then(Value::as_u64).unwrap_or(0)
}

/// Whether the model may be called now; else the message with which the agent ends.
///
/// # Errors
/// The limit fails the run.
pub(super) fn check_model(limit: &Limit, state: &Map) -> anyhow::Result<Option<Message>> {
    let (run, thread) = (
        count(state, RUN_MODEL_CALLS) + 1,
        count(state, THREAD_MODEL_CALLS) + 1,
    );
    if limit.allows(run, thread) {
        return Ok(None);
    }
    let reached = LimitReached {
        what: "calls of the model".to_owned(),
        limit: limit.describe(run, thread),
    };
    if limit.exceeded == Exceeded::Fail {
        return Err(reached.into());
    }
    let text = format!("I stop here: {reached}.");
    Ok(Some(Message::ai(text)))
}

/// The counts after another call of the model.
pub(super) fn count_model(state: &Map) -> Vec<(Arc<str>, Value)> {
    [THREAD_MODEL_CALLS, RUN_MODEL_CALLS]
        .map(|channel| (channel.into(), Value::from(count(state, channel) + 1)))
        .into()
}

/// What the limits make of the calls of a message.
#[derive(Default)]
pub(super) struct Checked {
    /// Messages of tools in place of calls that are not run, and the last message of an agent that ends.
    pub messages: Vec<Message>,
    /// The new counts.
    pub counts: Vec<(Arc<str>, Value)>,
    /// The agent ends.
    pub ends: bool,
}

/// Checks and counts the calls of a message, those of every limit on its own.
///
/// # Errors
/// A limit fails the run.
pub(super) fn check_tools(
    limits: &[(Option<Arc<str>>, Limit)],
    state: &Map,
    calls: &[ToolCall],
) -> anyhow::Result<Checked> {
    let counts = |channel| -> BTreeMap<String, u64> {
        let stored = state.get(channel).map(value::from_value);
        stored.and_then(Result::ok).unwrap_or_default()
    };
    let (mut in_run, mut in_thread) = (counts(RUN_TOOL_CALLS), counts(THREAD_TOOL_CALLS));
    let mut checked = Checked::default();
    let mut refused: Vec<&ToolCall> = Vec::new();
    let mut counted = false;
    for (tool, limit) in limits {
        let key = tool.as_deref().unwrap_or(ALL_TOOLS);
        let concerned = |call: &&ToolCall| tool.as_ref().is_none_or(|tool| *tool == call.name);
        if !calls.iter().any(|call| concerned(&call)) {
            continue;
        }
        counted = true;
        let (mut run, mut thread) = (
            in_run.get(key).copied().unwrap_or(0),
            in_thread.get(key).copied().unwrap_or(0),
        );
        let before = thread;
        let mut beyond = Vec::new();
        for call in calls.iter().filter(concerned) {
            if limit.allows(run + 1, thread + 1) {
                run += 1;
                thread += 1;
            } else {
                beyond.push(call);
            }
        }
        let (run_wanted, thread_wanted) = (run + beyond.len() as u64, thread + beyond.len() as u64);
        in_run.insert(key.to_owned(), run_wanted);
        in_thread.insert(key.to_owned(), thread);
        let Some(first) = beyond.first() else {
            continue;
        };
        let what = match tool {
            Some(tool) => format!("calls of `{tool}`"),
            None => "calls of tools".to_owned(),
        };
        let reached = LimitReached {
            what,
            limit: limit.describe(run_wanted, thread_wanted),
        };
        tracing::debug!(tool = %first.name, "{reached}");
        match limit.exceeded {
            Exceeded::Fail => return Err(reached.into()),
            Exceeded::Default => {}
            Exceeded::End => {
                in_thread.insert(key.to_owned(), before);
                checked.ends = true;
                checked
                    .messages
                    .push(Message::ai(format!("I stop here: {reached}.")));
            }
        }
        refused.extend(beyond);
    }
    let text = |call: &ToolCall| {
        if refused.iter().any(|other| other.id == call.id) {
            Some(format!(
                "Not run: the limit of calls is reached. Do not call `{}` any more.",
                call.name
            ))
        } else if checked.ends {
            Some("Not run: a call beside it is beyond a limit.".to_owned())
        } else {
            None
        }
    };
    let results = calls
        .iter()
        .filter_map(|call| Some(error_message(call, text(call)?)));
    let mut results: Vec<Message> = results.collect();
    // Those beyond the limit come first, as in LangChain.
    let beyond = |result: &Message| {
        refused
            .iter()
            .any(|call| call.id.as_deref() == result.tool_call_id())
    };
    results.sort_by_key(|result| !beyond(result));
    checked.messages.splice(0..0, results);
    if counted {
        checked.counts = vec![
            (THREAD_TOOL_CALLS.into(), value::to_value(&in_thread)?),
            (RUN_TOOL_CALLS.into(), value::to_value(&in_run)?),
        ];
    }
    Ok(checked)
}
