//! The ids of the messages that the input of a run has.

use std::sync::Arc;

use super::{Error, Service};
use crate::{
    engine::message_ids::input_of,
    graph::Compiled,
    id::ThreadId,
    message,
    runs::request,
    tree::{members::Level, messages::existing::ExistingMessages},
    value::Value,
};

impl Service {
    /// Refuses a run whose input has a message with an id that messages cannot have, or with one that is longer than
    /// those of new messages may be and that no message of the thread has. What is written in a run is not
    /// looked at again where it begins: it may have waited while the setting was lowered.
    pub(super) async fn check_message_ids(
        &self,
        thread: ThreadId,
        graph: &Compiled,
        request: &request::Run,
    ) -> Result<(), Error> {
        let update = request.command.as_ref();
        let update = update.and_then(|command| command.get("update"));
        for (field, written) in [
            ("input", request.input.as_ref()),
            ("command.update", update),
        ] {
            for channel in &graph.messages {
                let values = written.map_or(vec![], |written| values_of(graph, written, channel));
                let ids: Vec<&Arc<str>> = values.into_iter().flat_map(message::ids_in).collect();
                let long = ids.iter().filter(|id| message::is_too_long(id));
                let long: Vec<Arc<str>> = long.map(|id| Arc::clone(id)).collect();
                if ids.iter().any(|id| !message::is_id(id))
                    || !self.has_messages(thread, request, &long).await?
                {
                    let reason = message::Error::IdForm;
                    return Err(Error::Invalid(format!("{field}.{channel}: {reason}")));
                }
            }
        }
        Ok(())
    }

    /// Refuses a cron of whose runs none could be created, for the same reason. One without a thread makes new threads.
    ///
    /// # Errors
    /// 400 with the reason; no such assistant; or the storage failed.
    pub async fn check_cron(
        &self,
        thread: Option<ThreadId>,
        request: &request::Run,
    ) -> Result<(), Error> {
        let viewer = request.requester.access.principal();
        let assistants = &self.shared.assistants;
        let resolved = assistants.resolve(viewer, &request.assistant).await?;
        let thread = thread.unwrap_or_else(ThreadId::mint);
        self.check_message_ids(thread, &resolved.registered.graph, request)
            .await
    }

    /// Whether the thread has messages with these ids; for those who may not write to it, it has none.
    async fn has_messages(
        &self,
        thread: ThreadId,
        request: &request::Run,
        ids: &[Arc<str>],
    ) -> Result<bool, Error> {
        if ids.is_empty() {
            return Ok(true);
        }
        let tree = &self.shared.parts.tree;
        if let Some(principal) = request.requester.access.principal() {
            let level = tree.level_on_thread(thread, principal.clone()).await?;
            if level < Some(Level::Writer) {
                return Ok(false);
            }
        }
        let mut reader = tree.reader().await?;
        let row = reader.thread_row(thread).await?;
        match row.filter(|row| row.deleted_at.is_none()) {
            Some(row) => Ok(ExistingMessages::contains_all(&mut *reader, &row, ids).await?),
            None => Ok(false),
        }
    }
}

/// What is written to a channel by a map, or by a list of pairs.
fn values_of<'a>(graph: &Compiled, written: &'a Value, channel: &str) -> Vec<&'a Value> {
    match written {
        Value::List(pairs) if !graph.root_state => pairs
            .iter()
            .filter_map(|pair| match pair.as_list()? {
                [name, value] if name.as_str() == Some(channel) => Some(value),
                _ => None,
            })
            .collect(),
        other => input_of(graph, other, channel).into_iter().collect(),
    }
}
