//! New runs on their way to those with which they are created.

use std::sync::{Arc, OnceLock};

use tokio::sync::oneshot;

use crate::{
    abandon,
    checkpoint::Error,
    contention::groups::Groups,
    id::BranchId,
    runs::{Created, NewRun, Strategy, request::codec::Encoded},
    storage::postgres::connection::{Failure, Pool},
};

/// Bytes of the largest request of a run that shares a transaction: those of a group are no large message of
/// its connection.
const LARGEST: usize = 8 << 10;

/// A run to create, and its request as the row has it.
pub(super) struct Creation {
    pub(super) new: NewRun,
    pub(super) kwargs: Encoded,
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

/// Runs that wait to be created.
#[derive(Clone)]
pub(in super::super::super) struct CreationQueue {
    waiting: Arc<OnceLock<Groups<Waiting>>>,
    pool: Pool,
}

impl CreationQueue {
    /// A queue whose groups take their connections from `pool`.
    pub(in super::super::super) fn new(pool: &Pool) -> Self {
        Self {
            waiting: Arc::default(),
            pool: pool.clone(),
        }
    }

    /// Creates a run with those that wait at that moment, unless others have locked its branch or it takes more
    /// than a row. Meanwhile it counts for the share that its principal has of the connections. The first call
    /// begins the groups.
    ///
    /// # Errors
    /// The principal has its share.
    pub(super) async fn create(
        &self,
        creation: &Arc<Creation>,
        begin: impl FnOnce(&Pool) -> Groups<Waiting>,
    ) -> Result<Tried, Error> {
        if !may_share(creation) {
            return Ok(Tried::NotWritten);
        }
        let _share = self.pool.share().await.map_err(Failure::into_error)?;
        let (reply, tried) = oneshot::channel();
        let creation = creation.clone();
        let groups = self.waiting.get_or_init(|| begin(&self.pool));
        groups.add(Waiting { creation, reply });
        // The reply is dropped when the group ends before it is known what became of its runs.
        Ok(abandon::statement(tried).await.unwrap_or(Tried::Unknown))
    }
}

fn may_share(creation: &Creation) -> bool {
    let new = &creation.new;
    let ends_none = matches!(new.strategy, Strategy::Reject | Strategy::Enqueue);
    ends_none && new.create_thread.is_none() && creation.kwargs.bytes.len() <= LARGEST
}

/// Whether the row of the tree is locked against deletions and changes of rights.
pub(super) fn shares_tree(new: &NewRun) -> bool {
    new.address.is_some() || new.access.principal().is_some()
}
