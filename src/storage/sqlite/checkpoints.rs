//! Checkpoints: hands each call to the writing thread or a reading one.

use std::sync::Arc;

use async_trait::async_trait;

use super::Store;
use crate::{
    checkpoint::{BlobRow, Commit, Error, Flush, List, Query, Saver, Stored, Version},
    id::TreeId,
};

/// Steps that a walk may take before the data is taken for damaged.
const MAX_WALK: i64 = 100_000;

/// A query for checkpoints, in the order of columns that [`load::read_checkpoint`] expects.
macro_rules! select {
    ($($rest:literal),+) => {
        concat!(
            "SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, \
             c.root_checkpoint_id, c.depth, c.thread_id, c.branch_id, c.run_id, c.source, c.step, \
             c.last_node_id, c.event_number, c.checkpoint, c.metadata, c.created_at ",
            $($rest),+
        )
    };
}

pub(crate) mod blobs;
pub(crate) mod commit;
mod flush;
mod list;
mod load;

/// What a test plans.
#[cfg(test)]
pub(super) const PLANNED: &[&str] = &[
    list::LIST_ALL,
    LIST_OF_NAMESPACE,
    load::BY_ID,
    load::END_OF_STEP,
    load::IN_SUBGRAPH,
    NEWEST,
    load::OF_ACTIVE_HEAD,
    load::OF_HEAD,
    load::WRITES,
];
#[cfg(test)]
pub(super) use self::{list::LIST_OF_NAMESPACE, load::NEWEST};

#[async_trait]
impl Saver for Store {
    async fn load(&self, query: Query) -> Result<Option<Stored>, Error> {
        self.readers.read(move |db| load::load(db, &query)).await
    }

    async fn list(&self, list: List) -> Result<Vec<Stored>, Error> {
        self.readers.read(move |db| list::list(db, &list)).await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let count = commits.len();
        // All are queued before the first is waited for: they keep their order and share a
        // transaction.
        let queued: Vec<_> = commits
            .into_iter()
            .map(|commit| self.writer.submit(move |db| commit::commit(db, &commit)))
            .collect();
        let mut results = Vec::with_capacity(count);
        for result in queued {
            results.push(result.await);
        }
        results
    }

    async fn flush(&self, flush: Flush) -> Result<(), Error> {
        self.writer.submit(move |db| flush::flush(db, &flush)).await
    }

    async fn blobs(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        wanted: Vec<(Arc<str>, Version)>,
    ) -> Result<Vec<BlobRow>, Error> {
        self.readers
            .read(move |db| blobs::blobs(db, tree, &ns, &wanted))
            .await
    }
}
