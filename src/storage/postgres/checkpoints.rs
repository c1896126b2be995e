//! Checkpoints: every operation is one statement.

use std::sync::Arc;

use async_trait::async_trait;

use super::Store;
use crate::{
    checkpoint::{BlobRow, Commit, Error, Flush, List, Query, Saver, Stored, Version},
    id::TreeId,
};

/// The columns of a page, of the checkpoint row `c`.
macro_rules! columns {
    () => {
        " c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.root_checkpoint_id, c.depth, c.thread_id,
          c.branch_id, c.run_id, c.source, c.step, c.last_node_id, c.event_number, c.checkpoint, c.metadata, c.created_at "
    };
}

/// The pending writes of each row of `page` as arrays.
macro_rules! writes {
    () => {
        " LEFT JOIN LATERAL (
            SELECT array_agg(s.branch_id) AS w_branches, array_agg(s.task_id) AS w_tasks, array_agg(s.idx) AS w_idxs,
                   array_agg(s.task_path) AS w_paths, array_agg(s.channel) AS w_channels, array_agg(s.type) AS w_types,
                   array_agg(s.writes) AS w_writes
              FROM (SELECT * FROM checkpoint_writes s WHERE s.tree_id = $1 AND s.checkpoint_ns = p.checkpoint_ns
                       AND s.checkpoint_id = p.checkpoint_id ORDER BY s.task_path, s.task_id, s.idx, s.branch_id) s) w ON true "
    };
}

pub(crate) mod blobs;
pub(crate) mod commit;
mod flush;
mod list;
mod load;

#[async_trait]
impl Saver for Store {
    async fn load(&self, query: Query) -> Result<Option<Stored>, Error> {
        load::load(&self.pools.reads, query).await
    }

    async fn list(&self, list: List) -> Result<Vec<Stored>, Error> {
        list::list(&self.pools.reads, list).await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        self.commit_all(commits).await
    }

    async fn flush(&self, flush: Flush) -> Result<(), Error> {
        self.flush_writes(flush).await
    }

    async fn blobs(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        wanted: Vec<(Arc<str>, Version)>,
    ) -> Result<Vec<BlobRow>, Error> {
        blobs::blobs(&self.pools.reads, tree, ns, wanted).await
    }
}
