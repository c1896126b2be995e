//! Which functions are nodes: any mix of up to four parameters, and what they may return.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;

use super::{Goto, Output};
use crate::{
    extract::{Ctx, FromTask, Requires},
    state::{Command, State, Target},
};

/// An async function usable as a node: any mix of up to four [`FromTask`] parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a node of a graph over `{S}`",
    label = "not a node",
    note = "a node is `async fn(..) -> R` with up to four parameters, each a `#[derive(State)]` view, `Ctx`, `Arg<T>`, `Config<T>`, `Dep<T>` or `Failure`",
    note = "`R` is `()`, `Update<{S}>`, `Command<{S}>`, `Target`, a `Vec` of commands, or a `Result` of one of these",
    note = "the future must be `Send`: do not hold an `Rc`, a `RefCell` guard or a std `MutexGuard` across `.await`",
    note = "`#[node({S})]` on the function points at what is wrong"
)]
pub trait Handler<S, Args>: Send + Sync + 'static {
    /// What the parameters and the result require of the graph.
    fn requires(&self, requires: &mut Requires);

    /// Runs the node.
    fn call(&self, ctx: &Ctx) -> BoxFuture<'static, anyhow::Result<Output>>;
}

macro_rules! handlers {
    ($(($($arg:ident)*))*) => {$(
        impl<S, F, Fut, R, $($arg,)*> Handler<S, ($($arg,)*)> for F
        where
            F: Fn($($arg),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = R> + Send + 'static,
            R: IntoOutput<S> + 'static,
            $($arg: FromTask,)*
        {
            fn requires(&self, requires: &mut Requires) {
                requires.commands |= R::COMMANDS;
                $($arg::requires(requires);)*
            }

            #[allow(unused_variables, non_snake_case, reason = "a node may take nothing")]
            fn call(&self, ctx: &Ctx) -> BoxFuture<'static, anyhow::Result<Output>> {
                $(let $arg = match $arg::from_task(ctx) {
                    Ok(argument) => argument,
                    Err(error) => return Box::pin(async move { Err(error.into()) }),
                };)*
                let future = self($($arg),*);
                Box::pin(async move { future.await.into_output() })
            }
        }
    )*};
}
handlers! { () (A) (A B) (A B C) (A B C D) }

/// Anything a node over `S` may return.
#[diagnostic::on_unimplemented(
    message = "a node of a graph over `{S}` cannot return `{Self}`",
    note = "it returns `()`, `Update<{S}>`, `Command<{S}>`, `Target`, a `Vec` of commands, or a `Result` of one of these"
)]
pub trait IntoOutput<S> {
    /// Whether the node may choose itself what runs next.
    const COMMANDS: bool = false;

    /// The result in the engine's form.
    ///
    /// # Errors
    /// What the node returned, or a value that cannot be encoded.
    fn into_output(self) -> anyhow::Result<Output>;
}

impl<S> IntoOutput<S> for () {
    fn into_output(self) -> anyhow::Result<Output> {
        Ok(Output::default())
    }
}

/// A node may name its channels at run time.
impl<S> IntoOutput<S> for Output {
    const COMMANDS: bool = true;

    fn into_output(self) -> anyhow::Result<Output> {
        Ok(self)
    }
}

impl<S> IntoOutput<S> for Target {
    const COMMANDS: bool = true;

    fn into_output(self) -> anyhow::Result<Output> {
        Ok(Output {
            goto: vec![self.try_into()?],
            ..Output::default()
        })
    }
}

impl<S: State> IntoOutput<S> for Command<S> {
    const COMMANDS: bool = true;

    fn into_output(self) -> anyhow::Result<Output> {
        let to_parent = self.is_to_parent();
        let (writes, targets) = self.into_parts();
        Ok(Output {
            writes: writes.finish()?,
            goto: gotos(targets)?,
            to_parent,
        })
    }
}

/// All updates come first, then all targets.
impl<S: State> IntoOutput<S> for Vec<Command<S>> {
    const COMMANDS: bool = true;

    fn into_output(self) -> anyhow::Result<Output> {
        let mut all = Output {
            to_parent: self.first().is_some_and(Command::is_to_parent),
            ..Output::default()
        };
        for command in self {
            let one = command.into_output()?;
            anyhow::ensure!(
                one.to_parent == all.to_parent,
                "commands of one node go all to the parent graph or all to its own"
            );
            all.writes.extend(one.writes);
            all.goto.extend(one.goto);
        }
        Ok(all)
    }
}

impl<S, T: IntoOutput<S>, E: Into<anyhow::Error>> IntoOutput<S> for Result<T, E> {
    const COMMANDS: bool = T::COMMANDS;

    fn into_output(self) -> anyhow::Result<Output> {
        self.map_err(Into::into)?.into_output()
    }
}

impl TryFrom<Target> for Goto {
    type Error = crate::value::EncodeError;

    fn try_from(target: Target) -> Result<Self, Self::Error> {
        let (node, arg) = target.into_parts()?;
        Ok(Self { node, arg })
    }
}

/// Targets in the engine's form.
pub(super) fn gotos(targets: Vec<Target>) -> Result<Vec<Goto>, crate::value::EncodeError> {
    targets.into_iter().map(Goto::try_from).collect()
}

/// A handler as the engine calls it.
pub(crate) fn erase<S: 'static, Args: 'static>(handler: impl Handler<S, Args>) -> super::NodeFn {
    Arc::new(move |ctx| handler.call(&ctx))
}
