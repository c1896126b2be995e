//! Parameters of node functions: each one names by its type what it needs.

use std::{
    any::{TypeId, type_name},
    fmt,
    ops::Deref,
    sync::Arc,
};

use serde::de::DeserializeOwned;

use super::{Ctx, RunConfig};
use crate::{
    graph::Deps,
    id::TaskId,
    state::{Channel, State, Unreadable},
    value::{self, DecodeError, Map, Value},
};

/// What a node's signature requires of the graph; `build` checks it before anything runs.
#[derive(Default)]
pub struct Requires {
    /// Channels its views read.
    pub channels: Vec<Channel>,
    /// Dependencies: their types and the names of these.
    pub deps: Vec<(TypeId, &'static str)>,
    /// Whether the node takes an argument of its own.
    pub arg: bool,
    /// Whether the node may choose itself what runs next.
    pub commands: bool,
    /// Names that more than one of its tools has.
    pub duplicate_tools: Vec<Arc<str>>,
    /// Whether the node takes the failure of another node's task: only error handlers have one.
    pub failure: bool,
}

/// Why a parameter of a node cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    /// A channel does not fit the node's view.
    #[error("node `{node}` cannot read {source}")]
    State {
        /// The node.
        node: Arc<str>,
        /// The channel, and what is wrong.
        source: Unreadable,
    },
    /// The task has an argument where the node takes a state.
    #[error(
        "node `{node}` was started with an argument ({found}) that is no state: take it as `Arg<T>`"
    )]
    NotAState {
        /// The node.
        node: Arc<str>,
        /// What the argument is.
        found: &'static str,
    },
    /// The task has no argument.
    #[error(
        "node `{node}` takes an argument but was started without one: start it with `goto(\"{node}\").with(..)`"
    )]
    NoArgument {
        /// The node.
        node: Arc<str>,
    },
    /// The argument is of another type.
    #[error("the argument of node `{node}` is no `{wanted}`: {source}")]
    Argument {
        /// The node.
        node: Arc<str>,
        /// The type of the parameter.
        wanted: &'static str,
        /// What is wrong.
        source: DecodeError,
    },
    /// The run's context is of another type.
    #[error("the run's context is no `{wanted}`, which node `{node}` needs: {source}")]
    Config {
        /// The node.
        node: Arc<str>,
        /// The type of the parameter.
        wanted: &'static str,
        /// What is wrong.
        source: DecodeError,
    },
    /// The task replaces no failed one.
    #[error("node `{node}` takes a `Failure`, which only error handlers have")]
    NoFailure {
        /// The node.
        node: Arc<str>,
    },
    /// The graph does not provide the dependency.
    #[error("node `{node}` needs `{dep}`: call `.provide(Arc<{dep}>)` on the graph")]
    Dep {
        /// The node.
        node: Arc<str>,
        /// Its type.
        dep: &'static str,
    },
}

/// A value that a node function can take as a parameter.
#[diagnostic::on_unimplemented(
    message = "a node cannot take `{Self}` as a parameter",
    note = "parameters are a `#[derive(State)]` view, `Ctx`, `Arg<T>`, `Config<T>`, `Dep<T>` or `Failure`"
)]
pub trait FromTask: Sized + Send {
    /// Adds what the graph must have for this parameter.
    fn requires(requires: &mut Requires) {
        let _ = requires;
    }

    /// Builds the parameter for one task.
    ///
    /// # Errors
    /// The task does not have what the parameter needs.
    fn from_task(ctx: &Ctx) -> Result<Self, Rejection>;
}

/// Any state is a view: a node may name a smaller struct and decode only that. A task that was
/// started with a map as its argument reads the view from that map.
#[diagnostic::do_not_recommend]
impl<T: State> FromTask for T {
    fn requires(requires: &mut Requires) {
        requires.channels.extend(T::channels());
    }

    fn from_task(ctx: &Ctx) -> Result<Self, Rejection> {
        let (task, node) = (ctx.task(), ctx.task().node.clone());
        match &task.input {
            Value::Map(state) => {
                T::decode(state).map_err(|source| Rejection::State { node, source })
            }
            other => Err(Rejection::NotAState {
                node,
                found: other.type_name(),
            }),
        }
    }
}

impl FromTask for Ctx {
    fn from_task(ctx: &Ctx) -> Result<Self, Rejection> {
        Ok(ctx.clone())
    }
}

/// The private argument of a fanned-out task, from `goto("node").with(argument)`.
#[derive(Clone, Debug)]
pub struct Arg<T>(pub T);

impl<T: DeserializeOwned + Send> FromTask for Arg<T> {
    fn requires(requires: &mut Requires) {
        requires.arg = true;
    }

    fn from_task(ctx: &Ctx) -> Result<Self, Rejection> {
        let (task, node) = (ctx.task(), ctx.task().node.clone());
        if !task.has_arg {
            return Err(Rejection::NoArgument { node });
        }
        match value::from_value(&task.input) {
            Ok(argument) => Ok(Self(argument)),
            Err(source) => Err(Rejection::Argument {
                node,
                wanted: type_name::<T>(),
                source,
            }),
        }
    }
}

/// The state of the graph at the start of the superstep, for tools and for other nodes that are started with an
/// argument of their own.
#[derive(Clone, Debug)]
pub struct View<S>(pub S);

impl<S: State> FromTask for View<S> {
    fn requires(requires: &mut Requires) {
        requires.channels.extend(S::channels());
    }

    fn from_task(ctx: &Ctx) -> Result<Self, Rejection> {
        let task = ctx.task();
        let decoded = match task.host.state(task) {
            Some(state) => S::decode(&state),
            None => S::decode(&Map::new()),
        };
        decoded.map(Self).map_err(|source| Rejection::State {
            node: task.node.clone(),
            source,
        })
    }
}

/// The failure of the task that an error handler replaces; see
/// [`on_error`](crate::graph::Graph::on_error).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The node that failed.
    pub node: Arc<str>,
    /// Its task.
    pub task: TaskId,
    /// What kind of error it was: the class of a [`Raised`](crate::error::Raised), or the name
    /// clients see.
    pub class: String,
    /// What happened.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl FromTask for Failure {
    fn requires(requires: &mut Requires) {
        requires.failure = true;
    }

    fn from_task(ctx: &Ctx) -> Result<Self, Rejection> {
        let node = || ctx.task().node.clone();
        let failure = ctx.task().failure.as_deref().cloned();
        failure.ok_or_else(|| Rejection::NoFailure { node: node() })
    }
}

/// The run's settings: its `context`, or its `configurable` when it has none.
#[derive(Clone, Debug)]
pub struct Config<T>(pub T);

impl<T: DeserializeOwned + Send> FromTask for Config<T> {
    fn from_task(ctx: &Ctx) -> Result<Self, Rejection> {
        Self::of_run(&ctx.task().config).map_err(|source| Rejection::Config {
            node: ctx.task().node.clone(),
            wanted: type_name::<T>(),
            source,
        })
    }
}

impl<T: DeserializeOwned> Config<T> {
    /// The settings of a run.
    pub(super) fn of_run(config: &RunConfig) -> Result<Self, DecodeError> {
        let decoded = match &config.context {
            Value::Map(map) if !map.is_empty() => value::from_value(&config.context),
            _ => value::from_value(&Value::map(config.configurable.clone())),
        };
        decoded.map(Self)
    }
}

/// A shared dependency, which the graph gets once with [`provide`](crate::graph::Graph::provide):
/// a model, a client, a pool.
pub struct Dep<T: ?Sized>(pub Arc<T>);

impl<T: ?Sized + Send + Sync + 'static> FromTask for Dep<T> {
    fn requires(requires: &mut Requires) {
        requires.deps.push(Self::key());
    }

    fn from_task(ctx: &Ctx) -> Result<Self, Rejection> {
        match Self::find(&ctx.task().deps) {
            Some(dep) => Ok(Self(dep)),
            None => Err(Rejection::Dep {
                node: ctx.task().node.clone(),
                dep: type_name::<T>(),
            }),
        }
    }
}

impl<T: ?Sized + Send + Sync + 'static> Dep<T> {
    /// By what a graph has it, and the name of its type.
    pub(super) fn key() -> (TypeId, &'static str) {
        (TypeId::of::<Arc<T>>(), type_name::<T>())
    }

    pub(super) fn find(deps: &Deps) -> Option<Arc<T>> {
        let dep = deps.0.get(&TypeId::of::<Arc<T>>())?;
        dep.downcast_ref::<Arc<T>>().cloned()
    }
}

impl<T: ?Sized> Clone for Dep<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Deref for Dep<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests;
