//! The one ordered writer of a run: task results and checkpoints reach the storage in the order
//! they were made.

use std::{sync::Arc, time::Duration};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    lead::Lead,
    pipeline::{Pipeline, Rest, RunAhead, Write},
    queue::{DeferredCheckpoint, Queue, QueuedWrites},
};
use crate::{
    checkpoint::{Commit, Error, Flush, NewBranch, Saver, Slot, WriteRow, frame},
    engine::barrier::Barrier,
    id::CheckpointId,
};

/// When a superstep has to be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before the next superstep starts.
    Sync,
    /// While the next supersteps run, which share a transaction with those that ended during the one
    /// before, or within ten milliseconds of its beginning; the first transaction has those of the first
    /// two milliseconds. A crash may repeat what is not durable: at most 16 supersteps, 1 MiB and 50 milliseconds of them, or what the server's
    /// settings say. What ends the run without waiting for it may lose as much, such as a run that interrupts it from
    /// another process.
    #[default]
    Async,
    /// When the run ends, stops at an interrupt or fails.
    Exit,
}

/// How long results of finished tasks wait for others before they are written on their own.
const WINDOW: Duration = Duration::from_millis(2);

/// The writer of one run: of its root graph and of every graph inside it.
pub struct RunWriter {
    pipeline: Arc<Pipeline>,
    durability: Durability,
    lead: Lead,
    inner: Mutex<Inner>,
}

struct Inner {
    /// The right to write; its head moves with every root checkpoint.
    slot: Slot,
    /// The branch to create with the first write.
    open: Option<NewBranch>,
    /// What is to be written next.
    queue: Queue,
    /// A flush of the queue is scheduled.
    scheduled: bool,
    /// Nothing was committed yet.
    is_new: bool,
}

impl RunWriter {
    /// The writer of a run that has the right to write to `slot`; it cancels `fenced` when another
    /// writer has taken over. With `open` the branch of the slot comes into being with the first
    /// write. Its lead is closed through `lead`.
    pub fn new(
        saver: Arc<dyn Saver>,
        slot: Slot,
        open: Option<NewBranch>,
        durability: Durability,
        (ahead, lead): (RunAhead, Lead),
        fenced: CancellationToken,
    ) -> Arc<Self> {
        let writer = Arc::new(Self {
            pipeline: Arc::new(Pipeline::new(saver, ahead, lead.memory(), fenced)),
            durability,
            lead,
            inner: Mutex::new(Inner {
                slot,
                open,
                queue: Queue::default(),
                scheduled: false,
                is_new: true,
            }),
        });
        writer.lead.follow(&writer);
        writer
    }

    /// The storage.
    pub fn saver(&self) -> &Arc<dyn Saver> {
        self.pipeline.saver()
    }

    /// Whether a write has failed: nothing is stored any more.
    pub fn has_failed(&self) -> bool {
        self.pipeline.has_failed()
    }

    /// When supersteps have to be durable.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The slot as of the last write.
    pub async fn slot(&self) -> Slot {
        self.inner.lock().await.slot
    }

    /// The slot of a branch that exists: until the first write that of the branch the run came from.
    pub async fn existing_slot(&self) -> Slot {
        let inner = self.inner.lock().await;
        inner.open.as_ref().map_or(inner.slot, |open| open.source)
    }

    /// Drops queued writes at a checkpoint that is never stored.
    pub async fn discard_at(&self, ns: &str, checkpoint: CheckpointId) {
        self.inner.lock().await.queue.discard_at(ns, checkpoint);
    }

    /// Drops the client's resume value from the queued writes: a task has used it.
    pub async fn discard_resume(&self) {
        self.inner.lock().await.queue.discard_resume();
    }

    /// Defers a checkpoint of a graph inside until the root's is stored.
    pub async fn defer(&self, checkpoint: DeferredCheckpoint) {
        self.inner.lock().await.queue.deferred.push(checkpoint);
    }

    /// The newest deferred checkpoint of a namespace.
    pub async fn find_deferred(&self, ns: &str) -> Option<frame::Decoded> {
        self.inner.lock().await.queue.find_deferred(ns)
    }

    /// Writes the deferred checkpoints, below `root`.
    ///
    /// # Errors
    /// A write failed, or another writer took over.
    pub async fn commit_deferred(&self, root: CheckpointId) -> Result<(), Error> {
        let deferred = std::mem::take(&mut self.inner.lock().await.queue.deferred);
        for mut commit in deferred.into_iter().filter_map(|one| one.commit) {
            commit.checkpoint.root = Some(root);
            self.commit(commit).await?;
        }
        Ok(())
    }

    /// Queues the writes of a finished task for the next commit, and what goes with them. When
    /// `soon`, its siblings still run: then they are written within a moment.
    pub async fn enqueue(
        self: &Arc<Self>,
        all: impl IntoIterator<Item = QueuedWrites> + Send,
        soon: bool,
    ) {
        let mut inner = self.inner.lock().await;
        for writes in all {
            inner.queue.push(writes);
        }
        if !soon || inner.scheduled || self.durability == Durability::Exit {
            return;
        }
        inner.scheduled = true;
        self.flush_soon();
    }

    /// Writes what is queued within a moment.
    fn flush_soon(self: &Arc<Self>) {
        let writer = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(WINDOW).await;
            let mut inner = writer.inner.lock().await;
            inner.scheduled = false;
            if inner.queue.has_writes() {
                // A failure shows at the next write of the run.
                let _ = writer.start_flush(&mut inner).await;
            }
        });
    }

    async fn start_flush(&self, inner: &mut Inner) -> Result<(), Error> {
        self.pipeline.drained().await?;
        let (queued, barriers) = inner.queue.take_writes();
        let format = self.saver().format();
        let flush = Flush {
            slot: inner.slot,
            open: inner.open.take(),
            writes: queued
                .iter()
                .flat_map(|queued| {
                    let (ns, id) = (&queued.ns, queued.checkpoint);
                    frame::encode_writes(ns, id, inner.slot.branch, &queued.writes, None, format)
                })
                .collect(),
        };
        self.pipeline.push(Write::Flush(Box::new(flush)), barriers);
        Ok(())
    }

    /// Writes everything that is queued and returns when it is durable.
    ///
    /// # Errors
    /// The storage failed, or another writer took over.
    pub async fn flush(self: &Arc<Self>) -> Result<(), Error> {
        let guard = FlushIfDropped(Some(self));
        let mut inner = self.inner.lock().await;
        if inner.queue.has_writes() {
            self.start_flush(&mut inner).await?;
        }
        guard.disarm();
        self.pipeline.drained().await
    }

    /// Stores the branch that the run opens, without what is queued, if that copies what is pending where it begins: from
    /// there on it is found by its branch.
    ///
    /// # Errors
    /// The storage failed, or another writer took over.
    pub async fn open_copy(&self) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        let Some(open) = inner.open.take_if(|open| open.copy_writes) else {
            return Ok(());
        };
        let flush = Flush {
            slot: inner.slot,
            open: Some(open),
            writes: vec![],
        };
        self.pipeline.push(Write::Flush(Box::new(flush)), vec![]);
        self.pipeline.drained().await
    }

    /// Waits until every checkpoint is durable that was made by now, whatever graphs inside make meanwhile; what is
    /// queued waits on for its own.
    ///
    /// # Errors
    /// A write failed, or another writer took over.
    pub async fn committed(&self) -> Result<(), Error> {
        self.pipeline.stored_so_far().await
    }

    /// Waits until every checkpoint is durable that was made by now, also one that waits for room.
    ///
    /// # Errors
    /// A write failed, or another writer took over.
    pub async fn stored_so_far(&self) -> Result<(), Error> {
        drop(self.inner.lock().await);
        self.pipeline.stored_so_far().await
    }

    /// Writes a checkpoint. Returns when the run may go on ahead of it. In `Sync` that is when it is durable, but for
    /// a checkpoint of the root graph: the run waits for it in [`before_superstep`](Self::before_superstep).
    ///
    /// The commit's slot and branch are filled in here.
    ///
    /// # Errors
    /// An earlier write failed, or another writer took over.
    pub async fn commit(&self, commit: Commit) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        self.pipeline.room(commit.bytes()).await?;
        self.put(&mut inner, commit, vec![]).await
    }

    /// [Writes a checkpoint](Self::commit) together with everything that is queued, of which `rows` makes the rows. The
    /// barrier, and those of what is queued, are passed when it is durable.
    ///
    /// Where this is dropped before it returns, either everything is on its way or the queue is as it was, and is written
    /// within a moment.
    ///
    /// # Errors
    /// An earlier write failed, or another writer took over.
    pub async fn commit_with_queued(
        self: &Arc<Self>,
        mut commit: Commit,
        rows: impl Fn(&QueuedWrites) -> Vec<WriteRow>,
        barrier: Option<Barrier>,
    ) -> Result<(), Error> {
        let guard = FlushIfDropped(Some(self));
        let mut inner = self.inner.lock().await;
        commit.writes = inner.queue.writes().iter().flat_map(rows).collect();
        let room = self.pipeline.room(commit.bytes()).await;
        guard.disarm();
        if let Err(error) = room {
            barrier.into_iter().for_each(Barrier::keep_up);
            return Err(error);
        }
        let (_, mut barriers) = inner.queue.take_writes();
        barriers.extend(barrier);
        self.put(&mut inner, commit, barriers).await
    }

    /// Adds the write of a checkpoint, for which there is room.
    async fn put(
        &self,
        inner: &mut Inner,
        mut commit: Commit,
        barriers: Vec<Barrier>,
    ) -> Result<(), Error> {
        commit.slot = inner.slot;
        commit.checkpoint.branch = inner.slot.branch;
        commit.open = inner.open.take();
        if commit.checkpoint.ns.is_empty() {
            inner.slot.head = Some(commit.checkpoint.id);
            inner.slot.head_depth += 1;
        }
        let waits = match self.durability {
            Durability::Sync => true,
            Durability::Async => self.lead.is_closed(),
            Durability::Exit => false,
        };
        // One of the root graph may be the last, which becomes durable with the end of the run.
        let may_be_last = commit.checkpoint.ns.is_empty();
        let is_first = std::mem::take(&mut inner.is_new);
        match self.durability {
            Durability::Sync if may_be_last => self.pipeline.defer(),
            Durability::Async if is_first && commit.open.is_none() => self.pipeline.defer_first(),
            _ => {}
        }
        let write = Write::Commit(Box::new(commit));
        self.pipeline.push(write, barriers);
        if waits && !may_be_last {
            self.pipeline.drained().await?;
        }
        Ok(())
    }

    /// Before the tasks of a superstep run: in `Sync`, and while the lead of the run is closed, the checkpoint from which
    /// they do is durable when this returns.
    ///
    /// # Errors
    /// A write failed, or another writer took over.
    pub async fn before_superstep(&self) -> Result<(), Error> {
        let waits = match self.durability {
            Durability::Sync => true,
            Durability::Async => self.lead.is_closed(),
            Durability::Exit => false,
        };
        if waits {
            self.pipeline.drained().await?;
        }
        Ok(())
    }

    /// In `Exit` durability: keeps the one checkpoint that is stored for
    /// [`finish_with_rest`](Self::finish_with_rest). False if more is to be written than that.
    pub async fn keep_rest(&self) -> bool {
        let inner = self.inner.lock().await;
        let is_all = !inner.queue.has_writes() && inner.queue.deferred.is_empty();
        if is_all {
            self.pipeline.keep_rest();
        }
        is_all
    }

    /// The last supersteps of the run, if they may become durable with its end; otherwise everything is
    /// durable when this returns.
    ///
    /// # Errors
    /// A write failed, or another writer took over.
    pub async fn finish_with_rest(&self) -> Result<Option<Rest>, Error> {
        let has_writes = self.inner.lock().await.queue.has_writes();
        if has_writes {
            self.pipeline.release();
            return self.finish().await.map(|_| None);
        }
        self.pipeline.take_rest().await
    }

    /// Waits until everything is durable and returns the slot as it is then.
    ///
    /// # Errors
    /// A write failed, or another writer took over.
    pub async fn finish(&self) -> Result<Slot, Error> {
        let mut inner = self.inner.lock().await;
        if inner.queue.has_writes() {
            self.start_flush(&mut inner).await?;
        }
        self.pipeline.drained().await?;
        Ok(inner.slot)
    }
}

/// Writes what is queued within a moment, unless it is disarmed: whoever was to write it was dropped with its node, and
/// others of the run wait for it.
struct FlushIfDropped<'a>(Option<&'a Arc<RunWriter>>);

impl FlushIfDropped<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for FlushIfDropped<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.0
            && writer.durability != Durability::Exit
            && tokio::runtime::Handle::try_current().is_ok()
        {
            writer.flush_soon();
        }
    }
}
