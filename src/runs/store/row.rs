//! What the row of a run says: to clients, and of its webhook, its trace and its failure.

use super::{Run, Status};
use crate::value::{Map, Value};

/// The field of a stored request that names its trace.
const TRACEPARENT: &str = "traceparent";

impl Run {
    /// The run in the form clients see.
    pub fn to_map(&self) -> Map {
        let mut map = Map::with_capacity(9);
        map.insert("run_id", self.id.to_string());
        map.insert("thread_id", self.thread.to_string());
        map.insert("assistant_id", self.assistant.to_string());
        map.insert("metadata", Value::map(self.metadata.clone()));
        map.insert("status", self.status.as_str());
        map.insert("kwargs", self.shown_kwargs());
        map.insert("multitask_strategy", self.strategy.as_str());
        // A delayed run counts as created when it may start.
        let created = self.created_at.max(self.run_at);
        map.insert("created_at", created.to_string());
        map.insert("updated_at", self.updated_at.max(created).to_string());
        map
    }

    /// What of its request clients see: all but the trace it is in.
    fn shown_kwargs(&self) -> Value {
        let mut kwargs = self.kwargs.clone();
        if kwargs.get(TRACEPARENT).is_some()
            && let Some(map) = kwargs.make_map_mut()
        {
            map.remove(TRACEPARENT);
        }
        kwargs
    }

    /// The span of the request that created it, as a `traceparent` header.
    pub fn traceparent(&self) -> Option<&str> {
        self.kwargs.get(TRACEPARENT)?.as_str()
    }

    /// The id of the request that created it, for the log.
    pub fn request_id(&self) -> &str {
        let config = self.kwargs.get("config");
        let configurable = config.and_then(|config| config.get("configurable"));
        let id = configurable.and_then(|map| map.get("langgraph_request_id"));
        id.and_then(Value::as_str).unwrap_or("unknown")
    }

    /// Whether its end is reported to a webhook.
    pub fn has_webhook(&self) -> bool {
        let webhook = self.kwargs.get("webhook");
        webhook.is_some_and(|webhook| !webhook.is_null())
    }

    /// `{"error", "message"}` if it failed. The row of a cancelled run has the reason of that, which
    /// is no failure.
    pub fn failure(&self) -> Option<&Value> {
        let error = self.error.as_ref();
        error.filter(|_| self.status != Status::Interrupted)
    }
}
