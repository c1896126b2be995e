//! Backstitch: a durable runtime for agent graphs.
//!
//! A graph author registers nodes; clients start runs over LangGraph's Agent Server protocol;
//! every superstep is checkpointed with a link to its parent, so that any conversation can be
//! resumed, rewound, branched and forked.
//!
//! A graph is a state and plain async functions over it; a server is graphs with names. The
//! [`prelude`] has what most graphs need. [`Graph`](graph::Graph) connects nodes,
//! [`State`](state::State) says how updates are merged, and [`Ctx`](extract::Ctx) is what a node can
//! do while it runs. [`Server`] serves graphs over HTTP; [`Local`] runs them without a server, for
//! example in a test:
//!
//! ```no_run
//! use std::{process::ExitCode, sync::Arc};
//!
//! use backstitch::{Server, prelude::*};
//!
//! /// Each field is a channel; its attribute says how updates are merged.
//! #[derive(State)]
//! struct Chat {
//!     #[state(messages)]
//!     messages: Vec<Message>,
//!     /// A human agreed to what is about to happen.
//!     agreed: Option<bool>,
//! }
//!
//! /// Looks up the weather in a city.
//! #[derive(Deserialize, JsonSchema)]
//! struct Weather {
//!     city: String,
//! }
//!
//! async fn weather(args: Weather, ctx: Ctx) -> Result<String> {
//!     ctx.emit(json!({"looking_up": args.city}));
//!     Ok(format!("21 °C and clear in {}", args.city))
//! }
//!
//! /// The types of its parameters say what a node needs. This one streams the model's reply.
//! async fn agent(
//!     chat: Chat,
//!     model: Dep<dyn ChatModel>,
//!     tools: Dep<Vec<Arc<Tool>>>,
//!     ctx: Ctx,
//! ) -> Result<Update<Chat>> {
//!     let reply = ctx.chat(&*model, &chat.messages, &tools).await?;
//!     Ok(Chat::update().messages(reply))
//! }
//!
//! /// The run stops here, for days if need be, until a client resumes it with a value.
//! async fn ask(ctx: Ctx) -> Result<Update<Chat>> {
//!     let agreed: bool = ctx.interrupt("Shall I use my tools?").await;
//!     Ok(Chat::update().agreed(agreed))
//! }
//!
//! fn after_agent(chat: &Chat) -> &'static str {
//!     match chat.messages.last() {
//!         Some(last) if !last.tool_calls().is_empty() => "ask",
//!         _ => END,
//!     }
//! }
//!
//! /// One task per tool call, all at once.
//! fn after_ask(chat: &Chat) -> Vec<Target> {
//!     let calls = chat.messages.last().map(Message::tool_calls).unwrap_or_default();
//!     match chat.agreed {
//!         Some(true) => calls.iter().map(|call| goto("tools").with(call)).collect(),
//!         _ => vec![goto(END)],
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> ExitCode {
//!     let model: Arc<dyn ChatModel> = Arc::new(ScriptedModel::replying([
//!         Message::ai("Let me look.").calling("weather", json!({"city": "Oslo"})),
//!         Message::ai("It is pleasant in Oslo."),
//!     ]));
//!     let tools = vec![tool("weather", weather)];
//!     let graph = Graph::<Chat>::new()
//!         .provide(model)
//!         .provide(Arc::new(tools.clone()))
//!         .node("agent", agent)
//!         .node("ask", ask)
//!         .node("tools", tool_node(tools))
//!         .edge(START, "agent")
//!         .route("agent", after_agent, ["ask", END])
//!         .route("ask", after_ask, ["tools", END])
//!         .edge("tools", "agent")
//!         .build();
//!     Server::new().graph("chat", graph).run().await
//! }
//! ```
//!
//! The server listens on port 2024, keeps everything in a file beside it, and answers the
//! requests of LangGraph's clients: `POST /threads`, `POST /threads/{id}/runs/stream` and the others.

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
pub mod service;
pub mod state;
pub mod value;

mod abandon;
mod budget;
mod cache;
mod client;
mod contention;
mod hint;
mod metrics;
mod tls;
mod trace;
mod words;

// The rooms behind the author's door. Tests that check them from inside turn on `internals`, so that
// the ordinary build reports what nothing uses.
#[cfg(not(feature = "internals"))]
mod assistants;
#[cfg(not(feature = "internals"))]
mod cli;
#[cfg(not(feature = "internals"))]
mod config;
#[cfg(not(feature = "internals"))]
mod crons;
#[cfg(not(feature = "internals"))]
mod engine;
#[cfg(not(feature = "internals"))]
mod error;
#[cfg(not(feature = "internals"))]
mod failpoint;
#[cfg(not(feature = "internals"))]
mod http;
#[cfg(not(feature = "internals"))]
mod id;
#[cfg(not(feature = "internals"))]
mod idempotency;
#[cfg(not(feature = "internals"))]
mod local;
#[cfg(not(feature = "internals"))]
mod runs;
#[cfg(not(feature = "internals"))]
mod server;
#[cfg(not(feature = "internals"))]
mod storage;
#[cfg(not(feature = "internals"))]
mod store;
#[cfg(not(feature = "internals"))]
mod stream;
#[cfg(not(feature = "internals"))]
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
pub use server::Server;

/// What tests use of the inside of open rooms.
#[cfg(feature = "internals")]
pub mod internals {
    pub use crate::checkpoint::{codec::encode, frame::references};
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
