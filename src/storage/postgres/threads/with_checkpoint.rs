//! A thread with the level of a principal on it and one of its checkpoints, in one statement.

use std::sync::Arc;

use const_format::formatcp;

use super::rows::{FROM, LEVEL, THREAD, thread_of};
use crate::{
    checkpoint::{Error, Stored},
    id::{CheckpointId, ThreadId},
    storage::postgres::{
        checkpoints::{Names, row_named, writes_of},
        columns::{column, one, word},
        connection::{Object, Result},
    },
    tree::{ThreadWithCheckpoint, load::AT_ONCE},
};

/// How the columns of the checkpoint are called that the thread has too.
const NAMES: Names = Names {
    thread: "written_by_thread",
    branch: "written_by_branch",
    metadata: "checkpoint_metadata",
    created_at: "checkpoint_created_at",
};

/// Every look-up is one by primary key.
const WITH_CHECKPOINT: &str = formatcp!(
    "
SELECT {THREAD},
       {LEVEL},
       c.*, z.is_small, w.*
  {FROM}
  LEFT JOIN LATERAL (
    SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.root_checkpoint_id, c.depth, c.thread_id AS {thread},
           c.branch_id AS {branch}, c.run_id, c.source, c.step, c.last_node_id, c.event_number, c.checkpoint, c.blob_versions,
           c.metadata AS {metadata}, c.created_at AS {created_at}, c.run_supersteps, c.graph_id, c.assistant_id
      FROM checkpoints c WHERE c.tree_id = t.tree_id AND c.checkpoint_ns = ''
       AND c.checkpoint_id = COALESCE($3::uuid, b.head_checkpoint_id) LIMIT 1) c ON true
  LEFT JOIN LATERAL (
    SELECT COALESCE(sum({writes}), 0) <= {AT_ONCE} AS is_small FROM all_checkpoint_writes s
     WHERE s.tree_id = t.tree_id AND s.checkpoint_ns = '' AND s.checkpoint_id = c.checkpoint_id) z ON true
  LEFT JOIN LATERAL (
    SELECT array_agg(s.branch_id) AS w_branches, array_agg(s.task_id) AS w_tasks, array_agg(s.idx) AS w_idxs,
           array_agg(s.task_path) AS w_paths, array_agg(s.channel) AS w_channels, array_agg(s.type) AS w_types,
           array_agg(s.writes) AS w_writes
      FROM (SELECT * FROM all_checkpoint_writes s WHERE z.is_small AND s.tree_id = t.tree_id AND s.checkpoint_ns = ''
               AND s.checkpoint_id = c.checkpoint_id ORDER BY s.task_path, s.task_id, s.idx, s.branch_id) s) w ON true
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL",
    thread = NAMES.thread,
    branch = NAMES.branch,
    metadata = NAMES.metadata,
    created_at = NAMES.created_at,
    writes = weight!("s.type", "s.writes")
);

/// See [`tree::Store::thread_with_checkpoint`](crate::tree::Store::thread_with_checkpoint).
pub(in super::super) async fn thread_with_checkpoint(
    db: &Object,
    id: ThreadId,
    principal: &Option<Arc<str>>,
    at: Option<CheckpointId>,
) -> Result<Option<ThreadWithCheckpoint>> {
    let at = at.map(|at| at.0);
    one(
        db,
        WITH_CHECKPOINT,
        &[&id.0, &principal.as_deref(), &at],
        |row| {
            let level = column::<Option<&str>>(row, "level")?;
            let exists = column::<Option<uuid::Uuid>>(row, "checkpoint_id")?.is_some();
            let checkpoint = if exists && column(row, "is_small")? {
                let stored = row_named(row, &NAMES)?;
                Some(Stored {
                    blobs: vec![],
                    writes: writes_of(row, &stored)?,
                    row: stored,
                })
            } else {
                None
            };
            Ok::<_, Error>(ThreadWithCheckpoint {
                thread: thread_of(row)?,
                level: level.map(word).transpose()?,
                checkpoint,
            })
        },
    )
    .await
}

statements!(WITH_CHECKPOINT);
