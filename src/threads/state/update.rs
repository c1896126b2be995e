//! State edits: writing to a thread's state as if one of its nodes had.

use std::sync::Arc;

use tokio::{runtime::Handle, task::spawn_blocking};
use tracing::Span;

use super::json;
use crate::{
    checkpoint::{self, At, Query, Slot, buffered::BufferedSaver, frame::Decoded},
    engine::{
        self, StateUpdate, StateUpdater,
        update::{COPY, UpdateOutcome},
    },
    fail_point,
    id::{BranchId, CheckpointId, ThreadId},
    runs::{command_of, request::Address},
    threads::{
        Error, Result, Service,
        request::{self, Update},
    },
    tree::{
        self, Base, Indexer, Outcome, Thread, branch,
        load::{self, StateMemory},
        messages::post::branch_off,
        read, resolve,
        store::{ThreadRow, Tx, rows::Position},
    },
    value::{Map, Value},
};

/// How often an edit without an address is retried when others were faster. Of those that meet,
/// one is stored each time.
const TRIES: u32 = 64;

/// The state that an edit builds on, and the slot it writes to.
struct Target {
    /// The right to write.
    slot: Slot,
    start: Start,
}

/// A state to edit.
enum Start {
    /// The state at the head of the slot.
    Head,
    /// The state of a checkpoint.
    Checkpoint(CheckpointId),
    /// None: the edit begins a new conversation.
    Nothing,
    /// The state at a message whose checkpoint has later messages too.
    Trimmed,
}

/// An update as the engine takes it.
fn to_state_update(update: Update) -> Result<StateUpdate> {
    let command = update
        .command
        .filter(|command| *command != Value::map(Map::new()));
    Ok(StateUpdate {
        values: update.values,
        command: command.as_ref().map(command_of).transpose()?,
        as_node: update.as_node,
        task: None,
    })
}

impl Service {
    /// Edits the state of a thread: `{checkpoint, configurable, checkpoint_id}` of the new
    /// checkpoint. An edit of an older checkpoint opens a branch.
    ///
    /// # Errors
    /// No such thread or checkpoint; the thread has no graph yet, or a run of the branch is pending
    /// or running; an update that makes
    /// no sense; the storage failed.
    pub async fn edit(&self, id: ThreadId, edit: request::Edit) -> Result<Value> {
        let thread = self.row(id).await?;
        // A copy is a sibling of the checkpoint it copies.
        let opens = edit.as_node.as_deref() == Some(COPY);
        let update = StateUpdate {
            values: edit.values,
            as_node: edit.as_node,
            ..StateUpdate::default()
        };
        // An edit without an address is one of the state at the moment it is made.
        let anywhere = edit.at.checkpoint.is_none() && edit.at.tree_address.is_none();
        let mut tries = if anywhere { TRIES } else { 1 };
        let (ns, made, parents) = loop {
            tries -= 1;
            let target = self.target(&thread, &edit.at, opens).await?;
            let written = match (&target.start, &edit.at.tree_address) {
                (Start::Trimmed, Some(address)) => {
                    let on = target.slot.branch;
                    let made = self.write_trimmed(&thread, address, on, update.clone());
                    let made = made.await;
                    made.map(|made| ("".into(), made, Map::new()))
                }
                _ => {
                    self.write(&thread, &edit.at.ns, target, vec![vec![update.clone()]])
                        .await
                }
            };
            match written {
                Err(Error::Engine(engine::Error::Storage(checkpoint::Error::Fenced)))
                    if tries > 0 => {}
                written => break written?,
            }
        };
        self.publish_edit(id, &ns, made).await;
        let address = json::address(id, &ns, made, Some(&parents));
        let mut map = Map::with_capacity(3);
        map.insert("checkpoint", address.clone());
        map.insert("configurable", address);
        map.insert("checkpoint_id", made.to_string());
        Ok(Value::map(map))
    }

    /// Applies supersteps of updates to a thread that was just created.
    ///
    /// # Errors
    /// As [`edit`](Self::edit).
    pub(in crate::threads) async fn apply_supersteps(
        &self,
        thread: &Thread,
        supersteps: Vec<Vec<Update>>,
    ) -> Result<()> {
        let supersteps = supersteps
            .into_iter()
            .map(|updates| updates.into_iter().map(to_state_update).collect())
            .collect::<Result<Vec<Vec<_>>>>()?;
        let slot = self.shared.parts.tree.slot(thread.id).await?;
        let slot = slot.ok_or(Error::NoThread(thread.id))?;
        let target = Target {
            slot,
            start: Start::Head,
        };
        self.write(thread, &"".into(), target, supersteps).await?;
        Ok(())
    }

    /// The state that an edit builds on, and the slot it writes to. A claim in between raises the
    /// branch's epoch: then nothing of the edit is written. An edit that is not at the head opens a
    /// branch, and so does one with `opens`.
    async fn target(&self, thread: &Thread, at: &Address, opens: bool) -> Result<Target> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let read = &mut *reader;
        let row = resolve::thread(read, thread.id).await?;
        let mut target = Target {
            slot: resolve::active(read, &row).await?.slot(),
            start: at.checkpoint.map_or(Start::Head, Start::Checkpoint),
        };
        if let Some(address) = &at.tree_address {
            let found = tree::resolve(read, &row, address).await?;
            match found.named.filter(|_| address.position == Position::At) {
                Some(branch) => target.slot = branch.slot(),
                None => {
                    target.start = match found.base {
                        Base::At(point) => Start::Checkpoint(point.id),
                        // A copy is one of a whole checkpoint, and a graph inside has its state
                        // beside one.
                        Base::Trim { of, .. } if opens || !at.ns.is_empty() => {
                            Start::Checkpoint(of.id)
                        }
                        Base::Empty if !at.ns.is_empty() => {
                            let detail = "There is no state of a subgraph at this place yet";
                            return Err(Error::Invalid(detail.into()));
                        }
                        Base::Trim { .. } => Start::Trimmed,
                        Base::Empty => Start::Nothing,
                    }
                }
            }
        } else if let Some(id) = at.checkpoint.filter(|_| at.ns.is_empty()) {
            let point = resolve::checkpoint(read, &row, id).await;
            point.map_err(|error| match error {
                tree::Error::Refused { .. } => Error::NoCheckpoint(id),
                other => other.into(),
            })?;
        }
        let open = read.open_runs(row.tree, row.id).await?;
        if branch::is_busy(&open, &row, target.slot.branch) {
            return Err(Error::InFlight(thread.id));
        }
        let elsewhere = match target.start {
            Start::Head => false,
            Start::Checkpoint(id) => target.slot.head != Some(id),
            Start::Nothing => target.slot.head.is_some(),
            Start::Trimmed => true,
        };
        if at.ns.is_empty() && (opens || elsewhere) {
            branch::ensure_room(&read.branches(row.tree, row.id).await?)?;
        }
        Ok(target)
    }

    /// Trims the newest messages off a state and writes to it, on a new branch and in one
    /// transaction.
    async fn write_trimmed(
        &self,
        thread: &Thread,
        address: &tree::Address,
        on: BranchId,
        update: StateUpdate,
    ) -> Result<CheckpointId> {
        // Before anything is locked, since it may take time.
        let shared = &self.shared;
        let registered = shared
            .graph_of_thread(thread.id, &thread.metadata, None)
            .await?;
        let graph = registered.map(|registered| registered.graph.clone());
        let memory = self.change_memory();
        let (mut tx, row) = self.begin(thread.id).await?;
        refuse_beside_runs(&mut *tx, &row, on).await?;
        let base = tree::resolve(&mut *tx, &row, address).await?.base;
        let active = resolve::active(&mut *tx, &row).await?;
        let target = self.shared.message_graph(&row, graph)?;
        let channel = target.channel.clone();
        let values = self.shared.conversation_in(&row, channel, Some(&memory));
        let post = target.target();
        let how = ("update", true);
        let off = branch_off(&mut *tx, &values, &post, &row, &active, base, how);
        let (branch, slot, base) = off.await?;
        let mut metadata = Map::new();
        if let Some(value) = row.metadata.get("graph_id") {
            metadata.insert("graph_id", value.clone());
        }
        let buffer = BufferedSaver::new(self.shared.parts.saver.clone());
        let edit = StateUpdater {
            saver: buffer.clone(),
            slot,
            ns: "".into(),
            graph: target.graph.clone(),
            superseded: false,
            base,
            index: Some(Arc::new(Indexer::default())),
            metadata,
            run: None,
        };
        let edited = apply(edit, vec![vec![update]]).await?;
        for commit in buffer.take() {
            tx.put(commit).await?;
        }
        let outcome = Outcome::left_with(&edited.next);
        tx.set_outcome(row.tree, branch.id, outcome).await?;
        tx.commit().await?;
        // Runs that float may have found a free slot.
        self.runs.wake_thread(thread.id);
        self.shared.notifier.notify(thread.id);
        Ok(edited.checkpoint)
    }

    /// The error of a failed edit. If a run took over its branch, the error is that there is a run.
    async fn edit_error(&self, thread: ThreadId, slot: Slot, error: engine::Error) -> Error {
        if matches!(error, engine::Error::Storage(checkpoint::Error::Fenced))
            && let Ok(mut reader) = self.shared.parts.tree.reader().await
            && let Ok(Some(now)) = reader.branch(slot.tree, slot.branch).await
            && now.epoch != slot.epoch
        {
            return Error::InFlight(thread);
        }
        error.into()
    }

    async fn write(
        &self,
        thread: &Thread,
        ns: &Arc<str>,
        Target { slot, start }: Target,
        supersteps: Vec<Vec<StateUpdate>>,
    ) -> Result<(Arc<str>, CheckpointId, Map)> {
        let shared = &self.shared;
        let registered = shared
            .graph_of_thread(thread.id, &thread.metadata, None)
            .await?;
        let registered = registered.ok_or(Error::NoGraph(thread.id))?;
        let graph = read::graph_at(&registered.graph, ns)
            .ok_or_else(|| Error::Invalid(format!("there is no subgraph at `{ns}`")))?;
        let ns = read::stored_ns(&graph, ns);
        let parts = &self.shared.parts;
        let query = |at, values| Query {
            tree: slot.tree,
            thread: thread.id,
            ns: ns.clone(),
            at,
            values,
        };
        let memory = self.change_memory();
        let load = |at: At| {
            let id = match &at {
                At::Id(id) => Some(*id),
                _ => None,
            };
            load::checkpoint_in(&parts.saver, query(at, true), id, Some(&memory))
        };
        let at = match start {
            Start::Checkpoint(id) => Some(id),
            Start::Head | Start::Nothing | Start::Trimmed => None,
        };
        let address = match (at, slot.head, ns.is_empty()) {
            _ if matches!(start, Start::Nothing) => None,
            (Some(id), ..) => Some(At::Id(id)),
            (None, Some(head), true) => Some(At::Id(head)),
            (None, None, true) => None,
            (None, Some(start), false) => Some(inside(start, slot.branch)),
            (None, None, false) => Some(At::Newest),
        };
        // Nothing has happened yet where there is no memory for a large state.
        let mut found = match address {
            Some(address) => load(address).await?.map(|(found, _)| found),
            None => None,
        };
        if let (Some(id), None) = (at, &found) {
            return Err(Error::NoCheckpoint(id));
        }
        if let Some(found) = &mut found {
            let live = if ns.is_empty() {
                slot.head == Some(found.checkpoint.id)
            } else {
                at.is_none()
            };
            if live {
                found.retain_writes(|branch, _| branch == slot.branch);
            } else {
                load::keep_own_writes(found, slot.branch);
            }
        }
        // A copy is compared with what the original was made of.
        let above = found.as_ref().and_then(|found| found.checkpoint.parent);
        if let Some(above) = above.filter(|_| ns.is_empty() && copies(&supersteps)) {
            let above = load::weighed(&parts.saver, slot.tree, &ns, above, 0).await?;
            memory.take(above.weight())?;
        }
        // The copy goes on from what graphs inside have stored for the original, later edits included.
        let original = found
            .as_ref()
            .filter(|_| ns.is_empty() && copies(&supersteps));
        let original = original.map(|found| (found.checkpoint.parent, found.checkpoint.branch));
        let newest = match (ns.is_empty(), at) {
            (true, _) => slot.head,
            (false, Some(_)) => {
                let at = slot.head.map(|start| inside(start, slot.branch));
                let newest = query(at.unwrap_or(At::Newest), false);
                let newest = parts.saver.load(newest).await?;
                newest.map(|stored| stored.row.id)
            }
            (false, None) => None,
        };
        let root = ns.is_empty();
        let parents = found.as_ref().and_then(|found| {
            let parents = found.checkpoint.metadata.get("parents")?.as_map()?;
            Some(parents.clone())
        });
        let mut metadata = Map::new();
        if let Some(value) = thread.metadata.get("graph_id") {
            metadata.insert("graph_id", value.clone());
        }
        // Which one was edited, as LangGraph's server notes it of edits, and not of copies.
        if let Some(id) = at.filter(|_| !copies(&supersteps)) {
            metadata.insert("checkpoint_id", id.to_string());
        }
        // Written in one transaction, in which the client still has its level.
        let buffer = BufferedSaver::new(parts.saver.clone());
        let edit = StateUpdater {
            saver: buffer.clone(),
            slot,
            ns: ns.clone(),
            graph,
            superseded: at.is_some() && at != newest,
            base: found,
            index: Some(Arc::new(Indexer::default())),
            metadata,
            run: None,
        };
        let edited = match apply(edit, supersteps).await {
            Ok(edited) => edited,
            Err(error) => return Err(self.edit_error(thread.id, slot, error).await),
        };
        fail_point!(async "threads.before_edit");
        let (mut tx, row) = self.begin_in(slot.tree, thread.id).await?;
        refuse_beside_runs(&mut *tx, &row, slot.branch).await?;
        for commit in buffer.take() {
            if let Err(error) = tx.put(commit).await {
                drop(tx);
                return Err(self.edit_error(thread.id, slot, error.into()).await);
            }
        }
        if let Some((Some(parent), branch)) = original
            && edited.slot.branch != slot.branch
            && let Some(shared) = tx.inside(slot.tree, parent, branch).await?
        {
            tx.share_inside(slot.tree, edited.slot.branch, shared)
                .await?;
        }
        if root {
            let outcome = Outcome::left_with(&edited.next);
            tx.set_outcome(slot.tree, edited.slot.branch, outcome)
                .await?;
        }
        tx.commit().await?;
        self.shared.notifier.notify(thread.id);
        Ok((ns, edited.checkpoint, parents.unwrap_or_default()))
    }
}

/// Refuses to change a branch on which a run waits or is executed, also one that was created after the request had begun.
async fn refuse_beside_runs(tx: &mut dyn Tx, row: &ThreadRow, branch: BranchId) -> Result<()> {
    // Whoever creates a run there waits for this transaction from here on.
    tx.lock_branch(row.tree, branch).await?;
    let open = tx.open_runs(row.tree, row.id).await?;
    if branch::is_busy(&open, row, branch) {
        return Err(Error::InFlight(row.id));
    }
    Ok(())
}

/// Whether one of the updates copies the checkpoint before it.
fn copies(supersteps: &[Vec<StateUpdate>]) -> bool {
    let mut updates = supersteps.iter().flatten();
    updates.any(|update| update.as_node.as_deref() == Some(COPY))
}

/// A state of so many bytes, or an update of so many values, is applied beside the threads that serve
/// requests.
const LARGE: usize = 256 << 10;
/// Bytes of a state that are worth as much time as one value of an update.
const BYTES_OF_VALUE: usize = 64;

/// Applies supersteps to a state. That does not yield: reducers compare every message of a large state
/// with every new one's id, and messages are checked one by one.
async fn apply(
    edit: StateUpdater,
    supersteps: Vec<Vec<StateUpdate>>,
) -> Result<UpdateOutcome, engine::Error> {
    let base = edit.base.as_ref().map_or(0, Decoded::memory);
    let updates = supersteps.iter().flatten();
    let values = updates.filter_map(|update| update.values.as_ref());
    let room = LARGE.saturating_sub(base) / BYTES_OF_VALUE;
    if has_fewer_values(values, room) {
        return edit.apply(supersteps).await;
    }
    let (runtime, span) = (Handle::current(), Span::current());
    #[allow(
        clippy::disallowed_methods,
        reason = "it blocks a thread that serves nobody else"
    )]
    let applied = spawn_blocking(move || {
        let _entered = span.entered();
        runtime.block_on(edit.apply(supersteps))
    });
    match applied.await {
        Ok(applied) => applied,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The process ends: nothing was written.
            Err(_) => Err(engine::Error::Storage(checkpoint::Error::Unavailable(
                "the process ends".into(),
            ))),
        },
    }
}

/// Whether there are fewer than so many values, those inside lists and maps too.
fn has_fewer_values<'a>(values: impl Iterator<Item = &'a Value>, most: usize) -> bool {
    let mut left = values.collect::<Vec<_>>();
    let mut count = 0;
    while let Some(value) = left.pop() {
        count += 1;
        if count + left.len() >= most {
            return false;
        }
        match value {
            Value::List(_) => left.extend(value.as_list().unwrap_or_default()),
            Value::Map(map) => left.extend(map.iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    true
}

/// The newest state of a graph inside on the path of a branch.
fn inside(start: CheckpointId, branch: BranchId) -> At {
    At::Subgraph {
        start,
        branch,
        before: None,
    }
}
