//! A graph under construction: the methods that the typed and the untyped form share.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    marker::PhantomData,
    sync::Arc,
};

use schemars::JsonSchema;

use super::{
    Body, ChannelSpec, Compiled, Invalid, Names, NodeOpts, Persist, Problem, Retry, Route,
    assemble, check,
};
use crate::extract::Requires;

/// Marks a graph whose channels are named by hand; see [`Graph::untyped`].
#[derive(Clone, Copy, Debug)]
pub enum Untyped {}

/// A graph under construction over the state `S`.
///
/// Nothing fails before [`build`](Graph::build), which reports every mistake at once.
#[must_use = "a graph does nothing until it is built"]
pub struct Graph<S> {
    pub(super) draft: Draft,
    pub(super) state: PhantomData<fn() -> S>,
}

/// The unchecked parts of a graph, in the order in which the author added them.
#[derive(Default)]
pub(super) struct Draft {
    pub title: String,
    pub channels: Vec<ChannelSpec>,
    pub root_state: bool,
    pub nodes: Vec<DraftNode>,
    /// Error handlers, each with the node it is for; without one it is for all that have none.
    pub handlers: Vec<(Option<Arc<str>>, DraftNode)>,
    pub edges: Vec<(Arc<str>, Arc<str>)>,
    pub joins: Vec<(Vec<Arc<str>>, Arc<str>)>,
    pub routes: Vec<DraftRoute>,
    pub input: Option<Vec<Arc<str>>>,
    pub output: Option<Vec<Arc<str>>>,
    pub persist: Persist,
    pub interrupt_before: Names,
    pub interrupt_after: Names,
    pub recursion_limit: Option<u32>,
    pub retry: Vec<Retry>,
    pub context: Option<serde_json::Value>,
    pub deps: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// What whoever drafted the graph found wrong.
    pub problems: Vec<Problem>,
}

/// A node as the author added it.
pub(super) struct DraftNode {
    pub name: Arc<str>,
    pub body: Body,
    pub opts: NodeOpts,
    pub requires: Requires,
}

/// A route as the author added it.
pub(super) struct DraftRoute {
    pub from: Arc<str>,
    pub route: Route,
    pub requires: Requires,
}

/// Converts names of any type into shared ones.
pub(super) fn names<N: Into<Arc<str>>>(names: impl IntoIterator<Item = N>) -> Vec<Arc<str>> {
    names.into_iter().map(Into::into).collect()
}

impl<S> Graph<S> {
    /// After `from` runs `to`; either may be [`START`](super::START) or [`END`](super::END).
    pub fn edge(mut self, from: impl Into<Arc<str>>, to: impl Into<Arc<str>>) -> Self {
        self.draft.edges.push((from.into(), to.into()));
        self
    }

    /// `to` runs once every node in `from` has run since `to` last started.
    pub fn join<N: Into<Arc<str>>>(
        mut self,
        from: impl IntoIterator<Item = N>,
        to: impl Into<Arc<str>>,
    ) -> Self {
        self.draft.joins.push((names(from), to.into()));
        self
    }

    /// Runs `child` as one node. Channels of the same name are shared: the child starts with the
    /// node's input, and its final values come back as the node's update. A channel that
    /// aggregates in both graphs therefore merges the child's whole value into the parent's;
    /// limit what comes back with [`output`](Graph::output) on the child.
    pub fn subgraph(self, name: impl Into<Arc<str>>, child: Arc<Compiled>) -> Self {
        self.subgraph_with(name, child, NodeOpts::new())
    }

    /// As [`subgraph`](Graph::subgraph), with options.
    pub fn subgraph_with(
        self,
        name: impl Into<Arc<str>>,
        child: Arc<Compiled>,
        opts: NodeOpts,
    ) -> Self {
        // Where a child's commands to its parent go is unknown.
        let requires = Requires {
            commands: true,
            ..Requires::default()
        };
        self.add(name.into(), Body::Graph(child), opts, requires)
    }

    pub(super) fn add(
        mut self,
        name: Arc<str>,
        body: Body,
        opts: NodeOpts,
        requires: Requires,
    ) -> Self {
        self.draft.nodes.push(DraftNode {
            name,
            body,
            opts,
            requires,
        });
        self
    }

    /// Makes `dep` available to nodes as [`Dep<T>`](crate::extract::Dep); one per type, the last
    /// one counts.
    pub fn provide<T: ?Sized + Send + Sync + 'static>(mut self, dep: Arc<T>) -> Self {
        let deps = &mut self.draft.deps;
        deps.insert(TypeId::of::<Arc<T>>(), Box::new(dep));
        self
    }

    /// Channels that take input; all of them by default.
    pub fn input<N: Into<Arc<str>>>(mut self, channels: impl IntoIterator<Item = N>) -> Self {
        self.draft.input = Some(names(channels));
        self
    }

    /// Channels that are shown as the result; all of them by default.
    pub fn output<N: Into<Arc<str>>>(mut self, channels: impl IntoIterator<Item = N>) -> Self {
        self.draft.output = Some(names(channels));
        self
    }

    /// How the state is stored when this graph runs inside another one.
    pub fn persist(mut self, persist: Persist) -> Self {
        self.draft.persist = persist;
        self
    }

    /// Stops a run before these nodes, until it is resumed.
    pub fn interrupt_before(mut self, nodes: impl Into<Names>) -> Self {
        self.draft.interrupt_before = nodes.into();
        self
    }

    /// Stops a run after these nodes, until it is resumed.
    pub fn interrupt_after(mut self, nodes: impl Into<Names>) -> Self {
        self.draft.interrupt_after = nodes.into();
        self
    }

    /// How many supersteps a run may take by default; at least 1.
    pub fn recursion_limit(mut self, supersteps: u32) -> Self {
        self.draft.recursion_limit = Some(supersteps);
        self
    }

    /// Retries nodes that fail and have no policy of their own, except nodes of subgraphs. May be
    /// called several times: the first policy that takes the error counts.
    ///
    /// ```
    /// use backstitch::prelude::*;
    /// # #[derive(State)]
    /// # struct Trip { city: Option<String> }
    /// # async fn search(trip: Trip) {}
    /// # async fn book(trip: Trip) {}
    ///
    /// Graph::<Trip>::new()
    ///     .retry(Retry::times(5))
    ///     .node("search", search)
    ///     .node_with("book", book, NodeOpts::new().retry(Retry::times(1)))
    ///     .edge(START, "search")
    ///     .edge("search", "book")
    ///     .build()?;
    /// # Ok::<_, backstitch::graph::Invalid>(())
    /// ```
    pub fn retry(mut self, retry: Retry) -> Self {
        self.draft.retry.push(retry);
        self
    }

    /// Declares the type of the run's context, which nodes read as
    /// [`Config<T>`](crate::extract::Config).
    pub fn context<T: JsonSchema>(mut self) -> Self {
        self.draft.context = Some(schemars::schema_for!(T).to_value());
        self
    }

    /// Adds a problem, which `build` reports.
    pub(crate) fn problem(mut self, problem: Problem) -> Self {
        self.draft.problems.push(problem);
        self
    }

    /// The title of the state in the graph's schemas.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.draft.title = title.into();
        self
    }

    /// Checks the graph and erases its types, so that graphs over different states can be
    /// registered together.
    ///
    /// # Errors
    /// Every mistake found: unknown, duplicate, reserved and unreachable names, channels and
    /// dependencies that nodes take and the graph does not provide.
    ///
    /// ```
    /// use backstitch::prelude::*;
    ///
    /// #[derive(State)]
    /// struct Greeting {
    ///     name: String,
    ///     text: Option<String>,
    /// }
    ///
    /// async fn greet(state: Greeting) -> Update<Greeting> {
    ///     Greeting::update().text(format!("Hello {}!", state.name))
    /// }
    ///
    /// let graph = Graph::<Greeting>::new()
    ///     .node("greet", greet)
    ///     .edge(START, "greet")
    ///     .build()?;
    /// assert_eq!(graph.drawing(0).nodes, [START, "greet", END]);
    ///
    /// let wrong = Graph::<Greeting>::new()
    ///     .node("greet", greet)
    ///     .edge(START, "great")
    ///     .build();
    /// let Err(wrong) = wrong else { panic!("`great` is no node") };
    /// assert!(wrong.to_string().contains("`great`, which is not a node"));
    /// # Ok::<_, backstitch::graph::Invalid>(())
    /// ```
    pub fn build(self) -> Result<Arc<Compiled>, Invalid> {
        let problems = check::check(&self.draft);
        if problems.is_empty() {
            Ok(Arc::new(assemble::assemble(self.draft)))
        } else {
            Err(Invalid { problems })
        }
    }
}

impl<N: Into<Arc<str>>, const LEN: usize> From<[N; LEN]> for Names {
    fn from(nodes: [N; LEN]) -> Self {
        Self::Some(names(nodes))
    }
}

impl<N: Into<Arc<str>>> From<Vec<N>> for Names {
    fn from(nodes: Vec<N>) -> Self {
        Self::Some(names(nodes))
    }
}
