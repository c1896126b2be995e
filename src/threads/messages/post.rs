//! Storing messages, with the run that answers them if one is requested.

use std::sync::Arc;

use crate::{
    assistants::Registered,
    graph::START,
    id::{CheckpointId, RunId, ThreadId},
    runs::{Created, PreparedRun, Registration, refusal, request},
    threads::{Result, Service},
    tree::{
        self,
        fork::{self, Lineage},
        messages::{
            Post,
            content::MessageContents,
            item::{self, MessageItem, PageEntry},
            path::MessagePath,
            post::{Posted, post},
        },
        resolve,
        store::rows::ThreadRow,
    },
};

/// Messages to store, and perhaps a run that answers them.
#[derive(Clone, Debug)]
pub struct NewPost {
    /// The messages.
    pub post: Post,
    /// A run without input on the branch that has them. One with an id that is there already was created by an
    /// earlier attempt of the request.
    pub run: Option<request::Run>,
    /// The thread they fork, if their own does not exist yet.
    pub lineage: Option<Lineage>,
    /// The principal of the request.
    pub by: Arc<str>,
}

/// Messages that were stored.
#[derive(Clone, Debug)]
pub struct StoredPost {
    /// Name of the branch that has them.
    pub branch: Arc<str>,
    /// The branch was created for them.
    pub created: bool,
    /// They were not there before.
    pub fresh: bool,
    /// The checkpoint that ends with them.
    pub checkpoint: Option<CheckpointId>,
    /// Number of the last event that was written; of the thread's last one if none was.
    pub event_number: i64,
    /// The run that answers them.
    pub run: Option<RunId>,
    /// The messages, in the order of the request.
    pub messages: Vec<MessageItem>,
    /// The conversation before them ended in tool calls without results.
    pub dangling: bool,
}

impl Service {
    /// Stores messages without running anything, and creates the requested run with them.
    ///
    /// # Errors
    /// 400 `invalid_id`, 404, 409 `head_conflict`, `branch_busy`, `message_exists` or
    /// `no_messages_channel`; what the run or the graph refuses; the storage failed.
    pub async fn post_messages(&self, id: ThreadId, new: NewPost) -> Result<StoredPost> {
        let Some(request) = &new.run else {
            return Ok(self.store_post(id, &new, None, None).await?.0);
        };
        let before = match request.id {
            Some(run) => self.earlier_run(id, run).await?,
            None => None,
        };
        if let Some((run, graph)) = before {
            let (stored, _) = self.store_post(id, &new, None, graph).await?;
            return Ok(StoredPost {
                run: Some(run),
                ..stored
            });
        }
        let mut request = request.clone();
        let prepared = self.runs.prepare(id, &mut request).await?;
        let (mut stored, created) = self.store_post(id, &new, Some(prepared), None).await?;
        if let Some((created, registration)) = created {
            stored.run = Some(registration.run());
            self.runs.launch(&request, registration, created).await?;
        }
        Ok(stored)
    }

    /// A run that an earlier attempt of the request created, and its graph.
    async fn earlier_run(
        &self,
        thread: ThreadId,
        run: RunId,
    ) -> Result<Option<(RunId, Option<Arc<Registered>>)>> {
        let found = self.shared.of_request(thread, run, |row, _| {
            (row.id, self.shared.graph_of(&row.metadata))
        });
        Ok(found.await?)
    }

    async fn store_post(
        &self,
        id: ThreadId,
        request: &NewPost,
        run: Option<PreparedRun>,
        graph: Option<Arc<Registered>>,
    ) -> Result<(StoredPost, Option<(Created, Registration)>)> {
        let new = &request.post;
        let lineage = request.lineage.as_ref();
        let mut reader = self.shared.parts.tree.reader().await?;
        let tree = fork::tree_of(&mut *reader, id, lineage, &self.access).await?;
        drop(reader);
        // Before anything is locked, since it may take time.
        let row = match new.as_node {
            Some(_) => self.shared.parts.tree.thread(id).await?,
            None => None,
        };
        let made = match row {
            Some(row) => self.shared.graph_of_thread(id, &row.metadata, None).await?,
            None => None,
        };
        let memory = self.change_memory();
        let _lock = self.shared.turn(tree).await?;
        let mut tx = self.shared.parts.runs.begin(tree).await?;
        let found = fork::find_or_create(&mut *tx, id, lineage, &self.access, &request.by);
        let (thread, forked) = found.await?;
        if thread.tree != tree {
            // Another request created it meanwhile, in a tree that is not locked.
            return Err(fork::already_exists(id).into());
        }
        if let Some((branch, base)) = forked {
            self.shared
                .trim_branch(&mut *tx, &thread, branch, &base, &memory)
                .await?;
        }
        let graph = run
            .as_ref()
            .map(|prepared| &prepared.registered)
            .or(graph.as_ref())
            .map(|registered| registered.graph.clone())
            .or(made.map(|registered| registered.graph.clone()));
        let target = self.shared.message_graph(&thread, graph)?;
        if let Some(node) = &new.as_node
            && &**node != START
            && !(target.assigned && target.graph.node(node).is_some())
        {
            return Err(tree::Error::invalid(format!("Node {node} does not exist")).into());
        }
        let channel = target.channel.clone();
        let values = self.shared.conversation_in(&thread, channel, Some(&memory));
        let posted = post(&mut *tx, &values, &target.target(), &thread, new).await?;
        let mut created = None;
        if let Some(mut prepared) = run.filter(|_| posted.fresh) {
            prepared.new.branch = Some(posted.branch.id);
            let outcome = tx.create_run(prepared.new).await?;
            if let Some(error) = refusal(prepared.registration.run(), &outcome) {
                return Err(error.into());
            }
            created = Some((outcome, prepared.registration));
        }
        let messages = items(&mut *tx, &values, &thread, &posted).await?;
        let row = resolve::thread(&mut *tx, id).await?;
        tx.commit().await?;
        if let Some(state) = posted.state {
            self.shared.cache.insert(tree, state);
        }
        // Runs that float may have found a free slot.
        self.runs.wake_thread(id);
        self.shared.notifier.notify(id);
        let stored = StoredPost {
            branch: posted.branch.name,
            created: posted.created,
            fresh: posted.fresh,
            checkpoint: posted.checkpoint,
            event_number: row.last_event_number,
            run: None,
            messages,
            dangling: posted.dangling,
        };
        Ok((stored, created))
    }
}

/// Stored messages as the path of their branch shows them.
async fn items(
    tx: &mut dyn tree::Tx,
    values: &MessageContents<'_>,
    thread: &ThreadRow,
    posted: &Posted,
) -> Result<Vec<MessageItem>> {
    let head = match &posted.state {
        Some(state) => Some(state.checkpoint.id),
        None => posted.branch.head,
    };
    let point = match head {
        Some(head) => tx.point(thread.tree, head).await?,
        None => None,
    };
    let state = match (&posted.state, head) {
        (Some(state), _) => values.of_state(state),
        (None, Some(head)) => values.messages(head).await?.unwrap_or_default(),
        (None, None) => Default::default(),
    };
    let path = MessagePath {
        point,
        last: posted.nodes.last().cloned(),
        ..MessagePath::default()
    };
    let entries = posted
        .nodes
        .iter()
        .cloned()
        .map(PageEntry::OnPath)
        .collect();
    Ok(item::items(tx, values, thread, &path, &state, entries).await?)
}
