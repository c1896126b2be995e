//! Everything a graph author needs, in one import.
//!
//! ```
//! use backstitch::prelude::*;
//! ```

pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};
pub use serde_json::json;

/// Models by name, and the model at an OpenAI-compatible server.
#[cfg(feature = "openai")]
pub use crate::llm::{model, openai};
pub use crate::{
    Result,
    agent::agent,
    error::Raised,
    extract::{Arg, Config, Ctx, Dep, Failure, View},
    graph::{Cache, Compiled, END, Graph, Invalid, Names, NodeOpts, Persist, Retry, START},
    llm::{ChatModel, ScriptedModel, Tool, ToolOutput, tool, tool_node},
    message::{AiChunk, Message, Role, ToolCall},
    state::{Command, State, Target, Update, goto},
    value::Value,
};
// The derive and the trait share their name.
pub use backstitch_derive::{State, data, node, tool};
