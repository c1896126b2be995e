//! Which functions are routes: the state or a view by reference or by value, and further parameters.

use std::marker::PhantomData;

use crate::{
    extract::{FromRoute, Requires, RouteInput},
    state::{IntoRoute, State, Target},
};

/// A function usable as a route: `fn(&Chat) -> &str`, with up to three further parameters that are
/// [`FromRoute`], or with such parameters alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a route",
    label = "not a route",
    note = "a route is a plain `fn(&Chat) -> R` or `fn(&Chat, Config<T>, Dep<T>) -> R`, where `Chat` is a `#[derive(State)]` struct; it may have up to three further parameters, and it is not `async`",
    note = "`R` is a name, `goto(..)`, a `Vec`, an array or an `Option` of these, or a `Result` of one of them",
    note = "a closure names the type of its parameter: `|chat: &Chat| ..`; one that returns text borrowed from the state has to be a `fn`, or to return a `String`"
)]
pub trait Choose<Args>: Send + Sync + 'static {
    /// What the parameters require of the graph.
    fn requires(&self, requires: &mut Requires);

    /// Chooses.
    ///
    /// # Errors
    /// What the route returned, or a parameter that cannot be built.
    fn choose(&self, input: &RouteInput<'_>) -> anyhow::Result<Vec<Target>>;
}

/// Marks routes that take the state by reference.
pub struct ByReference<V>(PhantomData<fn() -> V>);
/// Marks routes whose parameters are all taken by value.
pub struct ByValue;

/// A function whose result may borrow from its first parameter.
pub trait Borrowing<'a, V: 'a, Args> {
    /// What it returns.
    type Chosen: IntoRoute;

    /// Calls it.
    fn call_with(&self, state: &'a V, args: Args) -> Self::Chosen;
}

macro_rules! routes {
    ($($(#[$also:meta])? ($($arg:ident)*))*) => {$(
        impl<'a, V: 'a, F, R, $($arg,)*> Borrowing<'a, V, ($($arg,)*)> for F
        where
            F: Fn(&'a V, $($arg),*) -> R,
            R: IntoRoute,
        {
            type Chosen = R;

            #[allow(non_snake_case, clippy::unused_unit, reason = "a route may take nothing else")]
            fn call_with(&self, state: &'a V, ($($arg,)*): ($($arg,)*)) -> R {
                self(state, $($arg),*)
            }
        }

        impl<V, F, $($arg,)*> Choose<(ByReference<V>, $($arg,)*)> for F
        where
            V: State,
            F: for<'a> Borrowing<'a, V, ($($arg,)*)> + Send + Sync + 'static,
            $($arg: FromRoute,)*
        {
            fn requires(&self, requires: &mut Requires) {
                <V as FromRoute>::requires(requires);
                $(<$arg as FromRoute>::requires(requires);)*
            }

            fn choose(&self, input: &RouteInput<'_>) -> anyhow::Result<Vec<Target>> {
                let state = <V as FromRoute>::from_route(input)?;
                let args = ($(<$arg as FromRoute>::from_route(input)?,)*);
                self.call_with(&state, args).into_route()
            }
        }

        impl<F, R, $($arg,)*> Choose<(ByValue, $($arg,)*)> for F
        where
            F: Fn($($arg),*) -> R + Send + Sync + 'static,
            R: IntoRoute,
            $($arg: FromRoute,)*
        {
            #[allow(unused_variables, reason = "a route may take nothing")]
            fn requires(&self, requires: &mut Requires) {
                $(<$arg as FromRoute>::requires(requires);)*
            }

            #[allow(unused_variables, reason = "a route may take nothing")]
            fn choose(&self, input: &RouteInput<'_>) -> anyhow::Result<Vec<Target>> {
                self($(<$arg as FromRoute>::from_route(input)?),*).into_route()
            }
        }
    )*};
}
routes! { () (A) (A B) (A B C) }
