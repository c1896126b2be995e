//! Duplicates of messages: a repeated request has the response and the run of the first one.

use std::sync::Arc;

use super::{NewMessage, QueuedMessage};
use crate::{
    id::RunId,
    runs::{request::Kwargs, shared::memory::ChangeMemory},
    threads::{Result, Service},
    tree::{
        Tx, event,
        load::StateMemory,
        messages::{
            content::{MessageContents, id_of},
            post::id_exists,
            send::has_open_tool_calls,
        },
        resolve,
        store::rows::{MessageChange, ThreadRow},
    },
    value::Value,
};

/// A message that is there already, and the run that answers it.
struct Duplicate {
    run: RunId,
    /// Number of its event.
    number: i64,
    content: Option<Value>,
}

impl Service {
    /// The message of this id that was queued by an earlier request; none if it is new.
    ///
    /// # Errors
    /// 409 `message_exists`: its content differs, or it was not queued. Or the storage failed.
    pub(super) async fn find_duplicate(
        &self,
        tx: &mut dyn Tx,
        thread: &ThreadRow,
        (values, memory): (&MessageContents<'_>, &ChangeMemory),
        new: &NewMessage,
    ) -> Result<Option<QueuedMessage>> {
        let Some(id) = &new.to.id else {
            return Ok(None);
        };
        let pending = self.find_pending(tx, thread, id, memory).await?;
        let found = match pending {
            Some(found) => found,
            None => match find_stored(tx, thread, values, id).await? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        if found.content.as_ref() != Some(&new.content) {
            return Err(id_exists(id).into());
        }
        let after = found.number - 1;
        let events = tx.events(thread.tree, thread.id, after, 1).await?;
        let branch = match events.first().and_then(|event| event.branch) {
            Some(branch) => tx.branch(thread.tree, branch).await?,
            None => None,
        };
        let branch = match branch {
            Some(branch) => branch,
            None => resolve::active(tx, thread).await?,
        };
        Ok(Some(QueuedMessage {
            event: event::id(thread.id, found.number),
            event_number: found.number,
            message: id.clone(),
            run: found.run,
            dangling: has_open_tool_calls(values, &branch).await?,
            branch: branch.name,
        }))
    }

    /// A message whose run is pending or running: it may be in no state yet.
    async fn find_pending(
        &self,
        tx: &mut dyn Tx,
        thread: &ThreadRow,
        id: &Arc<str>,
        memory: &ChangeMemory,
    ) -> Result<Option<Duplicate>> {
        let runs = &self.shared.parts.runs;
        for open in tx.open_runs(thread.tree, thread.id).await? {
            // It does not wait for memory, since it has a connection.
            let weight = runs.run_weight(thread.id, open.id).await?;
            memory.take(weight.unwrap_or(0))?;
            let row = runs.run(thread.id, open.id).await?;
            let Some(kwargs) = row.and_then(|row| Kwargs::from_value(&row.kwargs).ok()) else {
                continue;
            };
            let announced = kwargs.announced.as_ref();
            let number = announced.and_then(|all| all.get(id)?.as_i64());
            let Some(number) = number else { continue };
            let channels = kwargs.input.as_ref().and_then(Value::as_map);
            let messages = channels
                .into_iter()
                .flat_map(|map| map.iter())
                .flat_map(|(_, value)| value.as_list().unwrap_or_default());
            let mut matching = messages.filter(|message| id_of(message) == Some(id));
            return Ok(Some(Duplicate {
                run: open.id,
                number,
                content: matching.next().and_then(|one| one.get("content").cloned()),
            }));
        }
        Ok(None)
    }
}

/// A message that was queued and is in the thread's states.
async fn find_stored(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    values: &MessageContents<'_>,
    id: &Arc<str>,
) -> Result<Option<Duplicate>> {
    for node in tx.nodes_of(thread.tree, vec![id.clone()]).await? {
        if node.change != MessageChange::Add || node.thread != thread.id {
            continue;
        }
        let (Some(run), Some(number)) = (node.run, node.event_number) else {
            continue;
        };
        // The event of a queued message comes right before that of its run.
        let next = tx.events(thread.tree, thread.id, number, 1).await?;
        let enqueued = next.first().filter(|event| {
            let of = event.payload.get("run_id").and_then(Value::as_str);
            &*event.kind == event::RUN_ENQUEUED && of == Some(&run.to_string())
        });
        if enqueued.is_none() {
            continue;
        }
        let messages = values.messages(node.checkpoint).await?;
        let message = messages.as_ref().and_then(|messages| messages.find(id));
        return Ok(Some(Duplicate {
            run,
            number,
            content: message.and_then(|message| message.get("content").cloned()),
        }));
    }
    Ok(None)
}
