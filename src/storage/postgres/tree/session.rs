//! Rows of the tree for its operations: read by themselves, or read and changed in a transaction
//! on a connection of its own.

use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::{Object, Pool};
use futures::FutureExt;

use super::{changes, index, lookup, members, outline, paths};
use crate::{
    checkpoint::{Commit, Error},
    id::{BranchId, CheckpointId, NodeId, RunId, ThreadId, TreeId},
    runs::{self, Created, NewRun},
    storage::postgres::{
        Store,
        connection::{
            self,
            transaction::{OpenTransaction, Work},
        },
    },
    tree::{
        Outcome, Read, Tx,
        members::{Level, Members},
        rows::{Branch, Event, NewEvent, Node, OpenRun, Point, Tag, ThreadRow},
        session::{InsertBranch, InsertFork},
    },
};

/// Where the statements of a session run.
trait Execute: Send + Sync + 'static {
    /// Runs `work` on a connection.
    fn run<T, F>(&mut self, work: F) -> impl Future<Output = Result<T, Error>> + Send
    where
        T: Send,
        F: for<'a> Fn(&'a Object) -> Work<'a, T> + Send + Sync;
}

impl Execute for Pool {
    async fn run<T, F>(&mut self, work: F) -> Result<T, Error>
    where
        T: Send,
        F: for<'a> Fn(&'a Object) -> Work<'a, T> + Send + Sync,
    {
        let work = &work;
        connection::retry(self, |client| async move { work(&client).await }).await
    }
}

impl Execute for OpenTransaction {
    async fn run<T, F>(&mut self, work: F) -> Result<T, Error>
    where
        T: Send,
        F: for<'a> Fn(&'a Object) -> Work<'a, T> + Send + Sync,
    {
        self.run(work).await
    }
}

/// Reads rows, and changes them when it is a transaction.
struct Session<E>(E);

impl Store {
    /// Rows to read, each call by itself.
    pub(crate) fn rows(&self) -> Box<dyn Read> {
        Box::new(Session(self.pools.reads.clone()))
    }

    /// A transaction that holds the tree's row.
    pub(crate) async fn transaction(&self, tree: TreeId) -> Result<Box<dyn runs::Tx>, Error> {
        Ok(Box::new(Session(self.turns.begin(tree).await?)))
    }
}

#[async_trait]
impl<E: Execute> Read for Session<E> {
    async fn thread_row(&mut self, id: ThreadId) -> Result<Option<ThreadRow>, Error> {
        self.0
            .run(move |db| lookup::thread_row(db, id).boxed())
            .await
    }

    async fn relatives(&mut self, tree: TreeId) -> Result<Vec<ThreadRow>, Error> {
        self.0
            .run(move |db| lookup::relatives(db, tree).boxed())
            .await
    }

    async fn branches(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<Branch>, Error> {
        self.0
            .run(move |db| lookup::branches(db, tree, thread).boxed())
            .await
    }

    async fn branch(&mut self, tree: TreeId, id: BranchId) -> Result<Option<Branch>, Error> {
        self.0
            .run(move |db| lookup::branch(db, tree, id).boxed())
            .await
    }

    async fn tags(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<Tag>, Error> {
        self.0
            .run(move |db| lookup::tags(db, tree, thread).boxed())
            .await
    }

    async fn tag(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        name: Arc<str>,
    ) -> Result<Option<Tag>, Error> {
        self.0
            .run(move |db| lookup::tag(db, tree, thread, name.clone()).boxed())
            .await
    }

    async fn point(&mut self, tree: TreeId, id: CheckpointId) -> Result<Option<Point>, Error> {
        self.0
            .run(move |db| paths::point(db, tree, id).boxed())
            .await
    }

    async fn path(
        &mut self,
        tree: TreeId,
        start: CheckpointId,
        limit: usize,
    ) -> Result<Vec<Point>, Error> {
        self.0
            .run(move |db| paths::path(db, tree, start, limit).boxed())
            .await
    }

    async fn visible(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        id: CheckpointId,
    ) -> Result<bool, Error> {
        self.0
            .run(move |db| paths::visible(db, tree, thread, id).boxed())
            .await
    }

    async fn on_path(
        &mut self,
        tree: TreeId,
        start: CheckpointId,
        ancestor: CheckpointId,
    ) -> Result<bool, Error> {
        self.0
            .run(move |db| paths::on_path(db, tree, start, ancestor).boxed())
            .await
    }

    async fn is_interrupted(
        &mut self,
        tree: TreeId,
        branch: BranchId,
        at: CheckpointId,
    ) -> Result<bool, Error> {
        self.0
            .run(move |db| paths::is_interrupted(db, tree, branch, at).boxed())
            .await
    }

    async fn node(&mut self, tree: TreeId, id: NodeId) -> Result<Option<Node>, Error> {
        self.0
            .run(move |db| index::node(db, tree, id).boxed())
            .await
    }

    async fn nodes_of(&mut self, tree: TreeId, ids: Vec<Arc<str>>) -> Result<Vec<Node>, Error> {
        self.0
            .run(move |db| index::nodes_of(db, tree, ids.clone()).boxed())
            .await
    }

    async fn chain(
        &mut self,
        tree: TreeId,
        start: NodeId,
        limit: usize,
    ) -> Result<Vec<Node>, Error> {
        self.0
            .run(move |db| index::chain(db, tree, start, limit).boxed())
            .await
    }

    async fn children(&mut self, tree: TreeId, parent: Option<NodeId>) -> Result<Vec<Node>, Error> {
        self.0
            .run(move |db| index::children(db, tree, parent).boxed())
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
            .run(move |db| lookup::events(db, tree, thread, after, limit).boxed())
            .await
    }

    async fn naming_events(
        &mut self,
        tree: TreeId,
        branches: Vec<BranchId>,
    ) -> Result<Vec<Event>, Error> {
        let branches = &Arc::new(branches);
        self.0
            .run(move |db| lookup::naming_events(db, tree, branches.clone()).boxed())
            .await
    }

    async fn open_runs(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<OpenRun>, Error> {
        self.0
            .run(move |db| lookup::open_runs(db, tree, thread).boxed())
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
            .run(move |db| outline::own_points(db, tree, thread, below, limit).boxed())
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
            .run(move |db| outline::own_nodes(db, tree, thread, after, limit).boxed())
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
            .run(move |db| index::segment(db, tree, end, after, limit).boxed())
            .await
    }

    async fn followers(&mut self, tree: TreeId, parents: Vec<NodeId>) -> Result<Vec<Node>, Error> {
        let parents = Arc::new(parents);
        self.0
            .run(move |db| index::followers(db, tree, parents.clone()).boxed())
            .await
    }

    async fn members(&mut self, tree: TreeId) -> Result<Members, Error> {
        self.0
            .run(move |db| members::members(db, tree).boxed())
            .await
    }
}

#[async_trait]
impl Tx for Session<OpenTransaction> {
    async fn lock_branch(&mut self, tree: TreeId, id: BranchId) -> Result<Option<Branch>, Error> {
        self.0
            .run(move |db| lookup::lock_branch(db, tree, id).boxed())
            .await
    }

    async fn insert_branch(&mut self, new: InsertBranch) -> Result<(), Error> {
        self.0
            .run(move |db| changes::insert_branch(db, new.clone()).boxed())
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
            .run(move |db| changes::copy_writes(db, tree, base, from, to).boxed())
            .await
    }

    async fn rename_branch(
        &mut self,
        tree: TreeId,
        id: BranchId,
        name: Arc<str>,
    ) -> Result<(), Error> {
        self.0
            .run(move |db| changes::rename_branch(db, tree, id, name.clone()).boxed())
            .await
    }

    async fn delete_branch(&mut self, tree: TreeId, id: BranchId) -> Result<(), Error> {
        self.0
            .run(move |db| changes::delete_branch(db, tree, id).boxed())
            .await
    }

    async fn activate(&mut self, thread: ThreadId, branch: BranchId) -> Result<(), Error> {
        self.0
            .run(move |db| changes::activate(db, thread, branch).boxed())
            .await
    }

    async fn put_tag(&mut self, tree: TreeId, thread: ThreadId, tag: Tag) -> Result<bool, Error> {
        self.0
            .run(move |db| changes::put_tag(db, tree, thread, tag.clone()).boxed())
            .await
    }

    async fn delete_tag(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        name: Arc<str>,
    ) -> Result<bool, Error> {
        self.0
            .run(move |db| changes::delete_tag(db, tree, thread, name.clone()).boxed())
            .await
    }

    async fn cancel_runs(&mut self, thread: ThreadId, runs: Vec<RunId>) -> Result<(), Error> {
        self.0
            .run(move |db| changes::cancel_runs(db, thread, runs.clone()).boxed())
            .await
    }

    async fn pin_runs(&mut self, runs: Vec<RunId>, branch: BranchId) -> Result<(), Error> {
        self.0
            .run(move |db| changes::pin_runs(db, runs.clone(), branch).boxed())
            .await
    }

    async fn insert_fork(&mut self, new: InsertFork) -> Result<(), Error> {
        self.0
            .run(move |db| changes::insert_fork(db, new.clone()).boxed())
            .await
    }

    async fn put(&mut self, commit: Commit) -> Result<i32, Error> {
        let commit = &Arc::new(commit);
        self.0
            .run(move |db| changes::put(db, commit.clone()).boxed())
            .await
    }

    async fn set_outcome(
        &mut self,
        tree: TreeId,
        branch: BranchId,
        outcome: Outcome,
    ) -> Result<(), Error> {
        self.0
            .run(move |db| changes::set_outcome(db, tree, branch, outcome).boxed())
            .await
    }

    async fn append(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        events: Vec<NewEvent>,
    ) -> Result<i64, Error> {
        let events = &Arc::new(events);
        self.0
            .run(move |db| changes::append(db, tree, thread, events.clone()).boxed())
            .await
    }

    async fn put_member(
        &mut self,
        tree: TreeId,
        principal: Arc<str>,
        level: Option<Level>,
    ) -> Result<(), Error> {
        let principal = &principal;
        self.0
            .run(move |db| members::put(db, tree, principal.clone(), level).boxed())
            .await
    }

    async fn set_owner(&mut self, tree: TreeId, principal: Arc<str>) -> Result<(), Error> {
        let principal = &principal;
        self.0
            .run(move |db| members::set_owner(db, tree, principal.clone()).boxed())
            .await
    }

    async fn commit(self: Box<Self>) -> Result<(), Error> {
        self.0.commit().await
    }
}

#[async_trait]
impl runs::Tx for Session<OpenTransaction> {
    async fn create_run(&mut self, new: NewRun) -> Result<Created, Error> {
        let new = &Arc::new(new);
        self.0
            .run(move |db| changes::create_run(db, new.clone()).boxed())
            .await
    }
}
