//! Rows of the tree for its operations: read through the readers, or read and changed in a
//! transaction that keeps the writing thread.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;

use super::{changes, index, lookup, members, outline, paths};
use crate::{
    checkpoint::{Commit, Error},
    id::{BranchId, CheckpointId, NodeId, RunId, ThreadId, TreeId},
    runs::{self, Created, NewRun, kept},
    storage::sqlite::{
        Store, branches,
        checkpoints::commit,
        connection::{readers, transaction::OpenTransaction},
        events, runs as queue,
    },
    time::Timestamp,
    tree::{
        Outcome, Read, Tx,
        members::{Level, Members},
        rows::{Branch, Event, NewEvent, Node, OpenRun, Point, Tag, ThreadRow},
        session::{InsertBranch, InsertFork},
    },
};

/// Where the statements of a session run.
pub(crate) trait Execute: Send + 'static {
    /// Runs `work` on a connection.
    fn run<T, F>(&self, work: F) -> impl Future<Output = Result<T, Error>> + Send
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static;
}

impl Execute for readers::Handle {
    async fn run<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        self.read(work).await
    }
}

impl Execute for OpenTransaction {
    async fn run<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        self.run(work).await
    }
}

/// Reads rows, and changes them when it is a transaction.
pub(crate) struct Session<E>(E);

impl Store {
    /// Rows to read, each call by itself.
    pub(crate) fn rows(&self) -> Session<readers::Handle> {
        Session(self.readers.handle())
    }

    /// A transaction, when its turn has come. Nothing else is written until its end, so there is
    /// no row to lock.
    pub(crate) async fn transaction(&self) -> Result<Session<OpenTransaction>, Error> {
        Ok(Session(self.writer.hold().await?))
    }
}

#[async_trait]
impl<E: Execute + Sync> Read for Session<E> {
    async fn thread_row(&mut self, id: ThreadId) -> Result<Option<ThreadRow>, Error> {
        self.0.run(move |db| lookup::thread_row(db, id)).await
    }

    async fn relatives(&mut self, tree: TreeId) -> Result<Vec<ThreadRow>, Error> {
        self.0.run(move |db| lookup::relatives(db, tree)).await
    }

    async fn branches(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<Branch>, Error> {
        self.0
            .run(move |db| lookup::branches(db, tree, thread))
            .await
    }

    async fn branch(&mut self, tree: TreeId, id: BranchId) -> Result<Option<Branch>, Error> {
        self.0.run(move |db| lookup::branch(db, tree, id)).await
    }

    async fn tags(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<Tag>, Error> {
        self.0.run(move |db| lookup::tags(db, tree, thread)).await
    }

    async fn tag(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        name: Arc<str>,
    ) -> Result<Option<Tag>, Error> {
        self.0
            .run(move |db| lookup::tag(db, tree, thread, &name))
            .await
    }

    async fn point(&mut self, tree: TreeId, id: CheckpointId) -> Result<Option<Point>, Error> {
        self.0.run(move |db| paths::point(db, tree, id)).await
    }

    async fn path(
        &mut self,
        tree: TreeId,
        start: CheckpointId,
        limit: usize,
    ) -> Result<Vec<Point>, Error> {
        self.0
            .run(move |db| paths::path(db, tree, start, limit))
            .await
    }

    async fn visible(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        id: CheckpointId,
    ) -> Result<bool, Error> {
        self.0
            .run(move |db| paths::visible(db, tree, thread, id))
            .await
    }

    async fn on_path(
        &mut self,
        tree: TreeId,
        start: CheckpointId,
        ancestor: CheckpointId,
    ) -> Result<bool, Error> {
        self.0
            .run(move |db| paths::on_path(db, tree, start, ancestor))
            .await
    }

    async fn is_interrupted(
        &mut self,
        tree: TreeId,
        branch: BranchId,
        at: CheckpointId,
    ) -> Result<bool, Error> {
        self.0
            .run(move |db| paths::is_interrupted(db, tree, branch, at))
            .await
    }

    async fn node(&mut self, tree: TreeId, id: NodeId) -> Result<Option<Node>, Error> {
        self.0.run(move |db| index::node(db, tree, id)).await
    }

    async fn nodes_of(&mut self, tree: TreeId, ids: Vec<Arc<str>>) -> Result<Vec<Node>, Error> {
        self.0.run(move |db| index::nodes_of(db, tree, ids)).await
    }

    async fn chain(
        &mut self,
        tree: TreeId,
        start: NodeId,
        limit: usize,
    ) -> Result<Vec<Node>, Error> {
        self.0
            .run(move |db| index::chain(db, tree, start, limit))
            .await
    }

    async fn children(&mut self, tree: TreeId, parent: Option<NodeId>) -> Result<Vec<Node>, Error> {
        self.0
            .run(move |db| index::children(db, tree, parent))
            .await
    }

    async fn events(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Event>, Error> {
        self.0
            .run(move |db| events::after(db, tree, thread, after, limit))
            .await
    }

    async fn naming_events(
        &mut self,
        tree: TreeId,
        branches: Vec<BranchId>,
    ) -> Result<Vec<Event>, Error> {
        self.0
            .run(move |db| events::naming(db, tree, &branches))
            .await
    }

    async fn open_runs(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<OpenRun>, Error> {
        self.0
            .run(move |db| lookup::open_runs(db, tree, thread))
            .await
    }

    async fn own_points(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        below: i32,
        limit: usize,
    ) -> Result<Vec<Point>, Error> {
        self.0
            .run(move |db| outline::own_points(db, tree, thread, below, limit))
            .await
    }

    async fn own_nodes(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        after: i32,
        limit: usize,
    ) -> Result<Vec<Node>, Error> {
        self.0
            .run(move |db| outline::own_nodes(db, tree, thread, after, limit))
            .await
    }

    async fn segment(
        &mut self,
        tree: TreeId,
        end: NodeId,
        after: i32,
        limit: usize,
    ) -> Result<Vec<Node>, Error> {
        self.0
            .run(move |db| index::segment(db, tree, end, after, limit))
            .await
    }

    async fn followers(&mut self, tree: TreeId, parents: Vec<NodeId>) -> Result<Vec<Node>, Error> {
        self.0
            .run(move |db| index::followers(db, tree, &parents))
            .await
    }

    async fn members(&mut self, tree: TreeId) -> Result<Members, Error> {
        self.0.run(move |db| members::members(db, tree)).await
    }
}

#[async_trait]
impl Tx for Session<OpenTransaction> {
    async fn lock_branch(&mut self, tree: TreeId, id: BranchId) -> Result<Option<Branch>, Error> {
        self.0.run(move |db| lookup::branch(db, tree, id)).await
    }

    async fn insert_branch(&mut self, new: InsertBranch) -> Result<(), Error> {
        self.0
            .run(move |db| changes::insert_branch(db, &new, Timestamp::now()))
            .await
    }

    async fn copy_writes(
        &mut self,
        tree: TreeId,
        base: CheckpointId,
        from: BranchId,
        to: BranchId,
    ) -> Result<(), Error> {
        self.0
            .run(move |db| {
                let creation = branches::creation_id(db, tree, base, from)?;
                branches::copy_writes(db, tree, base, from, to)?;
                changes::set_creation(db, tree, to, creation)
            })
            .await
    }

    async fn rename_branch(
        &mut self,
        tree: TreeId,
        id: BranchId,
        name: Arc<str>,
    ) -> Result<(), Error> {
        self.0
            .run(move |db| changes::rename_branch(db, tree, id, &name, Timestamp::now()))
            .await
    }

    async fn delete_branch(&mut self, tree: TreeId, id: BranchId) -> Result<(), Error> {
        self.0
            .run(move |db| changes::delete_branch(db, tree, id))
            .await
    }

    async fn activate(&mut self, thread: ThreadId, branch: BranchId) -> Result<(), Error> {
        self.0
            .run(move |db| changes::activate(db, thread, branch, Timestamp::now()))
            .await
    }

    async fn put_tag(&mut self, tree: TreeId, thread: ThreadId, tag: Tag) -> Result<bool, Error> {
        self.0
            .run(move |db| changes::put_tag(db, tree, thread, &tag))
            .await
    }

    async fn delete_tag(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        name: Arc<str>,
    ) -> Result<bool, Error> {
        self.0
            .run(move |db| changes::delete_tag(db, tree, thread, &name))
            .await
    }

    async fn cancel_runs(&mut self, thread: ThreadId, runs: Vec<RunId>) -> Result<(), Error> {
        self.0
            .run(move |db| queue::cancel(db, thread, |open| runs.contains(&open), None).map(drop))
            .await
    }

    async fn pin_runs(&mut self, runs: Vec<RunId>, branch: BranchId) -> Result<(), Error> {
        self.0
            .run(move |db| changes::pin_runs(db, &runs, branch, Timestamp::now()))
            .await
    }

    async fn insert_fork(&mut self, new: InsertFork) -> Result<(), Error> {
        self.0
            .run(move |db| changes::insert_fork(db, &new, Timestamp::now()))
            .await
    }

    async fn put(&mut self, commit: Commit) -> Result<i32, Error> {
        self.0.run(move |db| commit::commit(db, &commit)).await
    }

    async fn set_outcome(
        &mut self,
        tree: TreeId,
        branch: BranchId,
        outcome: Outcome,
    ) -> Result<(), Error> {
        self.0
            .run(move |db| changes::set_outcome(db, tree, branch, outcome, Timestamp::now()))
            .await
    }

    async fn append(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        events: Vec<NewEvent>,
    ) -> Result<i64, Error> {
        self.0
            .run(move |db| changes::append(db, tree, thread, &events, Timestamp::now()))
            .await
    }

    async fn put_member(
        &mut self,
        tree: TreeId,
        principal: Arc<str>,
        level: Option<Level>,
    ) -> Result<(), Error> {
        self.0
            .run(move |db| members::put(db, tree, &principal, level))
            .await
    }

    async fn set_owner(&mut self, tree: TreeId, principal: Arc<str>) -> Result<(), Error> {
        self.0
            .run(move |db| members::set_owner(db, tree, &principal))
            .await
    }

    async fn commit(self: Box<Self>) -> Result<(), Error> {
        self.0.commit().await
    }
}

#[async_trait]
impl runs::Tx for Session<OpenTransaction> {
    async fn create_run(&mut self, new: NewRun) -> Result<Created, Error> {
        let kwargs = kept::encode(&new.kwargs, new.columns());
        self.0
            .run(move |db| queue::create(db, new, &kwargs, Timestamp::now()))
            .await
    }
}
