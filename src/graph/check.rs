//! Finds what is wrong with a graph before anything runs.

use std::{collections::HashSet, sync::Arc};

use super::{
    Body, Compiled, END, Names, ROOT, START,
    builder::{Draft, DraftNode},
    schema,
};
use crate::{extract::Requires, hint::did_you_mean};

mod problem;

pub use problem::{Invalid, Problem};

/// All problems of a draft.
pub(super) fn check(draft: &Draft) -> Vec<Problem> {
    let mut check = Check {
        draft,
        problems: draft.problems.clone(),
    };
    check.channels();
    check.nodes();
    check.edges();
    check.entry();
    let mut problems: Vec<Problem> = Vec::new();
    for problem in check.problems {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems
}

struct Check<'a> {
    draft: &'a Draft,
    problems: Vec<Problem>,
}

fn is_reserved(name: &str) -> bool {
    name.is_empty() || name.starts_with("__") || name.contains(['|', ':'])
}

impl Check<'_> {
    fn channels(&mut self) {
        let draft = self.draft;
        let mut names = HashSet::new();
        for spec in &draft.channels {
            let name = &spec.name;
            if !names.insert(name) {
                self.problems.push(Problem::DuplicateChannel(name.clone()));
            }
            let edge_like = name.starts_with("branch:to:") || name.starts_with("join:");
            if (name.starts_with("__") && !(draft.root_state && &**name == ROOT))
                || name.is_empty()
                || edge_like
            {
                self.problems.push(Problem::Reserved {
                    what: "channel",
                    name: name.clone(),
                });
            }
        }
        for (at, names) in [("`input`", &draft.input), ("`output`", &draft.output)] {
            for name in names.iter().flatten() {
                self.channel(at, name);
            }
        }
    }

    fn channel(&mut self, at: &str, channel: &Arc<str>) {
        let channels = &self.draft.channels;
        if channels.iter().all(|spec| spec.name != *channel) {
            self.problems.push(Problem::UnknownChannel {
                at: at.to_owned(),
                channel: channel.clone(),
                hint: did_you_mean(channel, channels.iter().map(|spec| &*spec.name)),
                channels: list(channels.iter().map(|spec| &spec.name)),
            });
        }
    }

    fn nodes(&mut self) {
        let draft = self.draft;
        let mut names = HashSet::new();
        for node in &draft.nodes {
            if !names.insert(&node.name) {
                self.problems
                    .push(Problem::DuplicateNode(node.name.clone()));
            }
            if is_reserved(&node.name) {
                self.problems.push(Problem::Reserved {
                    what: "node",
                    name: node.name.clone(),
                });
            }
            self.needs(&format!("node `{}`", node.name), &node.requires);
            if node.requires.failure {
                self.problems.push(Problem::NoFailure(node.name.clone()));
            }
            self.options(node);
            if let Body::Graph(child) = &node.body {
                self.shared(node, child);
            }
        }
        self.handlers();
        for (what, names) in [
            ("interrupt_before", &draft.interrupt_before),
            ("interrupt_after", &draft.interrupt_after),
        ] {
            if let Names::Some(names) = names {
                for name in names {
                    self.node(what, name, false);
                }
            }
        }
        if draft.retry.iter().any(|retry| retry.max_attempts == 0) {
            self.bad("the graph's retry policy allows 0 attempts; 1 means no retry".to_owned());
        }
        if draft.recursion_limit == Some(0) {
            self.bad("the recursion limit is 0, which lets no node run".to_owned());
        }
    }

    fn handlers(&mut self) {
        let draft = self.draft;
        let mut names = HashSet::new();
        for (failing, handler) in &draft.handlers {
            let owner = match failing {
                Some(node) => format!("node `{node}`"),
                None => "the graph".to_owned(),
            };
            if !names.insert(failing) {
                self.problems.push(Problem::DuplicateHandler(owner.clone()));
            }
            if let Some(node) = failing {
                self.node("an error handler", node, false);
            }
            self.needs(&format!("node `{}`", handler.name), &handler.requires);
        }
    }

    fn needs(&mut self, at: &str, requires: &Requires) {
        for view in &requires.channels {
            let Some(spec) = (self.draft.channels.iter()).find(|spec| *spec.name == *view.name)
            else {
                self.channel(at, &view.name.into());
                continue;
            };
            self.compare_types(at, &spec.name, &(view.schema)(), &spec.schema);
        }
        for tool in &requires.duplicate_tools {
            self.problems.push(Problem::DuplicateTool {
                at: at.to_owned(),
                tool: tool.clone(),
            });
        }
        for (id, dep) in &requires.deps {
            // One `provide` helps all who take it.
            let is_known = |problem: &Problem| matches!(problem, Problem::MissingDep { dep: known, .. } if known == dep);
            if !self.draft.deps.contains_key(id) && !self.problems.iter().any(is_known) {
                self.problems.push(Problem::MissingDep {
                    at: at.to_owned(),
                    dep,
                });
            }
        }
    }

    fn options(&mut self, node: &DraftNode) {
        let opts = &node.opts;
        for channel in opts.reads.iter().flatten() {
            self.channel(&format!("node `{}`", node.name), channel);
        }
        for to in &opts.destinations {
            let at = format!("`destinations` of node `{}`", node.name);
            self.node(&at, to, true);
        }
        if opts.retry.iter().any(|retry| retry.max_attempts == 0) {
            self.bad(format!(
                "the retry policy of node `{}` allows 0 attempts; 1 means no retry",
                node.name
            ));
        }
        if opts.timeout.is_some_and(|t| t.is_zero())
            || opts.idle_timeout.is_some_and(|t| t.is_zero())
        {
            self.bad(format!(
                "a timeout of node `{}` is 0, which lets it never finish",
                node.name
            ));
        }
    }

    fn shared(&mut self, node: &DraftNode, child: &Compiled) {
        let at = format!("subgraph `{}`", node.name);
        let mut shared = false;
        for spec in &self.draft.channels {
            if let Some(inner) = child.channel(&spec.name) {
                shared = true;
                self.compare_types(&at, &spec.name, &inner.schema, &spec.schema);
            }
        }
        if !shared && !self.draft.channels.is_empty() && !child.channels.is_empty() {
            self.problems
                .push(Problem::NothingShared(node.name.clone()));
        }
    }

    fn compare_types(
        &mut self,
        at: &str,
        channel: &Arc<str>,
        reader: &serde_json::Value,
        holder: &serde_json::Value,
    ) {
        if let Some((found, expected)) = schema::mismatch(reader, holder) {
            self.problems.push(Problem::WrongType {
                at: at.to_owned(),
                channel: channel.clone(),
                found,
                expected,
            });
        }
    }

    fn bad(&mut self, what: String) {
        self.problems.push(Problem::BadOption(what));
    }

    fn is_node(&self, name: &str) -> bool {
        self.draft.nodes.iter().any(|node| &*node.name == name)
    }

    fn node(&mut self, at: &str, name: &Arc<str>, end: bool) {
        if !(self.is_node(name) || end && &**name == END) {
            self.problems.push(Problem::UnknownNode {
                at: at.to_owned(),
                name: name.clone(),
                hint: did_you_mean(name, self.draft.nodes.iter().map(|node| &*node.name)),
                nodes: list(self.draft.nodes.iter().map(|node| &node.name)),
            });
        }
    }

    fn from(&mut self, at: &str, name: &Arc<str>) {
        match &**name {
            START => {}
            END => self.problems.push(Problem::FromEnd(at.to_owned())),
            _ => self.node(at, name, false),
        }
    }

    fn to(&mut self, at: &str, name: &Arc<str>) {
        match &**name {
            START => self.problems.push(Problem::IntoStart(at.to_owned())),
            _ => self.node(at, name, true),
        }
    }

    /// An edge that carries no argument must not start a node that takes one.
    fn plain(&mut self, at: &str, to: &Arc<str>) {
        let takes_arg = |node: &&DraftNode| node.name == *to && node.requires.arg;
        if self.draft.nodes.iter().any(|node| takes_arg(&node)) {
            self.problems.push(Problem::NoArgument {
                at: at.to_owned(),
                node: to.clone(),
            });
        }
    }

    fn edges(&mut self) {
        let draft = self.draft;
        for (from, to) in &draft.edges {
            let at = format!("the edge {} to {}", end(from), end(to));
            self.from(&at, from);
            self.to(&at, to);
            self.plain(&at, to);
        }
        for (from, to) in &draft.joins {
            let at = format!("the join `{}` to {}", from.join("`, `"), end(to));
            if from.is_empty() {
                self.problems.push(Problem::EmptyJoin(to.clone()));
            }
            for start in from {
                self.node(&at, start, false);
            }
            self.to(&at, to);
            self.plain(&at, to);
        }
        for added in &draft.routes {
            let (from, route) = (&added.from, &added.route);
            let at = format!("the route `{}` from {}", route.name, end(from));
            self.from(&at, from);
            self.needs(&at, &added.requires);
            for (_, to) in route.targets.iter().flatten() {
                self.to(&at, to);
            }
        }
    }

    fn entry(&mut self) {
        let draft = self.draft;
        let enters = draft.edges.iter().any(|(from, _)| &**from == START)
            || draft.routes.iter().any(|added| &*added.from == START);
        if !enters {
            self.problems.push(Problem::NoEntry);
            return;
        }
        // A misspelt name also leaves the node that was meant without a way to it.
        let is_misspelt = |problem: &Problem| {
            matches!(
                problem,
                Problem::UnknownNode { .. } | Problem::DuplicateNode(_) | Problem::Reserved { .. }
            )
        };
        if self.problems.iter().any(is_misspelt) {
            return;
        }
        let Some(reached) = reachable(draft) else {
            return;
        };
        for node in &draft.nodes {
            if !reached.contains(&*node.name) {
                self.problems.push(Problem::Unreachable(node.name.clone()));
            }
        }
    }
}

/// The names that can be reached from START; `None` if a reachable node may go anywhere.
fn reachable(draft: &Draft) -> Option<HashSet<&str>> {
    let mut reached = HashSet::from([START]);
    let mut open = vec![START];
    while let Some(name) = open.pop() {
        let mut next: Vec<&str> = Vec::new();
        if let Some(node) = draft.nodes.iter().find(|node| &*node.name == name) {
            if node.requires.commands && node.opts.destinations.is_empty() {
                return None;
            }
            // Where a handler's commands go is unknown.
            let mut handlers = draft.handlers.iter();
            let of_node = |failing: &Option<Arc<str>>| {
                failing.as_ref().is_none_or(|failing| *failing == node.name)
            };
            if handlers.any(|(failing, handler)| of_node(failing) && handler.requires.commands) {
                return None;
            }
            next.extend(node.opts.destinations.iter().map(|to| &**to));
        }
        let edges = draft.edges.iter().filter(|(from, _)| &**from == name);
        next.extend(edges.map(|(_, to)| &**to));
        let joins = draft.joins.iter();
        let joins = joins.filter(|(from, _)| from.iter().any(|start| &**start == name));
        next.extend(joins.map(|(_, to)| &**to));
        for added in draft.routes.iter().filter(|added| &*added.from == name) {
            let targets = added.route.targets.as_ref()?;
            next.extend(targets.iter().map(|(_, to)| &**to));
        }
        open.extend(next.into_iter().filter(|to| reached.insert(to)));
    }
    Some(reached)
}

/// An end of an edge as the author writes it.
fn end(name: &str) -> String {
    match name {
        START => "START".to_owned(),
        END => "END".to_owned(),
        node => format!("`{node}`"),
    }
}

fn list<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> String {
    let mut names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    let mut listed = HashSet::new();
    names.retain(|name| listed.insert(name.clone()));
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests;
