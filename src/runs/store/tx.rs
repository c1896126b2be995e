//! A transaction on a tree in which runs are created and ended.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Created, NewRun, Status, Undo};
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId, TreeId},
    tree,
    value::Value,
};

/// The runs of a tree on behalf of a principal whose rights are about to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunsOfPrincipal {
    /// Those that are executed, with their threads. Those of temporary threads, which nobody else has, are left out.
    pub executed: Vec<(ThreadId, RunId)>,
    /// Threads with runs that wait, which a claim leaves until it is told of these threads once the transaction has
    /// ended.
    pub waiting: Vec<ThreadId>,
}

/// A transaction on a tree, as [`tree::Store::begin`] returns it, that can create runs: a change of the
/// tree and the run that follows it become durable together.
#[async_trait]
pub trait Tx: tree::Tx {
    /// [`Store::create_run`](super::Store::create_run) inside this transaction.
    async fn create_run(&mut self, new: NewRun) -> Result<Created, Error>;

    /// Ends an open run from outside: raises the epoch of its branch and makes the row `interrupted`.
    /// The branch of a run that was executed has `error` then. False when it has ended or is not there.
    async fn end_run(&mut self, thread: ThreadId, run: RunId, error: Value) -> Result<bool, Error>;

    /// Lets the process that executes a run know that it is to be cancelled for this reason,
    /// `{"error", "message"}`. False when no other process executes it.
    async fn request_cancel(&mut self, run: RunId, reason: Value) -> Result<bool, Error>;

    /// The runs of a tree on behalf of a principal. A run that is claimed at this moment is executed, or is
    /// claimed anew once this transaction has ended; so this comes before other changes, since it waits for
    /// claims.
    async fn executed_for(
        &mut self,
        tree: TreeId,
        principal: Arc<str>,
    ) -> Result<RunsOfPrincipal, Error>;

    /// Deletes a run. What an open one has written is undone as far as no branch, tag or fork
    /// needs it, with its epoch raised; so is what the newest of a branch has written, unless the
    /// checkpoint it began at was pruned. Of others the checkpoints stay, since later ones build on
    /// them, and lists leave them out. Returns the status that it had; `None` when there is no such run.
    async fn remove_run(&mut self, what: Undo) -> Result<Option<Status>, Error>;
}
