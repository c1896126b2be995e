//! The service itself: what it is made of, and transactions on the tree of a thread.

use std::sync::Arc;

use tokio::sync::Notify;

use super::Error;
use crate::{
    id::{ThreadId, TreeId},
    runs::{self, Shared},
    tree::{Thread, Tx, resolve, store::rows::ThreadRow},
};

/// The service of threads. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    pub(super) shared: Arc<Shared>,
    /// What runs on the threads.
    pub(super) runs: runs::Service,
    /// Notified when the derived rows of all threads may have to be made anew.
    pub(super) rebuild: Arc<Notify>,
}

impl Service {
    /// A service over what it shares with `runs`.
    pub fn new(shared: Arc<Shared>, runs: runs::Service) -> Self {
        Self {
            shared,
            runs,
            rebuild: Arc::default(),
        }
    }

    /// Begins to derive tables from events.
    pub fn start(&self) {
        tokio::spawn(self.clone().derive_tables());
    }

    /// Whether the storage responds.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<(), Error> {
        let none = ThreadId(uuid::Uuid::nil());
        self.shared.parts.tree.thread(none).await?;
        Ok(())
    }

    /// The thread's row.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub(super) async fn row(&self, id: ThreadId) -> Result<Thread, Error> {
        self.shared.thread(id).await
    }

    /// The tree of a thread.
    pub(super) async fn tree_of(&self, id: ThreadId) -> Result<TreeId, Error> {
        let mut reader = self.shared.parts.tree.reader().await?;
        Ok(resolve::thread(&mut *reader, id).await?.tree)
    }

    /// A transaction on the tree of a thread, and the thread as it is in it.
    pub(super) async fn begin(&self, id: ThreadId) -> Result<(Box<dyn Tx>, ThreadRow), Error> {
        let tree = self.tree_of(id).await?;
        let mut tx = self.shared.parts.tree.begin(tree).await?;
        let thread = resolve::thread(&mut *tx, id).await?;
        Ok((tx, thread))
    }
}
