//! Backstitch: a durable runtime for agent graphs.
//!
//! A graph author registers nodes; clients start runs over LangGraph's Agent Server protocol;
//! every superstep is checkpointed with a link to its parent, so that any conversation can be
//! resumed, rewound, branched and forked.
//!
//! A graph is a state and plain async functions over it; a server is graphs with names:
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
//! /// Nodes ask by type for what they need; this one streams the model's words to clients.
//! async fn agent(
//!     chat: Chat,
//!     model: Dep<dyn ChatModel>,
//!     tools: Dep<Vec<Arc<Tool>>>,
//!     ctx: Ctx,
//! ) -> Result<Update<Chat>> {
//!     let reply = ctx.stream(model.stream(&chat.messages, &tools)).await?;
//!     Ok(Chat::update().messages(reply))
//! }
//!
//! /// The run stops here, for days if need be, and goes on with the answer.
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
//! clients people have: `POST /threads`, `POST /threads/{id}/runs/stream` and all the others.

extern crate self as backstitch;

pub mod channel;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod engine;
pub mod error;
pub mod extract;
pub mod failpoint;
pub mod graph;
pub mod http;
pub mod id;
pub mod llm;
pub mod local;
pub mod message;
pub mod prelude;
pub mod runs;
pub mod server;
pub mod state;
pub mod storage;
pub mod store;
pub mod stream;
pub mod telemetry;
pub mod time;
pub mod tree;
pub mod value;

pub use local::Local;
pub use server::Server;

/// Named by the code the derive makes.
#[doc(hidden)]
pub use anyhow;

/// What nodes return: any error will do.
pub type Result<T, E = anyhow::Error> = std::result::Result<T, E>;
