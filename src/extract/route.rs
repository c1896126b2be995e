//! Parameters of routes: the state, configuration and dependencies, but nothing that takes time.

use std::{any::type_name, sync::Arc};

use anyhow::Context as _;
use serde::de::DeserializeOwned;

use super::{Config, Dep, Requires, RunConfig};
use crate::{graph::Deps, state::State, value::Map};

/// What a route chooses by.
pub struct RouteInput<'a> {
    /// The state with the writes of the node's own task.
    pub state: &'a Map,
    /// The run's config. A change of the state outside of a run has an empty one.
    pub config: &'a RunConfig,
    /// Shared dependencies of the graph.
    pub deps: &'a Deps,
}

/// A value that a route can take as a parameter.
#[diagnostic::on_unimplemented(
    message = "a route cannot take `{Self}` as a parameter",
    note = "parameters are the state or a smaller `#[derive(State)]` view, `Config<T>` and `Dep<T>`: a route only chooses, and everything that takes time belongs into a node"
)]
pub trait FromRoute: Sized {
    /// Adds what the graph must have for this parameter.
    fn requires(requires: &mut Requires) {
        let _ = requires;
    }

    /// Builds the parameter.
    ///
    /// # Errors
    /// The state does not fit, or the run has no such context or dependency.
    fn from_route(input: &RouteInput<'_>) -> anyhow::Result<Self>;
}

#[diagnostic::do_not_recommend]
impl<T: State> FromRoute for T {
    fn requires(requires: &mut Requires) {
        requires.channels.extend(T::channels());
    }

    fn from_route(input: &RouteInput<'_>) -> anyhow::Result<Self> {
        Ok(T::decode(input.state)?)
    }
}

impl<T: DeserializeOwned> FromRoute for Config<T> {
    fn from_route(input: &RouteInput<'_>) -> anyhow::Result<Self> {
        let decoded = Self::of_run(input.config);
        decoded.with_context(|| format!("the run's context is no `{}`", type_name::<T>()))
    }
}

impl<T: ?Sized + Send + Sync + 'static> FromRoute for Dep<T> {
    fn requires(requires: &mut Requires) {
        requires.deps.push(Self::key());
    }

    fn from_route(input: &RouteInput<'_>) -> anyhow::Result<Self> {
        let dep: Option<Arc<T>> = Self::find(input.deps);
        let dep = dep.with_context(|| {
            let name = type_name::<T>();
            format!("it needs `{name}`: call `.provide(Arc<{name}>)` on the graph")
        })?;
        Ok(Self(dep))
    }
}
