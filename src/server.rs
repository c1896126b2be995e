//! Turns graphs into a server: command line, storage, run service, HTTP, drain.

use std::{collections::BTreeMap, process::ExitCode, sync::Arc};

mod author;
mod embed;
mod extend;
mod greeting;
mod hooks;
mod listen;
mod serve;
mod storages;

use author::Author;
pub use embed::Handle;
use hooks::Hooks;

#[cfg(feature = "openai")]
use crate::llm::openai;
use crate::{
    assistants,
    cli::{self, Program, Serving},
    config::Settings,
    graph::Compiled,
    http,
    llm::Embeddings,
    store,
    value::Value,
};

/// A server for graphs, built and run in the `main` of a graph author.
///
/// ```no_run
/// use backstitch::{prelude::*, Server};
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
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     Server::new()
///         .graph("greeter", Graph::<Greeting>::new().node("greet", greet).edge(START, "greet").build())
///         .run()
///         .await
/// }
/// ```
#[derive(Default)]
pub struct Server {
    graphs: Vec<(Arc<str>, Arc<Compiled>)>,
    factories: Vec<(Arc<str>, assistants::Factory)>,
    problems: Vec<String>,
    notices: Vec<String>,
    shared: Vec<store::Namespace>,
    defaults: BTreeMap<Arc<str>, assistants::Defaults>,
    embedder: Option<store::Embedder>,
    program: Program,
    own: http::Own,
    hooks: Hooks,
}

/// A server whose author made no mistake that can be found before it starts.
struct Checked {
    graphs: Vec<(Arc<str>, Arc<Compiled>)>,
    factories: Vec<(Arc<str>, assistants::Factory)>,
    author: Author,
    own: http::Own,
    hooks: Hooks,
}

impl Server {
    /// A server without graphs.
    pub fn new() -> Self {
        Self::default()
    }

    /// What `--version` and `--help` show of this program: its name and version, as in
    /// `.program(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))`. Without it the name is that of the file
    /// that was started, and the version that of this library.
    pub fn program(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.program.name = Some(name.into());
        self.program.version = Some(version.into());
        self
    }

    /// The sentence about this program at the top of its `--help`.
    pub fn about(mut self, sentence: impl Into<String>) -> Self {
        self.program.about = Some(sentence.into());
        self
    }

    /// Registers a graph under the name clients use as `assistant_id`. A graph that did not
    /// build is reported when the server starts, with all its problems.
    pub fn graph<E: std::fmt::Display>(
        mut self,
        name: impl Into<Arc<str>>,
        graph: Result<Arc<Compiled>, E>,
    ) -> Self {
        let name = self.new_name(name.into());
        match graph {
            Ok(graph) => self.graphs.push((name, graph)),
            Err(error) => self.problems.push(format!("graph `{name}`: {error}")),
        }
        self
    }

    /// The name, which is a problem when a graph has it already.
    fn new_name(&mut self, name: Arc<str>) -> Arc<str> {
        let graphs = self.graphs.iter().map(|(name, _)| name);
        let factories = self.factories.iter().map(|(name, _)| name);
        if graphs.chain(factories).any(|other| *other == name) {
            self.problems.push(format!("two graphs are named `{name}`"));
        }
        name
    }

    /// Lets runs of a graph have this config and this context by default: `config` as requests have
    /// it (`tags`, `recursion_limit`, `configurable`), `context` a map, and not both
    /// `configurable` and `context`. The variable `LANGGRAPH_CONFIG` wins.
    pub fn graph_defaults(
        mut self,
        graph: impl Into<Arc<str>>,
        config: Value,
        context: Value,
    ) -> Self {
        let graph = graph.into();
        match assistants::Defaults::of(&config, &context) {
            Ok(defaults) => drop(self.defaults.insert(graph, defaults)),
            Err(reason) => self
                .problems
                .push(format!("defaults of graph `{graph}`: {reason}")),
        }
        self
    }

    /// Makes what long-term memory has below this prefix of namespaces common to all principals.
    /// Everything else belongs to the principal whose request or run stored it.
    pub fn shared_memory(mut self, prefix: &[&str]) -> Self {
        let prefix: store::Namespace = prefix.iter().map(|label| (*label).to_owned()).collect();
        if let Err(reason) = store::namespace::check_new(&prefix, "") {
            self.problems
                .push(format!("shared memory {prefix:?}: {reason}"));
        }
        self.shared.push(prefix);
        self
    }

    /// Lets items of long-term memory be searched by meaning with this model. Of an item whose writer
    /// names no `index` the texts at `fields` are embedded: paths such as `text` and `parts[*].text`, or
    /// `$` for all of it. The variable `BACKSTITCH_EMBEDDING_MODEL` wins.
    pub fn embeddings(mut self, model: Arc<dyn Embeddings>, fields: &[&str]) -> Self {
        match store::Embedder::at(model, fields) {
            Ok(embedder) => self.embedder = Some(embedder),
            Err(reason) => self.problems.push(format!("embeddings: {reason}")),
        }
        self
    }

    /// Logs this line when the server starts, for example which model the graphs use.
    pub fn notice(mut self, line: impl Into<String>) -> Self {
        self.notices.push(line.into());
        self
    }

    /// The chat model that this process's settings name: a server that speaks OpenAI's protocol at
    /// `OPENAI_BASE_URL`, or OpenAI's own with `OPENAI_API_KEY`, and its model `OPENAI_MODEL`.
    /// `None` when neither variable, flag nor line of `backstitch.toml` is set, or when the settings
    /// cannot be read, which [`run`](Server::run) reports.
    ///
    /// # Errors
    /// As [`Client::new`](openai::Client::new).
    #[cfg(feature = "openai")]
    pub fn model_of_settings() -> Option<Result<openai::Client, crate::llm::Error>> {
        let settings = cli::settings_of(std::env::args_os())?;
        let (key, base) = (settings.openai_api_key, settings.openai_base_url);
        if key.is_none() && base.is_none() {
            return None;
        }
        Some(openai::Client::new(
            base.as_deref().unwrap_or(openai::DEFAULT_BASE),
            key.as_ref().map_or("", |key| key.reveal()),
            settings
                .openai_model
                .as_deref()
                .unwrap_or(openai::DEFAULT_MODEL),
        ))
    }

    /// Runs the subcommand of the command line, by default: serves until SIGTERM or SIGINT, then
    /// drains. The first line on stdout is `listening on http://HOST:PORT`.
    pub async fn run(mut self) -> ExitCode {
        let program = std::mem::take(&mut self.program);
        let serve = async move |settings: Settings, serving: Serving| {
            Box::pin(serve::serve(self.checked()?, settings, serving)).await
        };
        cli::run(program, serve, storages::migrate).await
    }

    /// Reports all problems, or logs the notices.
    fn checked(self) -> anyhow::Result<Checked> {
        if !self.problems.is_empty() {
            anyhow::bail!("{}", self.problems.join("\n"));
        }
        for notice in &self.notices {
            tracing::info!("{notice}");
        }
        Ok(Checked {
            graphs: self.graphs,
            factories: self.factories,
            author: Author {
                shared: self.shared,
                defaults: self.defaults,
                embedder: self.embedder,
            },
            own: self.own,
            hooks: self.hooks,
        })
    }
}
