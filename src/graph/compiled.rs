//! A checked graph with its types erased: what the engine, the drawing and the schemas read.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;

use super::draw::{self, Drawing};
use crate::{
    channel::Kind,
    extract::{CalledGraphs, Ctx, RouteInput},
    value::Value,
};

/// One channel of the state.
#[derive(Clone)]
pub struct ChannelSpec {
    /// Its name, a state key.
    pub name: Arc<str>,
    /// How writes are merged.
    pub kind: Kind,
    /// JSON schema of its value.
    pub schema: serde_json::Value,
}

/// A routing target: a node, or a node with an argument of its own (LangGraph's `Send`).
#[derive(Clone, Debug, PartialEq)]
pub struct Goto {
    /// The node, or [`END`](super::END).
    pub node: Arc<str>,
    /// The argument that the task gets instead of the state.
    pub arg: Option<Value>,
}

/// The result of a node.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Updates in the order they were made; a channel may occur several times.
    pub writes: Vec<(Arc<str>, Value)>,
    /// Explicit routing.
    pub goto: Vec<Goto>,
    /// Update and routing are meant for the parent graph.
    pub to_parent: bool,
}

/// A node's function.
pub type NodeFn = Arc<dyn Fn(Ctx) -> BoxFuture<'static, anyhow::Result<Output>> + Send + Sync>;

/// The work of a node.
#[derive(Clone)]
pub enum Body {
    /// Runs a function.
    Function(NodeFn),
    /// Runs another graph; channels of the same name are shared.
    Graph(Arc<Compiled>),
}

/// Chooses what follows a node, from a map of the state to which the writes of the node's own
/// task are applied and those of no other.
pub type RouteFn = Arc<dyn Fn(&RouteInput<'_>) -> anyhow::Result<Vec<Goto>> + Send + Sync>;

/// Error: a route chose a name that is none of its targets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the route `{route}` chose `{chosen}`, which is not one of its targets ({targets})")]
pub struct UnlistedTarget {
    route: Arc<str>,
    chosen: Arc<str>,
    targets: String,
}

impl UnlistedTarget {
    /// The error of `route`, which chose none of `targets`.
    pub fn new<'a>(
        route: &Arc<str>,
        chosen: &Arc<str>,
        targets: impl IntoIterator<Item = &'a Arc<str>>,
    ) -> Self {
        let shown = |name: &'a Arc<str>| match &**name {
            super::END => "END",
            name => name,
        };
        let targets: Vec<&str> = targets.into_iter().map(shown).collect();
        Self {
            route: route.clone(),
            chosen: chosen.clone(),
            targets: targets.join(", "),
        }
    }
}

/// A conditional edge.
#[derive(Clone)]
pub struct Route {
    /// Name for drawings and errors.
    pub name: Arc<str>,
    /// The choice.
    pub choose: RouteFn,
    /// The closed list of choices: key to node. A chosen name that is no key fails the task;
    /// goto's with an argument name nodes directly. `None` leaves the choice open.
    pub targets: Option<Vec<(Arc<str>, Arc<str>)>>,
}

/// What follows a node (or START), in the order it is written.
#[derive(Clone, Default)]
pub struct Writers {
    /// Targets of static edges, sorted, without END.
    pub edges: Vec<Arc<str>>,
    /// The node has a static edge to END (for drawings only).
    pub ends: bool,
    /// Channels of the joins it takes part in, sorted by (starts, target).
    pub joins: Vec<Arc<str>>,
    /// Conditional edges in registration order.
    pub routes: Vec<Route>,
}

/// An edge with several starts: its target runs once all of them have run.
#[derive(Clone)]
pub struct Join {
    /// `join:a+b:target`, starts in the author's order.
    pub channel: Arc<str>,
    /// The starts.
    pub from: Arc<[Arc<str>]>,
    /// The target.
    pub to: Arc<str>,
}

/// Whether an error is worth another attempt.
pub type RetryOn = Arc<dyn Fn(&anyhow::Error) -> bool + Send + Sync>;

/// When a failed node is retried (LangGraph's retry policy).
#[derive(Clone)]
pub struct Retry {
    /// Attempts in all, the first one included.
    pub max_attempts: u32,
    /// Wait before the second attempt.
    pub initial: Duration,
    /// Factor from one wait to the next.
    pub factor: f64,
    /// Longest wait.
    pub max_interval: Duration,
    /// Add up to one second at random.
    pub jitter: bool,
    /// Which errors are retried; `None` means LangGraph's default choice.
    pub retry_on: Option<RetryOn>,
}

/// Picks the part of a node's input that counts.
pub type CacheKey = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

/// Reuse of a node's result for equal inputs.
#[derive(Clone)]
pub struct Cache {
    /// How long a result is valid; `None` for ever.
    pub ttl: Option<Duration>,
    /// The part of the input that counts; `None` for all of it.
    pub key: Option<CacheKey>,
}

/// One node.
#[derive(Clone)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// What it does.
    pub body: Body,
    /// What follows it.
    pub writers: Writers,
    /// Channels of the joins that start it.
    pub joins: Vec<Arc<str>>,
    /// Wait until nothing else is left to run.
    pub defer: bool,
    /// First policy that matches counts.
    pub retry: Vec<Retry>,
    /// What runs when it fails for good: a position in the graph's `handlers`.
    pub handler: Option<usize>,
    /// Longest run of one attempt.
    pub timeout: Option<Duration>,
    /// Longest silence of one attempt: no event, no finished step.
    pub idle_timeout: Option<Duration>,
    /// Reuse of results.
    pub cache: Option<Cache>,
    /// Channels it reads, in channel order; `None` for all.
    pub reads: Option<Vec<Arc<str>>>,
    /// Nodes its commands go to: for drawings.
    pub destinations: Vec<Arc<str>>,
    /// Graphs its function calls: for drawings and nested state.
    pub calls: CalledGraphs,
}

/// Which nodes a static breakpoint names.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Names {
    /// None.
    #[default]
    None,
    /// Every visible node.
    All,
    /// These.
    Some(Vec<Arc<str>>),
}

impl Names {
    /// Whether no node is named.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::All => false,
            Self::Some(names) => names.is_empty(),
        }
    }

    /// Whether `node` is named.
    pub(crate) fn contains(&self, node: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Some(names) => names.iter().any(|name| &**name == node),
        }
    }
}

/// How the state of a graph that runs inside another one is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persist {
    /// A namespace per task: fresh in every parent run, resumable within one (LangGraph's
    /// `checkpointer=None`).
    #[default]
    Inherit,
    /// One namespace for the thread: state accumulates (`checkpointer=True`).
    Thread,
    /// Nothing is stored (`checkpointer=False`).
    None,
}

/// JSON schemas of a graph, as `/assistants/{id}/schemas` serves them.
#[derive(Clone, Debug, Default)]
pub struct Schemas {
    /// The input of a run.
    pub input: serde_json::Value,
    /// The output of a run.
    pub output: serde_json::Value,
    /// All channels.
    pub state: serde_json::Value,
    /// The run's context, if the graph declares one.
    pub context: Option<serde_json::Value>,
}

/// Shared dependencies that nodes take as `Dep<T>`: one per type.
#[derive(Clone, Default)]
pub struct Deps(pub Arc<HashMap<TypeId, Box<dyn Any + Send + Sync>>>);

/// A checked graph.
#[derive(Clone)]
pub struct Compiled {
    /// State channels in definition order, hidden ones left out.
    pub(crate) channels: Vec<ChannelSpec>,
    /// Nodes in definition order, START left out.
    pub(crate) nodes: Vec<Node>,
    /// Error handlers: they replace tasks that failed, in the same superstep.
    pub(crate) handlers: Vec<Node>,
    /// What follows START.
    pub(crate) start: Writers,
    /// All joins.
    pub(crate) joins: Vec<Join>,
    /// Channels that take input.
    pub(crate) input: Vec<Arc<str>>,
    /// Channels that are shown as result and in `values` events.
    pub(crate) output: Vec<Arc<str>>,
    /// The whole state is one value in the channel `__root__` instead of a map of channels.
    pub(crate) root_state: bool,
    /// How its state is stored when it runs inside another graph.
    pub(crate) persist: Persist,
    /// Stop before these nodes.
    pub(crate) interrupt_before: Names,
    /// Stop after these nodes.
    pub(crate) interrupt_after: Names,
    /// Channels of chat messages.
    pub(crate) messages: Vec<Arc<str>>,
    /// JSON schemas.
    pub(crate) schemas: Schemas,
    /// Supersteps a run may take by default.
    pub(crate) recursion_limit: Option<u32>,
    /// Shared dependencies.
    pub(crate) deps: Deps,
}

impl Compiled {
    /// The graph as nodes and edges, with graphs inside opened `depth` levels deep.
    pub fn drawing(&self, depth: usize) -> Drawing {
        draw::draw(self, depth)
    }

    /// The channel of the conversation: `messages`, or the first one of chat messages.
    pub(crate) fn message_channel(&self) -> Option<&Arc<str>> {
        let named = self.messages.iter().find(|name| &***name == "messages");
        named.or(self.messages.first())
    }

    /// The node of this name.
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| &*node.name == name)
    }

    /// The channel of this name.
    pub(crate) fn channel(&self, name: &str) -> Option<&ChannelSpec> {
        self.channels.iter().find(|spec| &*spec.name == name)
    }
}
