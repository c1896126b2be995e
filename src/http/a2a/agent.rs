//! Agents: the assistants that a client sees.

use std::sync::Arc;

use hyper::StatusCode;

use crate::{
    assistants::Registered,
    http::{
        json_rpc::Failure,
        parse::ids,
        server::{Call, Error},
    },
    id::AssistantId,
    value::Value,
};

/// An assistant that the client sees.
#[derive(Clone)]
pub struct Agent {
    pub id: AssistantId,
    pub name: String,
    pub description: Option<String>,
    pub registered: Arc<Registered>,
}

impl Agent {
    /// The one of the path.
    pub async fn of(call: &Call) -> Result<Self, Failure> {
        let id = call.path.assistant().map_err(Failure::from)?;
        Self::find(call, id).await
    }

    /// The one with the id in this text.
    pub async fn named(call: &Call, text: &str) -> Result<Self, Failure> {
        let id = ids::hyphenated(text);
        let id = id.ok_or_else(|| Failure::params("Invalid assistant ID: must be a UUID"))?;
        Self::find(call, id).await
    }

    async fn find(call: &Call, id: AssistantId) -> Result<Self, Failure> {
        let missing = || Failure::params(format!("Assistant '{id}' not found"));
        let assistants = call.assistants();
        let found = assistants.get(call.viewer(), id).await.map_err(Error::from);
        let found = found.map_err(|error| match error.status {
            StatusCode::NOT_FOUND => missing(),
            _ => error.into(),
        })?;
        let text = |name: &str| found.get(name).and_then(Value::as_str).map(str::to_owned);
        let graph = text("graph_id").and_then(|graph| assistants.named(&graph));
        Ok(Self {
            id,
            name: text("name").unwrap_or_default(),
            description: text("description"),
            registered: graph.ok_or_else(missing)?,
        })
    }

    /// The channel of its graph that takes messages.
    pub fn messages(&self) -> Option<&Arc<str>> {
        let graph = &self.registered.graph;
        let channel = graph.message_channel();
        channel.filter(|channel| graph.input.contains(channel))
    }
}
