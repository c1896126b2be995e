//! What can be wrong with a graph, found before anything runs.

use std::{collections::HashSet, sync::Arc};

use super::{
    Body, Compiled, END, Names, ROOT, START,
    builder::{Draft, DraftNode},
    schema,
};

/// Everything that is wrong with a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the graph does not hold together:{}", problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
pub struct Invalid {
    /// All problems, in the order of the graph's parts.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong with a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Two nodes have one name.
    #[error("there are two nodes `{0}`: give one of them another name")]
    DuplicateNode(Arc<str>),
    /// Two channels have one name.
    #[error("there are two channels `{0}`")]
    DuplicateChannel(Arc<str>),
    /// A name the engine uses itself.
    #[error(
        "the {what} name `{name}` is reserved: it must not be empty, begin with `__` or contain `|` or `:`"
    )]
    Reserved {
        /// `node` or `channel`.
        what: &'static str,
        /// The name.
        name: Arc<str>,
    },
    /// A name that no node has.
    #[error("{at} names `{name}`, which is not a node (nodes: {nodes})")]
    UnknownNode {
        /// Where it is named.
        at: String,
        /// The name.
        name: Arc<str>,
        /// The names there are.
        nodes: String,
    },
    /// An edge into the start.
    #[error("{0} leads to START: name the node that follows START instead")]
    IntoStart(String),
    /// An edge out of the end.
    #[error("{0} begins at END, which nothing follows")]
    FromEnd(String),
    /// A join without starts.
    #[error("the join to `{0}` waits for no node: name its starts")]
    EmptyJoin(Arc<str>),
    /// The graph has no entry.
    #[error("nothing follows START: add `.edge(START, ..)`")]
    NoEntry,
    /// A node that nothing leads to.
    #[error(
        "nothing leads to node `{0}`: add an edge, or name it in the `destinations` of the node whose command goes there"
    )]
    Unreachable(Arc<str>),
    /// A node that takes an argument but is started without one.
    #[error(
        "{at} starts node `{node}` without the argument it takes: start it with `goto(\"{node}\").with(..)` from a route or a command"
    )]
    NoArgument {
        /// The edge.
        at: String,
        /// The node.
        node: Arc<str>,
    },
    /// A channel that the state does not have.
    #[error("{at} names channel `{channel}`, which the state does not have (channels: {channels})")]
    UnknownChannel {
        /// Where it is named.
        at: String,
        /// The channel.
        channel: Arc<str>,
        /// The channels there are.
        channels: String,
    },
    /// A channel that is read as another type.
    #[error("{at} takes channel `{channel}` as {found}, but the state holds {expected}")]
    WrongType {
        /// Where it is read.
        at: String,
        /// The channel.
        channel: Arc<str>,
        /// The type that the reader takes.
        found: String,
        /// The type of the channel.
        expected: String,
    },
    /// A dependency that the graph does not provide.
    #[error("node `{node}` needs `{dep}`: call `.provide(Arc<{dep}>)` on the graph")]
    MissingDep {
        /// The node.
        node: Arc<str>,
        /// Its type.
        dep: &'static str,
    },
    /// Two tools of one node have one name.
    #[error("node `{node}` has two tools `{tool}`: a model could not choose between them")]
    DuplicateTool {
        /// The node.
        node: Arc<str>,
        /// The name.
        tool: Arc<str>,
    },
    /// A node that takes a failure but is no error handler.
    #[error(
        "node `{0}` takes a `Failure`, which only error handlers have: register it with `.on_error(..)`"
    )]
    NoFailure(Arc<str>),
    /// Two error handlers for the same node.
    #[error("{0} has two error handlers: one has to do")]
    DuplicateHandler(String),
    /// A subgraph without a channel of the same name.
    #[error("subgraph `{0}` shares no channel with its parent, so it could not hand anything over")]
    NothingShared(Arc<str>),
    /// An option with a value that cannot work.
    #[error("{0}")]
    BadOption(String),
}

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
    check.problems
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
            self.needs(node);
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
            self.needs(handler);
        }
    }

    fn needs(&mut self, node: &DraftNode) {
        let at = format!("node `{}`", node.name);
        for view in &node.requires.channels {
            let Some(spec) = (self.draft.channels.iter()).find(|spec| *spec.name == *view.name)
            else {
                self.channel(&at, &view.name.into());
                continue;
            };
            self.compare_types(&at, &spec.name, &(view.schema)(), &spec.schema);
        }
        for tool in &node.requires.duplicate_tools {
            self.problems.push(Problem::DuplicateTool {
                node: node.name.clone(),
                tool: tool.clone(),
            });
        }
        for (id, dep) in &node.requires.deps {
            if !self.draft.deps.contains_key(id) {
                self.problems.push(Problem::MissingDep {
                    node: node.name.clone(),
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
            let at = format!("the edge `{from}` to `{to}`");
            self.from(&at, from);
            self.to(&at, to);
            self.plain(&at, to);
        }
        for (from, to) in &draft.joins {
            let at = format!("the join `{}` to `{to}`", from.join("`, `"));
            if from.is_empty() {
                self.problems.push(Problem::EmptyJoin(to.clone()));
            }
            for start in from {
                self.node(&at, start, false);
            }
            self.to(&at, to);
            self.plain(&at, to);
        }
        for (from, route) in &draft.routes {
            let at = format!("the route `{}` from `{from}`", route.name);
            self.from(&at, from);
            for (_, to) in route.targets.iter().flatten() {
                self.to(&at, to);
            }
        }
    }

    fn entry(&mut self) {
        let draft = self.draft;
        let enters = draft.edges.iter().any(|(from, _)| &**from == START)
            || draft.routes.iter().any(|(from, _)| &**from == START);
        if !enters {
            self.problems.push(Problem::NoEntry);
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
        for (_, route) in draft.routes.iter().filter(|(from, _)| &**from == name) {
            let targets = route.targets.as_ref()?;
            next.extend(targets.iter().map(|(_, to)| &**to));
        }
        open.extend(next.into_iter().filter(|to| reached.insert(to)));
    }
    Some(reached)
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
