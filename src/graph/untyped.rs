//! Graphs whose channels and nodes are named at run time: for interpreters and other languages.

use std::{future::Future, marker::PhantomData, sync::Arc};

use super::{
    Body, ChannelSpec, Goto, Graph, NodeOpts, Output, Route, Untyped,
    builder::{Draft, DraftRoute, names},
};
use crate::{
    channel::Kind,
    extract::{Ctx, Requires},
    value::Map,
};

impl Graph<Untyped> {
    /// A graph without a state type: channels are named one by one, nodes read and write
    /// [`Value`](crate::value::Value)s.
    ///
    /// ```
    /// use backstitch::{
    ///     channel::Kind,
    ///     graph::{END, Graph, Output, START},
    ///     value,
    /// };
    ///
    /// let graph = Graph::untyped()
    ///     .channel("text", Kind::Last)
    ///     .node("shout", |ctx| async move {
    ///         let text = ctx.input()["text"].as_str().unwrap_or_default().to_uppercase();
    ///         Ok(Output::update([("text", value!(text))]))
    ///     })
    ///     .edge(START, "shout")
    ///     .edge("shout", END)
    ///     .build()?;
    /// assert_eq!(graph.drawing(0).nodes, [START, "shout", END]);
    /// # Ok::<_, backstitch::graph::Invalid>(())
    /// ```
    pub fn untyped() -> Self {
        Self {
            draft: Draft {
                title: "State".to_owned(),
                ..Draft::default()
            },
            state: PhantomData,
        }
    }

    /// Adds a channel to the state.
    pub fn channel(self, name: impl Into<Arc<str>>, kind: Kind) -> Self {
        self.channel_with(name, kind, serde_json::json!({}))
    }

    /// Adds a channel with a JSON schema of its value.
    pub fn channel_with(
        mut self,
        name: impl Into<Arc<str>>,
        kind: Kind,
        schema: serde_json::Value,
    ) -> Self {
        self.draft.channels.push(ChannelSpec {
            name: name.into(),
            kind,
            schema,
        });
        self
    }

    /// Makes the whole state one value of any type instead of a map of channels.
    pub fn root(mut self, kind: Kind) -> Self {
        self.draft.root_state = true;
        self.channel(super::ROOT, kind)
    }

    /// Adds a node that reads all channels.
    pub fn node<F, Fut>(self, name: impl Into<Arc<str>>, function: F) -> Self
    where
        F: Fn(Ctx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<Output>> + Send + 'static,
    {
        self.node_with(name, function, NodeOpts::new())
    }

    /// Adds a node with options.
    pub fn node_with<F, Fut>(self, name: impl Into<Arc<str>>, function: F, opts: NodeOpts) -> Self
    where
        F: Fn(Ctx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<Output>> + Send + 'static,
    {
        let body = Body::Function(Arc::new(move |ctx| Box::pin(function(ctx))));
        let requires = Requires {
            commands: true,
            ..Requires::default()
        };
        self.add(name.into(), body, opts, requires)
    }

    /// Chooses what follows `from` by the state. With `targets` (key, node) the
    /// choice is closed: a chosen name must be one of the keys. Without, any name may be chosen,
    /// and one that is no node leads nowhere.
    pub fn route<F, K, N>(
        mut self,
        from: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        choose: F,
        targets: Option<impl IntoIterator<Item = (K, N)>>,
    ) -> Self
    where
        F: Fn(&Map) -> anyhow::Result<Vec<Goto>> + Send + Sync + 'static,
        K: Into<Arc<str>>,
        N: Into<Arc<str>>,
    {
        let targets = targets.map(|targets| {
            let targets = targets.into_iter();
            targets
                .map(|(key, node)| (key.into(), node.into()))
                .collect()
        });
        let route = Route {
            name: name.into(),
            choose: Arc::new(move |input| choose(input.state)),
            targets,
        };
        self.draft.routes.push(DraftRoute {
            from: from.into(),
            route,
            requires: Requires::default(),
        });
        self
    }

    /// Chooses what follows `from` among all nodes; see [`route`](Graph::route).
    pub fn open_route<F>(
        self,
        from: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        choose: F,
    ) -> Self
    where
        F: Fn(&Map) -> anyhow::Result<Vec<Goto>> + Send + Sync + 'static,
    {
        self.route(from, name, choose, None::<[(&str, &str); 0]>)
    }
}

impl Output {
    /// An output that writes these channels, in this order.
    pub fn update<N: Into<Arc<str>>>(
        writes: impl IntoIterator<Item = (N, crate::value::Value)>,
    ) -> Self {
        Self {
            writes: writes
                .into_iter()
                .map(|(channel, value)| (channel.into(), value))
                .collect(),
            ..Self::default()
        }
    }

    /// Adds explicit routing.
    #[must_use]
    pub fn goto<N: Into<Arc<str>>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        let nodes = names(nodes).into_iter();
        self.goto.extend(nodes.map(|node| Goto { node, arg: None }));
        self
    }
}
