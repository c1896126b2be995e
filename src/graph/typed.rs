//! Graphs over a derived state: nodes are plain async functions, routes choose by a typed view.

use std::{any::type_name, marker::PhantomData, sync::Arc};

use anyhow::Context as _;

use super::{
    Body, ChannelSpec, Choose, Goto, Graph, Handler, NodeOpts, Route, UnlistedTarget,
    builder::{Draft, DraftRoute, names},
    handler::{erase, gotos},
};
use crate::{
    extract::{Requires, RouteInput},
    state::State,
};

impl<S: State> Default for Graph<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Graph<S> {
    /// An empty graph over the channels of `S`.
    ///
    /// ```
    /// use backstitch::prelude::*;
    ///
    /// #[derive(State)]
    /// struct Story {
    ///     topic: String,
    ///     #[state(append)]
    ///     lines: Vec<String>,
    ///     /// How often a line was added.
    ///     #[state(merge = add)]
    ///     rounds: u32,
    /// }
    ///
    /// fn add(old: u32, new: u32) -> u32 {
    ///     old + new
    /// }
    ///
    /// async fn write(story: Story) -> Result<Update<Story>> {
    ///     let line = format!("Line {} about {}.", story.rounds + 1, story.topic);
    ///     Ok(Story::update().lines(line).rounds(1u32))
    /// }
    ///
    /// fn enough(story: &Story) -> &'static str {
    ///     if story.rounds < 3 { "write" } else { END }
    /// }
    ///
    /// let graph = Graph::<Story>::new()
    ///     .node_with("write", write, NodeOpts::new().retry(Retry::times(3)))
    ///     .edge(START, "write")
    ///     .route("write", enough, ["write", END])
    ///     .build()?;
    /// assert!(graph.drawing(0).to_mermaid().contains("write"));
    /// # Ok::<_, backstitch::graph::Invalid>(())
    /// ```
    pub fn new() -> Self
    where
        S: State,
    {
        let channels = S::channels().into_iter();
        Self {
            draft: Draft {
                title: S::NAME.to_owned(),
                channels: channels
                    .map(|channel| ChannelSpec {
                        name: channel.name.into(),
                        schema: channel.full_schema(),
                        kind: channel.kind,
                    })
                    .collect(),
                ..Draft::default()
            },
            state: PhantomData,
        }
    }
}

impl<S: State> Graph<S> {
    /// Adds the channels of `V` that the graph does not have yet, for nodes and routes that read them as `V`.
    pub fn extend<V: State>(self) -> Self {
        V::channels().into_iter().fold(self, Self::with_channel)
    }

    /// Adds a channel unless the graph has one of its name.
    pub(crate) fn with_channel(mut self, channel: crate::state::Channel) -> Self {
        let channels = &mut self.draft.channels;
        if channels.iter().all(|spec| *spec.name != *channel.name) {
            channels.push(ChannelSpec {
                name: channel.name.into(),
                schema: channel.full_schema(),
                kind: channel.kind,
            });
        }
        self
    }

    /// The names of the channels so far.
    pub(crate) fn channel_names(&self) -> Vec<Arc<str>> {
        let channels = self.draft.channels.iter();
        channels.map(|spec| spec.name.clone()).collect()
    }

    /// Adds a node: a plain `async fn` of up to four parameters, see [`Handler`].
    pub fn node<Args: 'static>(
        self,
        name: impl Into<Arc<str>>,
        handler: impl Handler<S, Args>,
    ) -> Self {
        self.node_with(name, handler, NodeOpts::new())
    }

    /// Adds a node with options.
    pub fn node_with<Args: 'static>(
        self,
        name: impl Into<Arc<str>>,
        handler: impl Handler<S, Args>,
        opts: NodeOpts,
    ) -> Self {
        let mut requires = Requires::default();
        handler.requires(&mut requires);
        self.add(name.into(), Body::Function(erase(handler)), opts, requires)
    }

    /// Chooses what follows `from` by the state with the node's own update applied. `targets` is the
    /// closed list of choices: it draws the graph, `build` rejects names that
    /// are no nodes, and choosing anything else fails the node.
    ///
    /// Beside the state a route takes [`Config`](crate::extract::Config) and
    /// [`Dep`](crate::extract::Dep), as nodes do; see [`Choose`]. A `fn` may return text that it borrows from
    /// the state. For a closure the compiler cannot work that out ("lifetime may not live long enough"): let it
    /// return a `String`, or make it a `fn`.
    ///
    /// ```
    /// use backstitch::prelude::*;
    ///
    /// #[derive(State)]
    /// struct Order {
    ///     total: u32,
    /// }
    ///
    /// #[derive(Deserialize)]
    /// struct Shop {
    ///     limit: u32,
    /// }
    ///
    /// fn by_limit(order: &Order, shop: Config<Shop>) -> &'static str {
    ///     if order.total > shop.0.limit { "approve" } else { END }
    /// }
    ///
    /// async fn approve() {}
    ///
    /// let graph = Graph::<Order>::new()
    ///     .node("approve", approve)
    ///     .route(START, by_limit, ["approve", END])
    ///     .build()?;
    /// # Ok::<_, backstitch::graph::Invalid>(())
    /// ```
    pub fn route<Args: 'static, F: Choose<Args>, N: Into<Arc<str>>>(
        mut self,
        from: impl Into<Arc<str>>,
        choose: F,
        targets: impl IntoIterator<Item = N>,
    ) -> Self {
        let mut requires = Requires::default();
        choose.requires(&mut requires);
        let name = short_name(type_name::<F>());
        let targets = names(targets);
        let (route, allowed) = (name.clone(), targets.clone());
        let choose = move |input: &RouteInput<'_>| -> anyhow::Result<Vec<Goto>> {
            let chosen = choose.choose(input);
            let chosen = gotos(chosen.with_context(|| format!("the route `{route}`"))?)?;
            for goto in &chosen {
                if !allowed.contains(&goto.node) {
                    return Err(UnlistedTarget::new(&route, &goto.node, &allowed).into());
                }
            }
            Ok(chosen)
        };
        let route = Route {
            name,
            choose: Arc::new(choose),
            targets: Some(targets.into_iter().map(|to| (to.clone(), to)).collect()),
        };
        self.draft.routes.push(DraftRoute {
            from: from.into(),
            route,
            requires,
        });
        self
    }
}

/// `pending_calls` of `my_agent::graph::pending_calls`; closures are called `route`.
fn short_name(path: &str) -> Arc<str> {
    match path.rsplit("::").next() {
        Some(name) if !name.is_empty() && !name.contains(['{', '<', '>']) => name.into(),
        _ => "route".into(),
    }
}
