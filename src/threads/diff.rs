//! The difference between two states of a thread.

use std::sync::Arc;

use super::{Result, Service};
use crate::{
    checkpoint::frame::Decoded,
    engine::snapshot::snapshot,
    id::{CheckpointId, ThreadId},
    tree::{
        Address, Base, Read,
        diff::{ChannelDiff, diff_channels, diff_lists},
        messages::{
            content::{MessageContents, MessageList, id_of},
            item::{self, MessageItem},
            path::MessagePath,
        },
        read::{graphless, head::displayed_values},
        resolve,
        store::rows::{Point, ThreadRow},
    },
    value::{Map, Value},
};

/// The difference between two states.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Checkpoint of the first; `None` before the first checkpoint.
    pub from: Option<CheckpointId>,
    /// Checkpoint of the second.
    pub to: Option<CheckpointId>,
    /// Channels, those of messages without their values.
    pub channels: ChannelDiff,
    /// Messages that only the first has.
    pub removed: Vec<MessageItem>,
    /// Messages that only the second has.
    pub added: Vec<MessageItem>,
    /// Messages that both have, as the first has them and as the second has them.
    pub changed: Vec<(MessageItem, MessageItem)>,
}

/// One of the two states.
struct Side {
    point: Option<Point>,
    values: Map,
    messages: Vec<Value>,
    state: MessageList,
    /// The checkpoint that it was read from, or is based on.
    base: Option<(CheckpointId, Arc<Decoded>)>,
}

impl Service {
    /// Compares two states of a thread.
    ///
    /// # Errors
    /// 404: no such thread or state. 409 `not_checkpointed`, `checkpoint_pruned`. Stored values
    /// that do not fit the graph, or the storage failed.
    pub async fn compare(&self, id: ThreadId, from: &Address, to: &Address) -> Result<Difference> {
        let (mut reader, thread) = self.reader(id).await?;
        let read = &mut *reader;
        let first = self.side(read, &thread, from, None).await?;
        let second = self.side(read, &thread, to, first.base.as_ref()).await?;
        let values = self.conversation(&thread);
        let channels = diff_channels(&first.values, &second.values, &[&*values.channel]);
        let found = diff_lists(&first.messages, &second.messages, id_of);
        let own = |list: Vec<&Value>| list.into_iter().cloned().collect::<Vec<_>>();
        let (before, after): (Vec<&Value>, Vec<&Value>) = found.changed.into_iter().unzip();
        let (before, after) = (own(before), own(after));
        let removed = items(read, &values, &thread, &first, &own(found.removed)).await?;
        let added = items(read, &values, &thread, &second, &own(found.added)).await?;
        let before = items(read, &values, &thread, &first, &before).await?;
        let after = items(read, &values, &thread, &second, &after).await?;
        Ok(Difference {
            from: first.point.map(|point| point.id),
            to: second.point.map(|point| point.id),
            channels,
            removed,
            added,
            changed: before.into_iter().zip(after).collect(),
        })
    }

    /// One of the two states; the checkpoint of the other one is not read and decoded twice.
    async fn side(
        &self,
        read: &mut dyn Read,
        thread: &ThreadRow,
        address: &Address,
        other: Option<&(CheckpointId, Arc<Decoded>)>,
    ) -> Result<Side> {
        let base = resolve::resolve(read, thread, address).await?.base;
        let conversation = self.conversation(thread);
        let decoded = match (base.id(), other) {
            (Some(id), Some((known, decoded))) if id == *known => Some((id, decoded.clone())),
            (Some(id), _) => conversation.decoded(id).await?.map(|decoded| (id, decoded)),
            (None, _) => None,
        };
        let Some((id, decoded)) = decoded else {
            return Ok(Side {
                point: None,
                values: Map::new(),
                messages: vec![],
                state: MessageList::default(),
                base: None,
            });
        };
        let state = conversation.of_state(&decoded);
        let mut messages = state.all().to_vec();
        let mut values = self.channels_of(thread, &decoded)?;
        if let Base::Trim { drop, .. } = &base {
            // The state that a branch would begin with there.
            messages.retain(|one| id_of(one).is_none_or(|id| drop.iter().all(|out| **out != *id)));
            values.insert(conversation.channel.clone(), Value::list(messages.clone()));
        }
        Ok(Side {
            point: base.point().cloned(),
            values,
            messages,
            state,
            base: Some((id, decoded)),
        })
    }

    /// Channels as the thread's graph shows them; without a graph, all that a client named.
    fn channels_of(&self, thread: &ThreadRow, decoded: &Decoded) -> Result<Map> {
        if let Some(registered) = self.shared.graph_of(&thread.metadata) {
            let state = snapshot(&registered.topology, &"".into(), decoded, false)?;
            let shown = displayed_values(&registered.graph, &state.values);
            return Ok(shown.as_map().cloned().unwrap_or_default());
        }
        Ok(graphless::values(decoded))
    }
}

/// Messages of a side as a page of its path shows them.
async fn items(
    read: &mut dyn Read,
    values: &MessageContents<'_>,
    thread: &ThreadRow,
    side: &Side,
    messages: &[Value],
) -> Result<Vec<MessageItem>> {
    let path = MessagePath {
        point: side.point.clone(),
        ..MessagePath::default()
    };
    let entries = item::in_state(read, thread, &path, messages).await?;
    Ok(item::items(read, values, thread, &path, &side.state, entries).await?)
}
