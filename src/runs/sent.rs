//! Messages that were sent before: a request that comes again has one answer and one run.

use std::sync::Arc;

use super::{
    Error, Service,
    messages::{NewMessage, Sent},
    request::Kwargs,
};
use crate::{
    id::RunId,
    tree::{
        Tx, event,
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

/// A message and the run it was sent with.
struct Before {
    run: RunId,
    /// Of the event that told of it.
    number: i64,
    content: Option<Value>,
}

impl Service {
    /// The answer that a message of this id had when it was sent; none if it is new.
    ///
    /// # Errors
    /// 409 `message_exists`: it said something else, or was not sent. Or the storage failed.
    pub(super) async fn sent_before(
        &self,
        tx: &mut dyn Tx,
        thread: &ThreadRow,
        values: &MessageContents<'_>,
        new: &NewMessage,
    ) -> Result<Option<Sent>, Error> {
        let Some(id) = &new.to.id else {
            return Ok(None);
        };
        let waiting = self.waiting(tx, thread, id).await?;
        let before = match waiting {
            Some(before) => before,
            None => match stored(tx, thread, values, id).await? {
                Some(before) => before,
                None => return Ok(None),
            },
        };
        if before.content.as_ref() != Some(&new.content) {
            return Err(id_exists(id).into());
        }
        let after = before.number - 1;
        let told = tx.events(thread.tree, thread.id, after, 1).await?;
        let branch = match told.first().and_then(|event| event.branch) {
            Some(branch) => tx.branch(thread.tree, branch).await?,
            None => None,
        };
        let branch = match branch {
            Some(branch) => branch,
            None => resolve::active(tx, thread).await?,
        };
        Ok(Some(Sent {
            event: event::id(thread.id, before.number),
            event_number: before.number,
            message: id.clone(),
            run: before.run,
            dangling: has_open_tool_calls(values, &branch).await?,
            branch: branch.name,
        }))
    }

    /// A message whose run waits or goes on: no state may hold it yet.
    async fn waiting(
        &self,
        tx: &mut dyn Tx,
        thread: &ThreadRow,
        id: &Arc<str>,
    ) -> Result<Option<Before>, Error> {
        for open in tx.open_runs(thread.tree, thread.id).await? {
            let row = self.inner.parts.runs.run(thread.id, open.id).await?;
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
            let mut sent = messages.filter(|message| id_of(message) == Some(id));
            return Ok(Some(Before {
                run: open.id,
                number,
                content: sent.next().and_then(|one| one.get("content").cloned()),
            }));
        }
        Ok(None)
    }
}

/// A message that was sent and is in the thread's states.
async fn stored(
    tx: &mut dyn Tx,
    thread: &ThreadRow,
    values: &MessageContents<'_>,
    id: &Arc<str>,
) -> Result<Option<Before>, Error> {
    for node in tx.nodes_of(thread.tree, vec![id.clone()]).await? {
        if node.change != MessageChange::Add || node.thread != thread.id {
            continue;
        }
        let (Some(run), Some(number)) = (node.run, node.event_number) else {
            continue;
        };
        // What was sent is told of right before its run.
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
        return Ok(Some(Before {
            run,
            number,
            content: message.and_then(|message| message.get("content").cloned()),
        }));
    }
    Ok(None)
}
