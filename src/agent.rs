//! The prebuilt agent: a model that calls tools in a loop, as a graph like any other.
//!
//! ```
//! use backstitch::prelude::*;
//!
//! /// Looks up the weather in a city.
//! #[tool]
//! async fn weather(city: String) -> String {
//!     format!("21 °C and clear in {city}")
//! }
//!
//! let model = ScriptedModel::replying([
//!     Message::ai("Let me look.").calling("weather", json!({"city": "Oslo"})),
//!     Message::ai("It is pleasant in Oslo."),
//! ]);
//! let graph = agent(model)
//!     .tools([weather()])
//!     .prompt("Be brief.")
//!     .approve(["weather"])
//!     .build()?;
//! assert_eq!(graph.drawing(0).nodes, [START, "model", "tools", "approval", END]);
//! # Ok::<_, backstitch::graph::Invalid>(())
//! ```
//!
//! The graph has the nodes `model` and `tools`, `approval` and `summary` if they are set up, `limit` if a limit of tools
//! fails the run, and the author's hooks.
//! It behaves as the agent of LangChain (`create_agent`) does: the interrupts of approvals have the form that front
//! ends know, and the state has the channels of the same names.

use std::sync::Arc;

use crate::{
    graph::{Graph, Names, NodeOpts},
    llm::{CallOptions, ChatModel, Tool},
    state::State,
};

mod approval;
mod assemble;
mod build;
mod hand_off;
mod hooks;
mod limits;
mod memory;
mod model;
mod progress;
mod response;
mod summary;
mod tools;

pub use approval::{Decision, Review};
pub use hand_off::hand_off;
pub use hooks::Next;
pub use limits::Limit;
pub use memory::Memory;
pub use model::Prompt;
pub use progress::{AgentState, Jump};
pub use summary::Summary;

/// How often in a row a model is shown what was wrong with its reply.
const CORRECTIONS: usize = 3;

/// An agent over [`AgentState`]: a conversation and nothing else. [`Agent::new`] is for states with further fields.
pub fn agent(model: impl ChatModel) -> Agent<AgentState> {
    Agent::new(model)
}

/// An agent under construction; [`build`](Self::build) makes a graph of it. See the [module](self).
#[must_use = "an agent does nothing until it is built"]
pub struct Agent<S> {
    graph: Graph<S>,
    model: Arc<dyn ChatModel>,
    options: CallOptions,
    prompt: Option<Prompt>,
    tools: Vec<Arc<Tool>>,
    around: Vec<Arc<hooks::Around>>,
    tool_errors: bool,
    reviews: Vec<(Arc<str>, Review)>,
    response: Option<response::Response>,
    corrections: usize,
    model_calls: Option<Limit>,
    tool_calls: Vec<(Option<Arc<str>>, Limit)>,
    last_messages: Option<usize>,
    summary: Option<Summary>,
    name: Option<Arc<str>>,
    before_agent: Vec<Arc<str>>,
    before_model: Vec<Arc<str>>,
    after_model: Vec<Arc<str>>,
    after_agent: Vec<Arc<str>>,
    model_opts: NodeOpts,
    tool_opts: NodeOpts,
    stops: (Names, Names),
}

impl<S: State> Agent<S> {
    /// An agent whose state has the channels of `S` besides the conversation in `messages`.
    pub fn new(model: impl ChatModel) -> Self {
        Self {
            graph: Graph::new().extend::<AgentState>(),
            model: Arc::new(model),
            options: CallOptions::new(),
            prompt: None,
            tools: Vec::new(),
            around: Vec::new(),
            tool_errors: true,
            reviews: Vec::new(),
            response: None,
            corrections: CORRECTIONS,
            model_calls: None,
            tool_calls: Vec::new(),
            last_messages: None,
            summary: None,
            name: None,
            before_agent: Vec::new(),
            before_model: Vec::new(),
            after_model: Vec::new(),
            after_agent: Vec::new(),
            model_opts: NodeOpts::new(),
            tool_opts: NodeOpts::new(),
            stops: (Names::None, Names::None),
        }
    }
}
