//! New runs on their way to those with which they are created.

use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot};

use crate::{
    abandon,
    checkpoint::Error,
    id::BranchId,
    runs::{Created, NewRun, Strategy},
    storage::postgres::connection::{Failure, Pool},
};

/// Bytes of the largest request of a run that shares a transaction: those of a group are no large message of
/// its connection.
const LARGEST: usize = 8 << 10;

/// A run to create, and its request as the row has it.
pub(super) struct Creation {
    pub(super) new: NewRun,
    pub(super) kwargs: Vec<u8>,
    /// Of a thread that comes with it.
    pub(super) branch: BranchId,
}

/// What became of a run that was to be created with others.
pub(super) enum Tried {
    /// It is created, or refused.
    Done(Result<Created, Error>),
    /// Nothing was written of it: it is to be created alone.
    NotWritten,
    /// It is to be created alone if it was not written before a failure.
    Unknown,
}

/// A run, and where it goes what became of it.
pub(super) struct Waiting {
    pub(super) creation: Arc<Creation>,
    pub(super) reply: oneshot::Sender<Tried>,
}

/// The way to the task that creates groups, which starts with the first run and ends when every handle is gone.
#[derive(Clone, Default)]
pub(in super::super::super) struct CreationQueue(Arc<OnceLock<mpsc::UnboundedSender<Waiting>>>);

impl CreationQueue {
    /// Creates a run with those that wait at that moment, unless others have locked its branch or it takes more
    /// than a row. Meanwhile it counts for the share that its principal has of the connections of `pool`.
    ///
    /// # Errors
    /// The principal has its share.
    pub(super) async fn create(
        &self,
        creation: &Arc<Creation>,
        pool: &Pool,
        start: impl FnOnce(&Pool) -> mpsc::UnboundedSender<Waiting>,
    ) -> Result<Tried, Error> {
        if !may_share(creation) {
            return Ok(Tried::NotWritten);
        }
        let _share = pool.share().await.map_err(Failure::into_error)?;
        let waiting = self.0.get_or_init(|| start(pool));
        let (reply, tried) = oneshot::channel();
        let creation = creation.clone();
        let _ = waiting.send(Waiting { creation, reply });
        // Without the task the reply is dropped.
        Ok(abandon::statement(tried).await.unwrap_or(Tried::Unknown))
    }
}

fn may_share(creation: &Creation) -> bool {
    let new = &creation.new;
    let ends_none = matches!(new.strategy, Strategy::Reject | Strategy::Enqueue);
    ends_none && new.create_thread.is_none() && creation.kwargs.len() <= LARGEST
}

/// Whether the row of the tree is locked against deletions and changes of rights.
pub(super) fn shares_tree(new: &NewRun) -> bool {
    new.address.is_some() || new.access.principal().is_some()
}
