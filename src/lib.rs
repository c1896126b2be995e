//! Backstitch: a durable runtime for agent graphs.
//!
//! A graph author registers nodes; clients start runs over LangGraph's Agent Server protocol;
//! every superstep is checkpointed with a link to its parent, so that any conversation can be
//! resumed, rewound, branched and forked.
//!
//! The guide in the folder `docs` of the repository leads from the quick start to deployment. Here is a
//! whole server: an agent whose tool waits for a person.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use backstitch::{Server, prelude::*};
//!
//! /// Books a table.
//! #[tool]
//! async fn book(restaurant: String, guests: u32, ctx: Ctx) -> Result<String> {
//!     ctx.emit(json!({"booking": restaurant}));
//!     Ok(format!("A table for {guests} at {restaurant} is booked."))
//! }
//!
//! #[tokio::main]
//! async fn main() -> ExitCode {
//!     let call = json!({"restaurant": "Noma", "guests": 2});
//!     let model = ScriptedModel::replying([
//!         Message::ai("I will book it.").calling("book", call),
//!         Message::ai("Your table is booked."),
//!     ]);
//!     let graph = agent(model).tools([book()]).approve(["book"]).build();
//!     Server::new().graph("agent", graph).run().await
//! }
//! ```
//!
//! The server listens on port 2024, keeps everything in a file beside it, and answers the
//! requests of LangGraph's clients: `POST /threads`, `POST /threads/{id}/runs/stream` and the others.
//!
//! - [`prelude`] has what most graphs need; [`agent`] makes the graph of an agent.
//! - [`Graph`](graph::Graph) connects nodes of your own, [`State`](state::State) says how their updates are
//!   merged, and [`Ctx`](extract::Ctx) is what a node can do while it runs.
//! - [`Server`] serves graphs over HTTP, alone or inside a program of yours.
//! - [`Local`] runs them without a server, for example in a test, and [`NodeRun`] a node without a graph.
//!
//! A graph of your own, and a run of it:
//!
//! ```
//! use backstitch::{Local, prelude::*};
//!
//! /// Each field is a channel; its attribute says how updates are merged.
//! #[derive(State)]
//! struct Post {
//!     topic: String,
//!     #[state(append)]
//!     notes: Vec<String>,
//!     body: Option<String>,
//! }
//!
//! /// The types of its parameters say what a node needs.
//! async fn research(post: Post) -> Update<Post> {
//!     Post::update().notes(format!("{} is worth a post.", post.topic))
//! }
//!
//! /// The run stops here, for days if need be, until somebody resumes it with a value.
//! async fn publish(post: Post, ctx: Ctx) -> Update<Post> {
//!     let agreed: bool = ctx.interrupt("Publish it?").await;
//!     Post::update().body(agreed.then(|| post.notes.join(" ")))
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let graph = Graph::<Post>::new()
//!     .node("research", research)
//!     .node("publish", publish)
//!     .edge(START, "research")
//!     .edge("research", "publish")
//!     .build()?;
//! let thread = Local::memory()?.thread(&graph);
//! thread.invoke(Post::update().topic("Tea")).await?;
//! assert_eq!(thread.resume(true).await?["body"], "Tea is worth a post.");
//! # anyhow::Ok(())
//! # }).unwrap();
//! ```
//!
//! # Features
//!
//! Each leaves out what it names when it is off. The default is what the bundled server is made of.
//!
//! | feature | default | with it |
//! |---|---|---|
//! | `server` | yes | [`Server`], its command line, settings and log, webhooks and crons |
//! | `sqlite` | yes | the storage in a file: [`Local::memory`], [`Local::sqlite`], servers without `DATABASE_URL` |
//! | `postgres` | yes | the storage in a Postgres database: [`Local::postgres`], servers with `DATABASE_URL` |
//! | `openai` | yes | the client of chat models and embeddings that speak OpenAI's protocol |
//! | `models` | yes | chat models and embeddings of Anthropic, Google and Ollama besides |
//! | `allocator` | no | jemalloc as the allocator of the program, which gives memory back after a burst: for servers in production |
//! | `mcp` | no | tools of MCP servers |
//! | `otel` | no | traces for OpenTelemetry; turns on `server` |
//!
//! A program that only runs graphs by itself, with [`Local`], needs `default-features = false, features = ["sqlite"]`
//! and compiles 92 crates instead of 274.

// The rooms of threads and runs are the same in every build: without a server, or a storage, much of them has no
// caller. The default build reports what nothing uses.
#![cfg_attr(
    not(all(feature = "server", feature = "sqlite", feature = "postgres")),
    allow(dead_code, unused_imports, unused_macros)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate self as backstitch;

#[cfg(feature = "allocator")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

pub mod agent;
pub mod channel;
pub mod checkpoint;
pub mod extract;
pub mod graph;
pub mod llm;
pub mod message;
pub mod prelude;
pub mod run;
#[cfg(feature = "server")]
pub mod service;
pub mod state;
pub mod value;

mod abandon;
mod budget;
mod cache;
#[cfg(feature = "server")]
mod client;
mod contention;
mod hint;
mod metrics;
mod sorted;
#[cfg(any(feature = "server", feature = "openai", feature = "mcp"))]
mod tls;
mod trace;
mod words;

// The rooms behind the author's door. Tests that check them from inside turn on `internals`, so that
// the ordinary build reports what nothing uses.
#[cfg(not(feature = "internals"))]
mod assistants;
#[cfg(all(feature = "server", not(feature = "internals")))]
mod cli;
#[cfg(all(feature = "server", not(feature = "internals")))]
mod config;
#[cfg(not(feature = "internals"))]
mod crons;
#[cfg(not(feature = "internals"))]
mod engine;
#[cfg(not(feature = "internals"))]
mod error;
#[cfg(not(feature = "internals"))]
mod failpoint;
#[cfg(all(feature = "server", not(feature = "internals")))]
mod http;
#[cfg(not(feature = "internals"))]
mod id;
#[cfg(not(feature = "internals"))]
mod idempotency;
#[cfg(not(feature = "internals"))]
mod local;
#[cfg(not(feature = "internals"))]
mod runs;
#[cfg(all(feature = "server", not(feature = "internals")))]
mod server;
#[cfg(all(
    any(feature = "sqlite", feature = "postgres"),
    not(feature = "internals")
))]
mod storage;
#[cfg(not(feature = "internals"))]
mod store;
#[cfg(not(feature = "internals"))]
mod stream;
#[cfg(all(feature = "server", not(feature = "internals")))]
mod telemetry;
#[cfg(not(feature = "internals"))]
mod threads;
#[cfg(not(feature = "internals"))]
mod time;
#[cfg(not(feature = "internals"))]
mod tree;
#[cfg(not(feature = "internals"))]
mod webhooks;

#[cfg(feature = "internals")]
pub mod assistants;
#[cfg(feature = "internals")]
pub mod cli;
#[cfg(feature = "internals")]
pub mod config;
#[cfg(feature = "internals")]
pub mod crons;
#[cfg(feature = "internals")]
pub mod engine;
#[cfg(feature = "internals")]
pub mod error;
#[cfg(feature = "internals")]
pub mod failpoint;
#[cfg(feature = "internals")]
pub mod http;
#[cfg(feature = "internals")]
pub mod id;
#[cfg(feature = "internals")]
pub mod idempotency;
#[cfg(feature = "internals")]
pub mod local;
#[cfg(feature = "internals")]
pub mod runs;
#[cfg(feature = "internals")]
pub mod server;
#[cfg(feature = "internals")]
pub mod storage;
#[cfg(feature = "internals")]
pub mod store;
#[cfg(feature = "internals")]
pub mod stream;
#[cfg(feature = "internals")]
pub mod telemetry;
#[cfg(feature = "internals")]
pub mod threads;
#[cfg(feature = "internals")]
pub mod time;
#[cfg(feature = "internals")]
pub mod tree;
#[cfg(feature = "internals")]
pub mod webhooks;

pub use local::{Local, NodeRun, RunOptions, Thread};
#[cfg(feature = "server")]
pub use server::Server;

/// What tests use of the inside of open rooms.
#[cfg(feature = "internals")]
pub mod internals {
    pub use crate::checkpoint::{codec::encode, frame::references};
}

/// The Rust code of the guide, which is compiled and run with the examples of the library.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../docs/own-project.md")]
    mod own_project {}
    #[doc = include_str!("../docs/concepts.md")]
    mod concepts {}
    #[doc = include_str!("../docs/streaming.md")]
    mod streaming {}
    #[doc = include_str!("../docs/time-travel.md")]
    mod time_travel {}
    #[doc = include_str!("../docs/agents.md")]
    mod agents {}
    #[doc = include_str!("../docs/tools-and-models.md")]
    mod tools_and_models {}
    #[doc = include_str!("../docs/memory.md")]
    mod memory {}
    #[doc = include_str!("../docs/testing.md")]
    mod testing {}
    #[doc = include_str!("../docs/from-langgraph.md")]
    mod from_langgraph {}
}

/// Named by the code that the macros make.
#[doc(hidden)]
pub use anyhow;
#[doc(hidden)]
pub use schemars;
#[doc(hidden)]
pub use serde;

/// What nodes return: any error will do.
pub type Result<T, E = anyhow::Error> = std::result::Result<T, E>;
