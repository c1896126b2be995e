//! The messages of a thread: which channel of which graph holds them.

use std::sync::Arc;

use super::{Error, Shared, memory::ChangeMemory};
use crate::{
    graph::Compiled,
    tree::{
        self, Base, Tx,
        load::StateMemory,
        messages::{content::MessageContents, post, trim::trim_branch},
        read::graphless,
        store::rows::{Branch, ThreadRow},
    },
    value::Map,
};

/// The channel of messages of a graph that names none, and of threads without a graph.
const CHANNEL: &str = "messages";

/// The graph that messages of a thread are stored with.
pub struct MessageGraph {
    /// The graph, or one with nothing but a messages channel.
    pub graph: Arc<Compiled>,
    /// The thread has a graph.
    pub assigned: bool,
    /// The channel of messages.
    pub channel: Arc<str>,
}

impl MessageGraph {
    /// The graph as the target of a post.
    pub fn target(&self) -> post::TargetGraph<'_> {
        post::TargetGraph {
            graph: &self.graph,
            assigned: self.assigned,
        }
    }
}

impl Shared {
    /// The channel of the thread's messages in `graph`, else in the thread's own.
    ///
    /// # Errors
    /// 409 `no_messages_channel`: the graph has no channel for messages.
    pub(crate) fn message_graph(
        &self,
        thread: &ThreadRow,
        graph: Option<Arc<Compiled>>,
    ) -> Result<MessageGraph, Error> {
        let own = || Some(self.graph_of(&thread.metadata)?.graph.clone());
        let Some(graph) = graph.or_else(own) else {
            return Ok(MessageGraph {
                graph: graphless::graph().ok_or_else(no_channel)?,
                assigned: false,
                channel: CHANNEL.into(),
            });
        };
        let channel = graph.message_channel().cloned().ok_or_else(no_channel)?;
        Ok(MessageGraph {
            graph,
            assigned: true,
            channel,
        })
    }

    /// The channel that holds a thread's messages, by the thread's metadata.
    pub(crate) fn message_channel(&self, metadata: &Map) -> Arc<str> {
        let registered = self.graph_of(metadata);
        let channel = registered
            .as_ref()
            .and_then(|registered| registered.graph.message_channel());
        channel.cloned().unwrap_or_else(|| CHANNEL.into())
    }

    /// A reader of one channel of a thread's checkpoints, whose large states take `memory`; without it they
    /// take nothing.
    pub(crate) fn conversation_in<'a>(
        &'a self,
        thread: &ThreadRow,
        channel: Arc<str>,
        memory: Option<&'a dyn StateMemory>,
    ) -> MessageContents<'a> {
        MessageContents {
            saver: &self.parts.saver,
            cache: &self.cache,
            tree: thread.tree,
            thread: thread.id,
            channel,
            memory,
        }
    }

    /// Removes from the head of a branch that was just made the messages that its base has beyond
    /// the requested position; returns the branch as it is then. The state there takes `memory`.
    ///
    /// # Errors
    /// 409 `no_messages_channel` or `checkpoint_pruned`, a state that does not fit the graph, 503 without
    /// memory for it, or the storage failed.
    pub(crate) async fn trim_branch(
        &self,
        tx: &mut dyn Tx,
        thread: &ThreadRow,
        branch: Branch,
        base: &Base,
        memory: &ChangeMemory,
    ) -> Result<Branch, Error> {
        if !matches!(base, Base::Trim { .. }) {
            return Ok(branch);
        }
        let target = self.message_graph(thread, None)?;
        let values = self.conversation_in(thread, target.channel.clone(), Some(memory));
        Ok(trim_branch(tx, &values, &target.graph, branch, base).await?)
    }
}

/// 409: the graph of a thread has no messages.
pub(crate) fn no_channel() -> Error {
    tree::Error::conflict(
        "no_messages_channel",
        "The graph of the thread has no channel for messages: change its state with POST \
         /threads/{thread_id}/state",
    )
    .into()
}
