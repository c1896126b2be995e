//! The graph of an agent: its nodes, and the routes between them.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Agent, Jump,
    approval::{Approval, EDITED},
    limits,
    model::{LimitStep, ModelNode, ModelStep},
    progress::{Progress, Step},
    response::{RESPONSE, Response},
    tools::{AgentTools, ToolsStep},
};
use crate::{
    extract::Ctx,
    graph::{Compiled, END, Graph, Invalid, NodeOpts, Problem, Retry, START},
    llm::Tool,
    state::{Channel, State, Target, goto, merge},
    value::Map,
};

const MODEL: &str = "model";
const TOOLS: &str = "tools";
const APPROVAL: &str = "approval";
const SUMMARY: &str = "summary";
const LIMIT: &str = "limit";

/// What the routes have to know.
#[derive(Clone)]
struct Routes {
    tools: Arc<[Arc<Tool>]>,
    response: Option<Arc<str>>,
    /// The first node of each turn.
    entry: Arc<str>,
    /// What follows the last turn.
    exit: Arc<str>,
}

impl<S: State> Agent<S> {
    /// The graph of the agent, which is one like any other: it can be served, drawn, tested, and run inside another.
    ///
    /// # Errors
    /// As [`Graph::build`]; and two tools of one name, approvals of tools that are not there.
    pub fn build(self) -> Result<Arc<Compiled>, Invalid> {
        self.into_graph().build()
    }

    /// The graph of the agent before it is built, for further nodes and edges.
    pub fn into_graph(self) -> Graph<S> {
        let problems = self.problems();
        let channels = self.channels();
        let response = self.response.map(Arc::new);
        // In a node of its own: what fails in the model's node may be retried there, with another call of the model.
        let limited_later = self.tool_calls.iter().any(|(_, limit)| limit.fails());
        let step = Arc::new(ModelStep {
            model: self.model,
            options: self.options,
            prompt: self.prompt,
            tools: self.tools.clone(),
            response: response.clone(),
            corrections: self.corrections,
            model_calls: self.model_calls,
            tool_calls: if limited_later {
                Vec::new()
            } else {
                self.tool_calls.clone()
            },
            last_messages: self.last_messages,
            name: self.name,
        });
        let first = |names: &[Arc<str>], otherwise: &str| -> Arc<str> {
            names.first().cloned().unwrap_or_else(|| otherwise.into())
        };
        let mut before_model = self.before_model;
        if self.summary.is_some() {
            before_model.insert(0, SUMMARY.into());
        }
        let routes = Routes {
            tools: self.tools.clone().into(),
            response: step.response_tool().map(|tool| tool.name().into()),
            entry: first(&before_model, MODEL),
            exit: first(&self.after_agent, END),
        };
        let mut graph = problems.into_iter().fold(self.graph, Graph::problem);
        let shown = graph.channel_names();
        for channel in channels {
            graph = graph.with_channel(channel);
        }
        let is_public = |name: &Arc<str>| &**name != super::hooks::JUMP && &**name != RESPONSE;
        let input: Vec<Arc<str>> = shown.into_iter().filter(is_public).collect();
        let mut output = input.clone();
        output.extend(response.is_some().then(|| Arc::from(RESPONSE)));
        graph = graph.input(input).output(output);

        graph = graph.node_with(MODEL, ModelNode(step), self.model_opts);
        if !self.tools.is_empty() {
            let tools = AgentTools::new(ToolsStep {
                tools: self.tools.clone(),
                around: self.around,
                errors_to_model: self.tool_errors,
            });
            graph = graph.node_with(TOOLS, tools, self.tool_opts);
            graph = routes.after_tools(graph);
        }
        let mut after_model = self.after_model;
        if limited_later {
            let limit = Arc::new(LimitStep {
                limits: self.tool_calls,
                response: routes.response.clone(),
            });
            let node = move |ctx: Ctx| limit.clone().run(ctx);
            graph = graph.node_with(LIMIT, node, NodeOpts::new().retry(Retry::times(1)));
            after_model.insert(0, LIMIT.into());
        }
        if !self.reviews.is_empty() {
            let approval = Arc::new(Approval {
                reviews: self.reviews.into_iter().collect::<BTreeMap<_, _>>(),
                tools: self.tools.clone(),
            });
            let node = move |ctx: Ctx| approval.clone().run(ctx);
            graph = graph.node_with(APPROVAL, node, NodeOpts::new());
            after_model.push(APPROVAL.into());
        }
        if let Some(summary) = self.summary {
            let summary = Arc::new(summary);
            let node = move |ctx: Ctx| summary.clone().run(ctx);
            graph = graph.node_with(SUMMARY, node, NodeOpts::new());
        }
        graph = graph.edge(START, first(&self.before_agent, &routes.entry));
        graph = routes.chain(graph, &self.before_agent, &routes.entry);
        graph = routes.chain(graph, &before_model, MODEL);
        graph = routes.chain(graph, &self.after_agent, END);
        let mut turn = vec![Arc::from(MODEL)];
        turn.extend(after_model);
        if let Some((last, others)) = turn.split_last() {
            graph = routes.chain(graph, others, last);
            graph = routes.after_turn(graph, last);
        }
        let (before, after) = self.stops;
        graph.interrupt_before(before).interrupt_after(after)
    }

    /// What is wrong with the agent and would not be found in its graph.
    fn problems(&self) -> Vec<Problem> {
        let is_tool = |name: &str| self.tools.iter().any(|tool| tool.name() == name);
        let names = || {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            names.join(", ")
        };
        let mut problems = Vec::new();
        for (name, review) in &self.reviews {
            if !is_tool(name) {
                let text = format!(
                    "the agent has approvals of `{name}`, which is none of its tools ({})",
                    names()
                );
                problems.push(Problem::BadOption(text));
            }
            if review.allowed.is_empty() {
                let text = format!("the review of `{name}` allows no decision");
                problems.push(Problem::BadOption(text));
            }
        }
        for (name, _) in &self.tool_calls {
            if let Some(name) = name
                && !is_tool(name)
            {
                let text = format!(
                    "the agent has a limit of calls of `{name}`, which is none of its tools ({})",
                    names()
                );
                problems.push(Problem::BadOption(text));
            }
        }
        if let Some(response) = &self.response
            && is_tool(response.tool.name())
        {
            let text = format!(
                "the structured response has the name of the tool `{}`: rename one of them",
                response.tool.name()
            );
            problems.push(Problem::BadOption(text));
        }
        if self.last_messages == Some(0) {
            let text = "the model is shown 0 messages: it needs at least 1".to_owned();
            problems.push(Problem::BadOption(text));
        }
        problems
    }

    /// Channels besides those of the state.
    fn channels(&self) -> Vec<Channel> {
        let mut channels = Vec::new();
        channels.extend(
            self.response
                .as_ref()
                .map(|response: &Response| response.channel.clone()),
        );
        if !self.reviews.is_empty() {
            channels.push(Channel::new::<Option<Map>>(EDITED, merge::replace()));
        }
        if self.model_calls.is_some() {
            channels.push(Channel::new::<Option<u64>>(
                limits::THREAD_MODEL_CALLS,
                merge::replace(),
            ));
            channels.push(Channel::new::<Option<u64>>(
                limits::RUN_MODEL_CALLS,
                merge::untracked(),
            ));
        }
        if !self.tool_calls.is_empty() {
            channels.push(Channel::new::<Option<Map>>(
                limits::THREAD_TOOL_CALLS,
                merge::replace(),
            ));
            channels.push(Channel::new::<Option<Map>>(
                limits::RUN_TOOL_CALLS,
                merge::untracked(),
            ));
        }
        channels
    }
}

impl Routes {
    /// Leads from each node to the next one, and from the last to `then`; hooks may jump.
    fn chain<S: State>(&self, mut graph: Graph<S>, nodes: &[Arc<str>], then: &str) -> Graph<S> {
        for (index, node) in nodes.iter().enumerate() {
            let next = nodes.get(index + 1).map_or(then, |next| next);
            if &**node == SUMMARY {
                graph = graph.edge(node.clone(), next);
                continue;
            }
            let (routes, following) = (self.clone(), Arc::<str>::from(next));
            let choose = move |progress: &Progress| match progress.jump_to {
                None => vec![goto(following.clone())],
                Some(Jump::End) => vec![goto(routes.exit.clone())],
                Some(Jump::Model) => vec![goto(routes.entry.clone())],
                Some(Jump::Tools) => routes.targets(progress),
            };
            let mut targets = vec![Arc::from(next)];
            // The model jumps to the end only.
            if &**node == MODEL {
                targets.push(self.exit.clone());
            } else {
                targets.extend(self.after_any());
            }
            graph = graph.route(node.clone(), choose, unique(targets));
        }
        graph
    }

    fn after_any(&self) -> Vec<Arc<str>> {
        let tools = (!self.tools.is_empty()).then(|| Arc::from(TOOLS));
        let others = [self.exit.clone(), self.entry.clone()];
        tools.into_iter().chain(others).collect()
    }

    /// What follows a turn of the model: tools, another turn or the end.
    fn targets(&self, progress: &Progress) -> Vec<Target> {
        let tools = !self.tools.is_empty();
        match progress.after_model(self.response.as_ref(), tools) {
            Step::End => vec![goto(self.exit.clone())],
            Step::Model => vec![goto(self.entry.clone())],
            Step::Tools(calls) => calls.iter().map(|call| goto(TOOLS).with(call)).collect(),
        }
    }

    fn after_turn<S: State>(&self, graph: Graph<S>, last: &Arc<str>) -> Graph<S> {
        let routes = self.clone();
        let after_turn = move |progress: &Progress| routes.targets(progress);
        graph.route(last.clone(), after_turn, unique(self.after_any()))
    }

    fn after_tools<S: State>(&self, graph: Graph<S>) -> Graph<S> {
        let routes = self.clone();
        let direct = self.tools.iter().any(|tool| tool.is_return_direct());
        if !direct && self.response.is_none() {
            return graph.edge(TOOLS, self.entry.clone());
        }
        let targets = vec![self.entry.clone(), self.exit.clone()];
        let after_tools = move |progress: &Progress| {
            let tool = |name: &str| routes.tools.iter().find(|tool| tool.name() == name);
            let ends = progress.ends_after_tools(
                routes.response.as_ref(),
                |name| tool(name).is_some_and(|tool| tool.is_return_direct()),
                |name| tool(name).is_some(),
            );
            goto(if ends {
                routes.exit.clone()
            } else {
                routes.entry.clone()
            })
        };
        graph.route(TOOLS, after_tools, unique(targets))
    }
}

fn unique(mut names: Vec<Arc<str>>) -> Vec<Arc<str>> {
    let mut known = Vec::new();
    names.retain(|name| {
        let new = !known.contains(name);
        known.push(name.clone());
        new
    });
    names
}
