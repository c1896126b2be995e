//! What can be wrong with a graph, with its text.

use std::sync::Arc;

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
    #[error("{at} names `{name}`, which is not a node{hint} (nodes: {nodes})")]
    UnknownNode {
        /// Where it is named.
        at: String,
        /// The name.
        name: Arc<str>,
        /// The one that was probably meant, as ` (did you mean ..?)`.
        hint: String,
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
    #[error(
        "{at} names channel `{channel}`, which the state does not have{hint} (channels: {channels})"
    )]
    UnknownChannel {
        /// Where it is named.
        at: String,
        /// The channel.
        channel: Arc<str>,
        /// The one that was probably meant, as ` (did you mean ..?)`.
        hint: String,
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
    #[error("{at} needs `{dep}`: call `.provide(Arc<{dep}>)` on the graph")]
    MissingDep {
        /// The first node or route that takes it.
        at: String,
        /// Its type.
        dep: &'static str,
    },
    /// Two tools of one node have one name.
    #[error("{at} has two tools `{tool}`: a model could not choose between them")]
    DuplicateTool {
        /// The node.
        at: String,
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
