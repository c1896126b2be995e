//! The service itself: what it is made of, on whose behalf it acts, and transactions on the tree
//! of a thread.

use std::sync::Arc;

use tokio::sync::Notify;

use super::{Error, Result};
use crate::{
    budget::Reservation,
    checkpoint, fail_point,
    id::{ThreadId, TreeId},
    runs::{
        self, Shared,
        shared::memory::{ChangeMemory, ReadMemory},
    },
    tree::{
        Read, Thread, Tx,
        load::StateMemory,
        members::{Access, Level},
        messages::content::MessageContents,
        store::rows::ThreadRow,
    },
};

/// Threads whose levels are confirmed at once.
const CONFIRMED: usize = 500;

/// The service of threads. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    pub(super) shared: Arc<Shared>,
    /// What runs on the threads.
    pub(super) runs: runs::Service,
    /// On whose behalf it acts.
    pub(super) access: Access,
    /// What large states that it reads take; without it they take nothing.
    pub(super) memory: Option<ReadMemory>,
    /// Notified when the derived rows of all threads may have to be made anew.
    pub(super) rebuild: Arc<Notify>,
}

impl Service {
    /// A service over what it shares with `runs`.
    pub fn new(shared: Arc<Shared>, runs: runs::Service) -> Self {
        Self {
            shared,
            runs,
            access: Access::unrestricted(),
            memory: None,
            rebuild: Arc::default(),
        }
    }

    /// The service as it acts on behalf of a client: each operation checks in its transaction that
    /// the client has the level it takes.
    pub fn on_behalf_of(&self, access: Access) -> Self {
        Self {
            access,
            ..self.clone()
        }
    }

    /// The service as it reads for a request, whose large states take this memory.
    pub fn reading_in(self, memory: ReadMemory) -> Self {
        Self {
            memory: Some(memory),
            ..self
        }
    }

    /// What a search through stored states has found, within the time that it may take.
    ///
    /// # Errors
    /// 503: it took longer; or it failed.
    pub(super) async fn within_limit<T>(
        &self,
        search: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let found = tokio::time::timeout(self.runs.search_limit(), search).await;
        found.unwrap_or_else(|_| Err(checkpoint::Error::TookTooLong.into()))
    }

    /// The memory of a state that weighs so much; `instead` says what a client can do to whom it is too much.
    ///
    /// # Errors
    /// It is more than one client may have, or there is not enough left.
    pub(super) fn reserve(&self, weight: u64, instead: &str) -> Result<Option<Reservation>> {
        let memory = self.memory.as_ref();
        let reserved = memory.map(|memory| memory.reserve_state(weight, instead));
        Ok(reserved.transpose()?.flatten())
    }

    /// What large states take that are read for the response.
    pub(super) fn state_memory(&self) -> Option<&dyn StateMemory> {
        let memory = self.memory.as_ref();
        memory.map(|memory| memory as &dyn StateMemory)
    }

    /// The memory of the states that a change reads, to be held until it is written.
    pub(super) fn change_memory(&self) -> ChangeMemory {
        let payer = self.memory.as_ref().map(ReadMemory::payer);
        let memory = payer.map(|payer| self.shared.states.changed_by(payer.clone()));
        memory.unwrap_or_default()
    }

    /// A reader of the messages of a thread's checkpoints, whose large states take the request's memory.
    pub(super) fn conversation(&self, thread: &ThreadRow) -> MessageContents<'_> {
        let channel = self.shared.message_channel(&thread.metadata);
        self.conversation_in(thread, channel)
    }

    /// The same for one channel.
    pub(super) fn conversation_in(
        &self,
        thread: &ThreadRow,
        channel: Arc<str>,
    ) -> MessageContents<'_> {
        let memory = self.state_memory();
        self.shared.conversation_in(thread, channel, memory)
    }

    /// Checks that the client still has a level on all threads of which its response shows what was
    /// read since the last time. What was read may be newer than the check before it; who has the
    /// level after it may see all of it. A thread that is gone meanwhile was the client's to read.
    ///
    /// # Errors
    /// A level was withdrawn while the response was read: 404, as for a thread that does not exist.
    /// Or the storage failed.
    pub async fn confirm(&self) -> Result<()> {
        let Some(principal) = self.access.principal() else {
            return Ok(());
        };
        let shown = self.access.take_shown();
        if shown.is_empty() {
            return Ok(());
        }
        fail_point!(async "threads.confirm");
        for batch in shown.chunks(CONFIRMED) {
            let principals = vec![principal.clone(); batch.len()];
            let tree = &self.shared.parts.tree;
            for at in tree.withdrawn(batch.to_vec(), principals).await? {
                if let Some(thread) = batch.get(at) {
                    self.access.check(*thread, None)?;
                }
            }
        }
        Ok(())
    }

    /// The service as it acts on behalf of the same client, in an operation that takes this level.
    pub fn at(&self, needed: Level) -> Self {
        self.on_behalf_of(self.access.at(needed))
    }

    /// Begins to derive tables from events, and to watch the access of clients with open streams.
    pub fn start(&self) {
        tokio::spawn(self.clone().derive_tables());
        let pause = self.runs.sweep_interval();
        tokio::spawn(self.clone().sweep_threads(pause));
        let shared = &self.shared;
        let tree = shared.parts.tree.clone();
        // Streams outlive the beginning of a drain.
        let withdrawals = shared.withdrawals.clone();
        tokio::spawn(withdrawals.run(tree, self.runs.stopped()));
    }

    /// Whether the storage can be written to.
    ///
    /// # Errors
    /// It cannot: its disk is full, or it is not there.
    pub async fn probe(&self) -> Result<()> {
        Ok(self.runs.probe().await?)
    }

    /// Whether the storage responds.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<()> {
        let none = ThreadId(uuid::Uuid::nil());
        self.shared.parts.tree.thread(none).await?;
        Ok(())
    }

    /// The thread's row, to be shown to the client.
    ///
    /// # Errors
    /// No such thread, or none of the client's; 403 below the level; or the storage failed.
    pub(super) async fn row(&self, id: ThreadId) -> Result<Thread> {
        self.runs.authorize(&self.access, id).await?;
        Ok(self.shared.thread(id).await?)
    }

    /// Rows to read, and a thread that the client may read.
    ///
    /// # Errors
    /// As [`row`](Self::row).
    pub(super) async fn reader(&self, id: ThreadId) -> Result<(Box<dyn Read>, ThreadRow)> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let (thread, _) = self.find(&mut *reader, id).await?;
        Ok((reader, thread))
    }

    /// The tree of a thread, before its lock is waited for: nobody waits for the lock of another's.
    pub(super) async fn tree_of(&self, id: ThreadId) -> Result<TreeId> {
        Ok(self.reader(id).await?.1.tree)
    }

    /// A transaction on the tree of a thread, and the thread as it is in it. It has the lock that a
    /// change of rights takes, and the client has the level under it.
    pub(super) async fn begin(&self, id: ThreadId) -> Result<(Box<dyn Tx>, ThreadRow)> {
        let tree = self.tree_of(id).await?;
        self.begin_in(tree, id).await
    }

    /// [`begin`](Self::begin) for a thread whose tree is known.
    pub(super) async fn begin_in(
        &self,
        tree: TreeId,
        id: ThreadId,
    ) -> Result<(Box<dyn Tx>, ThreadRow)> {
        let mut tx = self.shared.parts.tree.begin(tree).await?;
        let thread = self.checked(&mut *tx, tree, id).await?;
        Ok((tx, thread))
    }

    /// The thread as it is in a transaction on `tree`, in which the client has the level.
    pub(super) async fn checked(
        &self,
        tx: &mut dyn Tx,
        tree: TreeId,
        id: ThreadId,
    ) -> Result<ThreadRow> {
        let (thread, _) = self.find(tx, id).await?;
        if thread.tree == tree {
            Ok(thread)
        } else {
            // Deleted and created again, in a tree that is not locked.
            Err(Error::NoThread(id))
        }
    }

    /// A thread, and the level that the client has on it; `None` when everything is allowed.
    pub(super) async fn find(
        &self,
        read: &mut dyn Read,
        id: ThreadId,
    ) -> Result<(ThreadRow, Option<Level>)> {
        let row = read.thread_row(id).await?;
        let thread = row.filter(|row| row.deleted_at.is_none());
        let thread = thread.ok_or(Error::NoThread(id))?;
        let Some(principal) = self.access.principal() else {
            return Ok((thread, None));
        };
        let level = read.level(thread.tree, principal.clone()).await?;
        self.access.check(id, level)?;
        Ok((thread, level))
    }
}
