//! Approvals: a human decides about tool calls before they run, in the form that front ends know.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    agent::progress::Progress,
    extract::{Ctx, FromTask},
    graph::Output,
    llm::{
        Tool,
        tools::node::{error_message, message},
    },
    message::{Message, ToolCall},
    value::{Map, Value},
};

/// The channel of edited calls.
pub(super) const EDITED: &str = "hitl_edited_tool_calls";

/// What a human may decide about a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The call runs.
    Approve,
    /// It runs with another name or other arguments.
    Edit,
    /// It does not run, and the model reads why.
    Reject,
    /// It does not run: its result is what the human writes.
    Respond,
}

impl Decision {
    const ALL: [Self; 4] = [Self::Approve, Self::Edit, Self::Reject, Self::Respond];

    fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Edit => "edit",
            Self::Reject => "reject",
            Self::Respond => "respond",
        }
    }
}

type When = dyn Fn(&ToolCall) -> bool + Send + Sync;
type Describe = dyn Fn(&ToolCall) -> String + Send + Sync;

/// How calls of a tool are reviewed. The default allows every decision about every call.
///
/// ```
/// use backstitch::agent::{Decision, Review};
///
/// let review = Review::new()
///     .allow([Decision::Approve, Decision::Reject])
///     .describe(|call| format!("Delete {}?", call.args["path"]))
///     .when(|call| call.args["path"].as_str().is_some_and(|path| path.starts_with("/etc")));
/// ```
#[derive(Clone)]
#[must_use = "a review does nothing until an agent gets it"]
pub struct Review {
    pub(super) allowed: Vec<Decision>,
    describe: Option<Arc<Describe>>,
    when: Option<Arc<When>>,
}

impl Default for Review {
    fn default() -> Self {
        Self {
            allowed: Decision::ALL.into(),
            describe: None,
            when: None,
        }
    }
}

impl Review {
    /// Every decision about every call.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only these decisions.
    pub fn allow(mut self, decisions: impl IntoIterator<Item = Decision>) -> Self {
        self.allowed = decisions.into_iter().collect();
        self.allowed.dedup();
        self
    }

    /// What the human reads about a call.
    pub fn describe(mut self, text: impl Fn(&ToolCall) -> String + Send + Sync + 'static) -> Self {
        self.describe = Some(Arc::new(text));
        self
    }

    /// Reviews only calls for which this is true. It has to be the same for the same call: a run that is resumed
    /// calls it anew.
    pub fn when(mut self, concerned: impl Fn(&ToolCall) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(Arc::new(concerned));
        self
    }

    fn concerns(&self, call: &ToolCall) -> bool {
        self.when.as_ref().is_none_or(|when| when(call))
    }

    fn description(&self, call: &ToolCall) -> String {
        match &self.describe {
            Some(describe) => describe(call),
            None => format!(
                "The tool `{}` waits for approval of its arguments: {}",
                call.name,
                call.args.to_json()
            ),
        }
    }

    fn allowed_names(&self) -> Value {
        self.allowed
            .iter()
            .map(|decision| decision.as_str())
            .collect()
    }
}

/// The node that interrupts for a human's decisions.
pub(super) struct Approval {
    pub reviews: BTreeMap<Arc<str>, Review>,
    pub tools: Vec<Arc<Tool>>,
}

/// A call with its review.
type Reviewed = (ToolCall, Review);

/// What a human has decided about one call.
enum Decided {
    Run,
    Edit(Value),
    Result(Message),
}

impl Approval {
    /// Interrupts if calls of the last message need a decision, and applies the decisions.
    pub async fn run(self: Arc<Self>, ctx: Ctx) -> anyhow::Result<Output> {
        let progress = Progress::from_task(&ctx)?;
        let last = progress.last_turn();
        if last.is_none_or(|(message, _)| message.tool_calls().is_empty()) {
            return Ok(Output::default());
        }
        let pending = progress.pending_calls().into_iter();
        let reviewed: Vec<Reviewed> = pending
            .filter_map(|call| {
                let review = self.reviews.get(&call.name)?.clone();
                review.concerns(&call).then_some((call, review))
            })
            .collect();
        let mut edited = Map::new();
        let mut messages = Vec::new();
        if !reviewed.is_empty() {
            let step = self.clone();
            let calls = reviewed.clone();
            let decisions = ctx
                .interrupt_checked(request(&reviewed), move |value| {
                    step.decisions(value, &calls)
                })
                .await;
            for ((call, _), decided) in reviewed.iter().zip(decisions) {
                match decided {
                    Decided::Run => {}
                    Decided::Edit(action) => {
                        edited.insert(call.id.clone().unwrap_or_default(), action);
                    }
                    Decided::Result(message) => messages.push(Value::from(message)),
                }
            }
        }
        let mut output = Output::default();
        if !messages.is_empty() {
            output
                .writes
                .push(("messages".into(), Value::list(messages)));
        }
        // Edits of earlier calls do not change these: some servers number calls anew in each reply.
        let old = progress.hitl_edited_tool_calls.as_ref();
        let old = old.and_then(Value::as_map);
        if !reviewed.is_empty() || old.is_some_and(|old| !old.is_empty()) {
            output.writes.push((EDITED.into(), Value::map(edited)));
        }
        Ok(output)
    }

    /// Reads the resume value: one decision a call, in their order.
    fn decisions(&self, value: &Value, calls: &[Reviewed]) -> anyhow::Result<Vec<Decided>> {
        let decisions = value.get("decisions").and_then(Value::as_list);
        let Some(decisions) = decisions else {
            anyhow::bail!(
                "resume with {{\"decisions\": [..]}}, a list of one decision a tool call, not with a {}",
                value.type_name()
            )
        };
        anyhow::ensure!(
            decisions.len() == calls.len(),
            "{} tool calls wait for a decision, and the list has {}: decide each, in their order",
            calls.len(),
            decisions.len()
        );
        let each = decisions.iter().zip(calls).enumerate();
        each.map(|(index, (decision, (call, review)))| {
            let decided = self.decision(decision, call, review);
            decided
                .map_err(|error| error.context(format!("decision {index}, about `{}`", call.name)))
        })
        .collect()
    }

    fn decision(
        &self,
        decision: &Value,
        call: &ToolCall,
        review: &Review,
    ) -> anyhow::Result<Decided> {
        let text = |key: &str| decision.get(key).and_then(Value::as_str);
        let kind = text("type").ok_or_else(|| {
            anyhow::anyhow!("it needs a \"type\": {}", review.allowed_names().to_json())
        })?;
        let known = review
            .allowed
            .iter()
            .find(|allowed| allowed.as_str() == kind);
        let Some(known) = known else {
            anyhow::bail!(
                "\"{kind}\" is not allowed: {}",
                review.allowed_names().to_json()
            )
        };
        Ok(match known {
            Decision::Approve => Decided::Run,
            Decision::Edit => Decided::Edit(self.edit(decision)?),
            Decision::Reject => {
                let text = match text("message").filter(|reason| !reason.is_empty()) {
                    Some(reason) => {
                        format!("A human has rejected the call of `{}`: {reason}", call.name)
                    }
                    None => format!(
                        "A human has rejected the call of `{}`. It was not run; do not repeat it unless the human wants it.",
                        call.name
                    ),
                };
                Decided::Result(error_message(call, text))
            }
            Decision::Respond => {
                let text = text("message")
                    .ok_or_else(|| anyhow::anyhow!("\"respond\" needs a text in \"message\""))?;
                Decided::Result(message(call, text))
            }
        })
    }

    /// The edited call, if a tool of the agent takes it.
    fn edit(&self, decision: &Value) -> anyhow::Result<Value> {
        let action = decision.get("edited_action");
        let name = action.and_then(|action| action.get("name")?.as_str());
        let args = action
            .and_then(|action| action.get("args"))
            .filter(|args| args.as_map().is_some());
        let (Some(name), Some(args)) = (name, args) else {
            anyhow::bail!("\"edit\" needs \"edited_action\": {{\"name\": .., \"args\": {{..}}}}")
        };
        let Some(tool) = self.tools.iter().find(|tool| tool.name() == name) else {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            anyhow::bail!("there is no tool `{name}`, only: {}", names.join(", "))
        };
        tool.check(args)?;
        Ok(Value::map(Map::from([
            ("name", name.into()),
            ("args", args.clone()),
        ])))
    }
}

/// What the interrupt shows.
fn request(reviewed: &[Reviewed]) -> Value {
    let actions = reviewed.iter().map(|(call, review)| {
        Value::map(Map::from([
            ("name", Value::Str(call.name.clone())),
            ("args", call.args.clone()),
            ("description", review.description(call).into()),
        ]))
    });
    let configs = reviewed.iter().map(|(call, review)| {
        Value::map(Map::from([
            ("action_name", Value::Str(call.name.clone())),
            ("allowed_decisions", review.allowed_names()),
        ]))
    });
    Value::map(Map::from([
        ("action_requests", actions.collect::<Value>()),
        ("review_configs", configs.collect::<Value>()),
    ]))
}

/// The call that runs in place of `call`, if a human has edited it.
pub(super) fn edited(state: &Map, call: &ToolCall) -> Option<ToolCall> {
    let action = state
        .get(EDITED)?
        .get(call.id.as_deref().unwrap_or_default())?;
    Some(ToolCall {
        id: call.id.clone(),
        name: action.get("name")?.as_str()?.into(),
        args: action.get("args")?.clone(),
    })
}
