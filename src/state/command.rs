//! Explicit routing: targets, routes, and updates that choose what runs next.

use std::{marker::PhantomData, sync::Arc};

use serde::Serialize;

use super::{State, Writes};
use crate::value::{EncodeError, Value, to_value};

/// The next node, or the next node with an argument of its own (LangGraph's `Send`).
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a target does nothing until a node or a route returns it"]
pub struct Target {
    node: Arc<str>,
    arg: Option<Result<Value, EncodeError>>,
}

/// Names a node to run next. `goto("grade").with(essay)` adds an argument of its own; a list
/// of those fans out, one task each.
pub fn goto(node: impl Into<Arc<str>>) -> Target {
    Target {
        node: node.into(),
        arg: None,
    }
}

impl Target {
    /// Adds an argument, which the node takes as [`Arg<T>`](crate::extract::Arg). An argument
    /// that cannot be encoded fails the node that returns this target.
    pub fn with(mut self, arg: impl Serialize) -> Self {
        self.arg = Some(to_value(&arg));
        self
    }

    /// The node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The node and its encoded argument.
    ///
    /// # Errors
    /// The argument cannot be encoded.
    pub(crate) fn into_parts(self) -> Result<(Arc<str>, Option<Value>), EncodeError> {
        Ok((self.node, self.arg.transpose()?))
    }
}

impl From<&str> for Target {
    fn from(node: &str) -> Self {
        goto(node)
    }
}

impl From<String> for Target {
    fn from(node: String) -> Self {
        goto(node)
    }
}

impl From<Arc<str>> for Target {
    fn from(node: Arc<str>) -> Self {
        goto(node)
    }
}

/// A type that a route may return: a name, a [`Target`], a list of either, nothing, or a `Result`.
#[diagnostic::on_unimplemented(
    message = "a route cannot return `{Self}`",
    note = "it returns a name, `goto(..)`, a `Vec`, an array or an `Option` of these, or a `Result` of one of them"
)]
pub trait IntoRoute {
    /// The targets.
    ///
    /// # Errors
    /// What the route returned.
    fn into_route(self) -> anyhow::Result<Vec<Target>>;
}

macro_rules! single_route {
    ($($t:ty),*) => {$(
        impl IntoRoute for $t {
            fn into_route(self) -> anyhow::Result<Vec<Target>> {
                Ok(vec![self.into()])
            }
        }
    )*};
}
single_route!(&str, String, Arc<str>, Target);

impl<T: Into<Target>> IntoRoute for Vec<T> {
    fn into_route(self) -> anyhow::Result<Vec<Target>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Target>, const N: usize> IntoRoute for [T; N] {
    fn into_route(self) -> anyhow::Result<Vec<Target>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Target>> IntoRoute for Option<T> {
    fn into_route(self) -> anyhow::Result<Vec<Target>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl<T: IntoRoute, E: Into<anyhow::Error>> IntoRoute for Result<T, E> {
    fn into_route(self) -> anyhow::Result<Vec<Target>> {
        self.map_err(Into::into)?.into_route()
    }
}

/// An update together with what runs next. Static edges and routes of the node count as well.
#[must_use = "a command does nothing until the node returns it"]
pub struct Command<S> {
    writes: Writes,
    targets: Vec<Target>,
    to_parent: bool,
    state: PhantomData<fn() -> S>,
}

impl<S: State> Command<S> {
    /// Adds a target; several run in parallel.
    pub fn goto(mut self, target: impl Into<Target>) -> Self {
        self.targets.push(target.into());
        self
    }

    /// Adds targets.
    pub fn goto_each<T: Into<Target>>(mut self, targets: impl IntoIterator<Item = T>) -> Self {
        self.targets.extend(targets.into_iter().map(Into::into));
        self
    }

    /// Addresses update and targets to the graph in which this one runs.
    pub fn to_parent(mut self) -> Self {
        self.to_parent = true;
        self
    }

    /// Whether it is addressed to the parent graph.
    pub(crate) fn is_to_parent(&self) -> bool {
        self.to_parent
    }

    /// The updates and the targets.
    pub(crate) fn into_parts(self) -> (Writes, Vec<Target>) {
        (self.writes, self.targets)
    }
}

impl<S, U: Into<Writes>> From<U> for Command<S> {
    fn from(update: U) -> Self {
        Self {
            writes: update.into(),
            targets: Vec::new(),
            to_parent: false,
            state: PhantomData,
        }
    }
}

impl<S: State> From<Target> for Command<S> {
    fn from(target: Target) -> Self {
        Self::from(Writes::default()).goto(target)
    }
}
