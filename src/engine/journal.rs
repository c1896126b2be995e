//! The one ordered writer of a run: task results and checkpoints reach the storage in the order
//! they were made, at most one commit in flight.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::names::RESUME;
use crate::{
    checkpoint::{Commit, Error, Flush, NewBranch, Pending, Saver, Slot, frame},
    fail_point,
    id::{CheckpointId, TaskId},
};

/// When a superstep has to be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before the next superstep starts.
    Sync,
    /// While the next superstep runs: a crash may repeat one superstep.
    #[default]
    Async,
    /// When the run ends, stops at an interrupt or fails.
    Exit,
}

/// How long results of finished tasks wait for others before they are written on their own.
const WINDOW: Duration = Duration::from_millis(2);

/// Writes of one run, of its root graph and of every graph inside it.
pub struct Journal {
    saver: Arc<dyn Saver>,
    durability: Durability,
    /// Stops the run when another writer took over.
    lost: CancellationToken,
    inner: Mutex<Inner>,
}

/// Writes of one task that are not on their way yet.
pub struct Waiting {
    /// Namespace of its checkpoint.
    pub ns: Arc<str>,
    /// The checkpoint it runs from.
    pub checkpoint: CheckpointId,
    /// What it wrote.
    pub writes: Vec<Pending>,
}

/// In `Exit` durability: a checkpoint of a graph inside, to be stored after that of the root.
pub struct Late {
    /// Its namespace.
    pub ns: Arc<str>,
    /// The rows, unless it is stored already.
    pub commit: Option<Commit>,
    /// The same, for a later visit in this run.
    pub decoded: frame::Decoded,
}

struct Inner {
    /// The right to write; its head moves with every root checkpoint.
    slot: Slot,
    /// The branch to create with the first write.
    open: Option<NewBranch>,
    /// The last write on its way.
    in_flight: Option<JoinHandle<Result<(), Error>>>,
    /// Writes of tasks that finished and are not on their way yet.
    waiting: Vec<Waiting>,
    /// Checkpoints of graphs inside that wait for the end of the run.
    late: Vec<Late>,
    /// A flush of `waiting` is scheduled.
    scheduled: bool,
    /// The first failure: nothing is written after it.
    failed: Option<Error>,
}

impl Inner {
    /// Drops control values that wait and that `new` replaces: one statement cannot write a row
    /// twice.
    fn drop_replaced(&mut self, new: &Waiting) {
        if new.writes.iter().any(|write| write.idx >= 0) {
            return;
        }
        let same = |old: &Pending| {
            let mut new = new.writes.iter();
            new.any(|write| write.task == old.task && write.idx == old.idx)
        };
        for old in &mut self.waiting {
            if old.checkpoint == new.checkpoint && old.ns == new.ns {
                let output = old.writes.iter().any(|write| write.idx >= 0);
                old.writes.retain(|write| output || !same(write));
            }
        }
    }

    /// Waits for the write on its way.
    async fn arrive(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(handle) = self.in_flight.take() else {
            return Ok(());
        };
        let result = handle
            .await
            .unwrap_or_else(|error| Err(Error::Database(format!("a write was lost: {error}"))));
        self.failed = result.as_ref().err().cloned();
        result
    }
}

impl Journal {
    /// A journal for the holder of `slot`, which cancels `lost` when somebody else has become that.
    /// With `open` the slot is that of a branch that does
    /// not exist before the first write.
    pub fn new(
        saver: Arc<dyn Saver>,
        slot: Slot,
        open: Option<NewBranch>,
        durability: Durability,
        lost: CancellationToken,
    ) -> Self {
        Self {
            saver,
            durability,
            lost,
            inner: Mutex::new(Inner {
                slot,
                open,
                in_flight: None,
                waiting: vec![],
                late: vec![],
                scheduled: false,
                failed: None,
            }),
        }
    }

    /// The storage.
    pub fn saver(&self) -> &Arc<dyn Saver> {
        &self.saver
    }

    /// When supersteps have to be durable.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The slot as of the last write.
    pub async fn slot(&self) -> Slot {
        self.inner.lock().await.slot
    }

    /// The slot of a branch that is there: while nothing was written that of the branch the run
    /// came from.
    pub async fn standing(&self) -> Slot {
        let inner = self.inner.lock().await;
        inner.open.as_ref().map_or(inner.slot, |open| open.source)
    }

    /// Writes of tasks that finished and are not on their way yet: they travel in a commit.
    pub async fn take_waiting(&self) -> Vec<Waiting> {
        std::mem::take(&mut self.inner.lock().await.waiting)
    }

    /// Forgets writes that wait at a checkpoint: it is never stored.
    pub async fn forget(&self, ns: &str, checkpoint: CheckpointId) {
        let mut inner = self.inner.lock().await;
        inner
            .waiting
            .retain(|waiting| waiting.checkpoint != checkpoint || &*waiting.ns != ns);
    }

    /// Forgets the client's answer among the writes that wait: somebody took it.
    pub async fn forget_answer(&self) {
        for waiting in &mut self.inner.lock().await.waiting {
            waiting
                .writes
                .retain(|write| write.task != TaskId::NULL || &*write.channel != RESUME);
        }
    }

    /// Keeps a checkpoint of a graph inside until the root's is stored.
    pub async fn keep_late(&self, late: Late) {
        self.inner.lock().await.late.push(late);
    }

    /// The newest checkpoint of a namespace that waits for the end of the run.
    pub async fn find_late(&self, ns: &str) -> Option<frame::Decoded> {
        let inner = self.inner.lock().await;
        let mut newest = inner.late.iter().rev();
        newest
            .find(|late| *late.ns == *ns)
            .map(|late| late.decoded.clone())
    }

    /// Writes the checkpoints that waited, below `root`.
    ///
    /// # Errors
    /// A write failed, or another writer took over.
    pub async fn commit_late(&self, root: CheckpointId) -> Result<(), Error> {
        let late = std::mem::take(&mut self.inner.lock().await.late);
        for mut commit in late.into_iter().filter_map(|late| late.commit) {
            commit.checkpoint.root = Some(root);
            self.commit(commit).await?;
        }
        Ok(())
    }

    /// Keeps the writes of a finished task for the next commit, and what goes with them. When
    /// `soon`, its siblings still run: then they are written within a moment.
    pub async fn keep(self: &Arc<Self>, all: impl IntoIterator<Item = Waiting> + Send, soon: bool) {
        let mut inner = self.inner.lock().await;
        for waiting in all {
            inner.drop_replaced(&waiting);
            inner.waiting.push(waiting);
        }
        if !soon || inner.scheduled || self.durability == Durability::Exit {
            return;
        }
        inner.scheduled = true;
        let journal = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(WINDOW).await;
            let mut inner = journal.inner.lock().await;
            inner.scheduled = false;
            if !inner.waiting.is_empty() {
                // A failure shows at the next write of the run.
                let _ = journal.start_flush(&mut inner).await;
            }
        });
    }

    async fn start_flush(&self, inner: &mut Inner) -> Result<(), Error> {
        inner.arrive().await?;
        let flush = Flush {
            slot: inner.slot,
            open: inner.open.take(),
            writes: std::mem::take(&mut inner.waiting)
                .iter()
                .flat_map(|waiting| {
                    let (ns, id) = (&waiting.ns, waiting.checkpoint);
                    frame::encode_writes(ns, id, inner.slot.branch, &waiting.writes, None)
                })
                .collect(),
        };
        let (saver, lost) = (self.saver.clone(), self.lost.clone());
        inner.in_flight = Some(tokio::spawn(async move {
            fail_point!("engine::before_flush");
            let result = saver.flush(flush).await;
            if matches!(result, Err(Error::Fenced)) {
                lost.cancel();
            }
            result
        }));
        Ok(())
    }

    /// Writes everything that waits and returns when it is durable.
    ///
    /// # Errors
    /// The storage failed, or another writer took over.
    pub async fn flush(&self) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        if !inner.waiting.is_empty() {
            self.start_flush(&mut inner).await?;
        }
        inner.arrive().await
    }

    /// Writes a checkpoint. Returns when it is durable (`Sync`), or when the one before it is.
    ///
    /// The commit's slot and branch are filled in here; `writes` are the waiting writes that
    /// travel in it.
    ///
    /// # Errors
    /// An earlier write failed, or another writer took over.
    pub async fn commit(&self, mut commit: Commit) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        inner.arrive().await?;
        commit.slot = inner.slot;
        commit.checkpoint.branch = inner.slot.branch;
        commit.open = inner.open.take();
        if commit.checkpoint.ns.is_empty() {
            inner.slot.head = Some(commit.checkpoint.id);
            inner.slot.head_depth += 1;
        }
        let (saver, lost) = (self.saver.clone(), self.lost.clone());
        inner.in_flight = Some(tokio::spawn(async move {
            fail_point!("engine::before_commit");
            let results = saver.commit(vec![commit]).await;
            fail_point!("engine::after_commit");
            match results.into_iter().next() {
                Some(Ok(_)) => Ok(()),
                Some(Err(error)) => {
                    // Nobody waits for what its nodes do from here on.
                    if matches!(error, Error::Fenced) {
                        lost.cancel();
                    }
                    Err(error)
                }
                None => Err(Error::Database("a commit had no answer".to_owned())),
            }
        }));
        if self.durability == Durability::Sync {
            inner.arrive().await?;
        }
        Ok(())
    }

    /// Waits until everything is durable and answers the slot as it is then.
    ///
    /// # Errors
    /// A write failed, or another writer took over.
    pub async fn finish(&self) -> Result<Slot, Error> {
        let mut inner = self.inner.lock().await;
        if !inner.waiting.is_empty() {
            self.start_flush(&mut inner).await?;
        }
        inner.arrive().await?;
        Ok(inner.slot)
    }
}
