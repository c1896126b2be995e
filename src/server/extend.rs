//! What a program adds to the server that it is: settings, flags, routes, layers, its authentication, and
//! what it does at the start and at the end.

use std::{convert::Infallible, sync::Arc};

use futures::FutureExt;
use http::{Request, Response, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

use super::Server;
use crate::{
    assistants::{Factory, GraphConfig},
    cli, config,
    graph::Compiled,
    http::{
        Authentication, BoxError, Foreign, HttpBody, Next, Principal, Refused, RequestBody,
        add_routes,
    },
};

impl Server {
    /// The address to listen on where no flag, variable or file says another.
    pub fn address(self, host: impl Into<String>, port: u16) -> Self {
        self.setting("host", host).setting("port", port.to_string())
    }

    /// The value of a setting where no flag, variable or file sets it. `name` is as
    /// `backstitch.toml` spells it, for example `drain`. `model_of_settings` does not read it.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        if !config::is_setting(&name) {
            self.problems
                .push(format!("there is no setting `{name}`; `--help` lists all"));
        }
        self.program.settings.insert(name, value.into());
        self
    }

    /// Flags of the program's own, beside those of the server, read from the command line of this process
    /// now. A command line that is not understood, or that wants help, ends the process as
    /// clap's `parse` does, and so does a flag that the server or one of its commands has too. Flags that every command can do without have a default or are optional.
    ///
    /// ```no_run
    /// #[derive(clap::Args)]
    /// struct Mine {
    ///     /// Which model the graphs use
    ///     #[arg(long, default_value = "small")]
    ///     model: String,
    /// }
    ///
    /// let (server, mine) = backstitch::Server::new().flags::<Mine>();
    /// let server = server.notice(format!("the model is {}", mine.model));
    /// # drop(server);
    /// ```
    pub fn flags<T: cli::OwnFlags>(mut self) -> (Self, T) {
        let flags = self.program.own_flags::<T>(std::env::args_os());
        (self, flags)
    }

    /// Registers a function that makes the graph for the config and the context of a run, under the name
    /// clients use as `assistant_id`. Configs of the same `key` have the same graph; of all graphs that were
    /// made at most 64 are retained, and others are made anew. All of them have the same channels.
    ///
    /// It is called for each run whose graph is not there; for reads and edits of a thread with the config of its last run; for
    /// schemas with the config of the assistant; and with the default config when the server starts, which fails if
    /// that does. It has `BACKSTITCH_GRAPH_TIMEOUT` seconds. A run whose graph cannot be made ends as `error`.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use backstitch::{Server, prelude::*, service::GraphConfig};
    ///
    /// # #[derive(State)]
    /// # struct Talk { text: String }
    /// # async fn french(_: Talk) {}
    /// # async fn english(_: Talk) {}
    /// async fn make(config: GraphConfig) -> Result<Arc<Compiled>> {
    ///     let graph = Graph::<Talk>::new();
    ///     let graph = match config.text("language") {
    ///         Some("fr") => graph.node("talk", french),
    ///         _ => graph.node("talk", english),
    ///     };
    ///     Ok(graph.edge(START, "talk").build()?)
    /// }
    ///
    /// let key = |config: &GraphConfig| config.text("language").unwrap_or("en").to_owned();
    /// let server = Server::new().graph_factory("talk", key, make);
    /// # drop(server);
    /// ```
    pub fn graph_factory<K, F, Fut, E>(mut self, name: impl Into<Arc<str>>, key: K, make: F) -> Self
    where
        K: Fn(&GraphConfig) -> String + Send + Sync + 'static,
        F: Fn(GraphConfig) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Arc<Compiled>, E>> + Send + 'static,
        E: Into<anyhow::Error>,
    {
        let name = self.new_name(name.into());
        self.factories.push((name, Factory::new(key, make)));
        self
    }

    /// Lets this function find out who sends a request, from its head, in place of the keys of
    /// the settings; the server is then not open to everybody, and `BACKSTITCH_API_KEYS` must
    /// be unset. The paths `/`, `/ok`, `/live` and `/ready`, and what settings make public, need no authentication.
    ///
    /// It is called before anything else is done for the request, and may take ten seconds, after
    /// which the client gets a 503. A panic and an error of another kind than [`Refused`] are a 500 whose reason
    /// only the log has. It must not block its thread.
    pub fn authenticate<F, Fut>(mut self, find: F) -> Self
    where
        F: Fn(Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Principal, Refused>> + Send + 'static,
    {
        if self.own.authentication.is_some() {
            self.problems
                .push("two functions authenticate requests; one can".into());
        }
        self.own.authentication = Some(Authentication::new(find));
        self
    }

    /// Serves the paths at and below `prefix` with a service of `tower`, such as a router of axum, which
    /// sees the whole path. Requests to them are authenticated as all others are; handlers find the
    /// [`Principal`] in the extensions of the request, unless everybody may call. A body of
    /// more than `BACKSTITCH_BODY_LIMIT` bytes fails while it is read.
    ///
    /// A prefix that would hide a route of the server is reported when the server starts.
    pub fn routes<S, B>(self, prefix: &str, service: S) -> Self
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: HttpBody<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.with_routes(prefix, Foreign::new(service), false)
    }

    /// As [`routes`](Self::routes), for everybody: nobody is authenticated.
    pub fn public_routes<S, B>(self, prefix: &str, service: S) -> Self
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: HttpBody<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.with_routes(prefix, Foreign::new(service), true)
    }

    fn with_routes(mut self, prefix: &str, service: Foreign, is_public: bool) -> Self {
        if let Err(problem) = add_routes(&mut self.own, prefix, service, is_public) {
            self.problems.push(format!("routes: {problem}"));
        }
        self
    }

    /// A layer of `tower` around all routes, the program's own included, and around the layers that were
    /// added before. It sees requests whose host and origin are allowed, before anybody is authenticated,
    /// and passes their extensions on. Its panic is a 500.
    pub fn layer<L, B>(mut self, layer: L) -> Self
    where
        L: Layer<Next> + Send + Sync + 'static,
        L::Service: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as Service<Request<RequestBody>>>::Future: Send,
        B: HttpBody<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.own.add_layer(move |service| service.within(&layer));
        self
    }

    /// Does this when the storage is open, before the server takes up runs and listens. It has a minute; if
    /// it fails, the server does not start. Several are done in the order in which they were added.
    pub fn on_start<F, Fut>(mut self, hook: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.hooks.at_start(Box::new(move || hook().boxed()));
        self
    }

    /// Does this when the server has drained, also when it could not listen. It has ten seconds; if it
    /// fails, the others are done all the same, and the exit code is 1. Several are done in the reverse of the order in which they
    /// were added. Who stops the server by a second signal does not wait for it.
    pub fn on_stop<F, Fut>(mut self, hook: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.hooks.at_stop(Box::new(move || hook().boxed()));
        self
    }
}
