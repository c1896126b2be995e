//! Branches that are created with the first durable write of a run.

use tokio_postgres::Client;
use uuid::Uuid;

use super::{
    columns::{Params, id_if},
    connection::Result,
    events,
};
use crate::{
    checkpoint::{Error, NewBranch, Slot},
    id::{CheckpointId, TaskId},
    tree::opening::{self, Opening},
};

const EXISTS: &str = "SELECT 1 FROM branches WHERE tree_id = $1 AND branch_id = $2";

const SHARE_TREE: &str = "SELECT 1 FROM trees WHERE tree_id = $1 FOR SHARE";

/// Waits for flushes to the source in flight and checks that this writer still owns it.
const LOCK_SOURCE: &str = "
SELECT name FROM branches WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 FOR NO KEY UPDATE";

const BASE: &str = "
SELECT 1 FROM checkpoints WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2";

const NAMES: &str = "SELECT name FROM branches WHERE tree_id = $1 AND thread_id = $2";

const INSERT: &str = "
INSERT INTO branches (tree_id, branch_id, thread_id, name, head_checkpoint_id, head_depth, writer_epoch,
       origin, source_branch_id, creation_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// See [`opening::creation_id`].
const CREATION: &str = "
SELECT (SELECT s.checkpoint_id FROM checkpoints s
         WHERE s.tree_id = $1 AND s.root_checkpoint_id = $3 AND s.checkpoint_ns <> '' AND s.branch_id = $2
           AND EXISTS (SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = s.checkpoint_ns
                        AND w.checkpoint_id = s.parent_checkpoint_id AND w.branch_id = $2 AND w.idx = -3)
           AND NOT ($4 AND EXISTS (SELECT 1 FROM branches b WHERE b.tree_id = $1 AND b.branch_id = $2 AND b.head_checkpoint_id = $3))
         ORDER BY s.checkpoint_id LIMIT 1) AS resumed,
       (SELECT s.checkpoint_id FROM checkpoints s
         WHERE s.tree_id = $1 AND s.root_checkpoint_id = $3 AND s.checkpoint_ns <> ''
         ORDER BY s.checkpoint_id DESC LIMIT 1) AS newest";

/// The pending writes of the source at the base and in the subgraphs that stopped below it, as
/// they are, while that is its head. Once it went on, as they were at the interrupts: an interrupted
/// task loses its result and its resume values. Resume values for the whole run are not copied. A result that stands in
/// the row of the base is that of a task which was not interrupted. Of subgraphs of other branches, what is pending at
/// states that are older than the source's own copy is copied: the source goes on from these alone.
const COPY_WRITES: &str = "
INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
SELECT w.tree_id, w.checkpoint_ns, w.checkpoint_id, $3::uuid, w.task_id, w.idx, w.task_path, w.channel, w.type, w.writes
  FROM (SELECT w.*,
          (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = w.tree_id AND o.checkpoint_ns = w.checkpoint_ns
              AND o.checkpoint_id = w.checkpoint_id AND o.branch_id = w.branch_id AND o.task_id = w.task_id AND o.idx = 0) IS NOT NULL AS finished,
          (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = w.tree_id AND o.checkpoint_ns = w.checkpoint_ns
              AND o.checkpoint_id = w.checkpoint_id AND o.branch_id = w.branch_id AND o.task_id = w.task_id AND o.idx = -3) IS NOT NULL AS interrupted,
          EXISTS (SELECT 1 FROM branches b WHERE b.tree_id = $1 AND b.branch_id = $2 AND b.head_checkpoint_id = $4) AS present
          FROM (SELECT '' AS ns, $4::uuid AS id
                UNION ALL SELECT s.checkpoint_ns, s.checkpoint_id FROM checkpoints s
                  WHERE s.tree_id = $1 AND s.root_checkpoint_id = $4 AND s.checkpoint_ns <> ''
                    AND CASE WHEN s.branch_id = $2 THEN true ELSE s.checkpoint_id < (SELECT b.creation_id FROM branches b
                      WHERE b.tree_id = $1 AND b.branch_id = $2) END) c
         CROSS JOIN LATERAL (SELECT w.* FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = c.ns COLLATE \"C\"
             AND w.checkpoint_id = c.id AND w.branch_id = $2 OFFSET 0) w) w
 WHERE CASE w.channel
         WHEN '__interrupt__' THEN true
         WHEN '__step__' THEN true
         WHEN '__resume__' THEN w.task_id <> $5 AND (w.present OR NOT (w.interrupted AND w.finished))
         WHEN '__earlier__' THEN w.task_id <> $5 AND (w.present OR NOT (w.interrupted AND w.finished))
         ELSE w.finished AND (w.present OR NOT w.interrupted)
       END
UNION ALL
SELECT w.tree_id, w.checkpoint_ns, w.checkpoint_id, $3::uuid, w.task_id, w.idx, w.task_path, w.channel, w.type, w.writes
  FROM all_checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = '' AND w.checkpoint_id = $4 AND w.branch_id = $2
   AND w.idx = 0 AND w.task_id = (SELECT c.result_task FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = $4)
ON CONFLICT DO NOTHING";

const ACTIVATE: &str =
    "UPDATE threads SET active_branch_id = $2, updated_at = now() WHERE thread_id = $1";

const MOVE_RUN: &str = "
UPDATE runs SET branch_id = $3, opened_branch = true, base_checkpoint_id = $4, updated_at = now()
 WHERE tree_id = $1 AND run_id = $2 AND CASE WHEN status = 'running' THEN epoch = $5 END";

/// Creates the branch in the caller's transaction, unless it is there already. False when
/// somebody else took over the source; `Pruned` when its base is gone.
pub(super) async fn open(client: &Client, slot: &Slot, new: &NewBranch) -> Result<bool> {
    let tree = slot.tree.0;
    let exists = client.query_opt(EXISTS, &[&tree, &new.id.0]).await?;
    if exists.is_some() {
        return Ok(true);
    }
    // A new branch pins its base: no deletion may be under way.
    client.query_opt(SHARE_TREE, &[&tree]).await?;
    let source = new.source.branch.0;
    let locked = client
        .query_opt(LOCK_SOURCE, &[&tree, &source, &new.source.epoch])
        .await?;
    let Some(locked) = locked else {
        return Ok(false);
    };
    let base = new.base.map(|id| id.0);
    if let Some(id) = new.base
        && client.query_opt(BASE, &[&tree, &id.0]).await?.is_none()
    {
        return Err(Error::Pruned(id).into());
    }
    let from = new.copied_from().0;
    let creation = match base {
        Some(base) if new.copy_writes => {
            Some(creation_id(client, tree, (from, base), false).await?)
        }
        _ => None,
    };
    // A name that somebody else takes meanwhile fails the insert, and the whole transaction is
    // tried again.
    let rows = client.query(NAMES, &[&tree, &slot.thread.0]).await?;
    let names = rows.iter().map(|row| row.try_get(0));
    let names: Vec<&str> = names.collect::<Result<_, _>>()?;
    let opening = Opening::of(new, locked.try_get(0)?, &names);
    client
        .execute(
            INSERT,
            &[
                &tree,
                &new.id.0,
                &slot.thread.0,
                &&*opening.name,
                &base,
                &new.base_depth,
                &new.source.epoch,
                &new.origin,
                &from,
                &creation,
            ],
        )
        .await?;
    if let Some(base) = base.filter(|_| new.copy_writes) {
        copy_writes(client, tree, base, from, new.id.0).await?;
    }
    if let Some(run) = new.run {
        let epoch = new.source.epoch;
        let moved = client
            .execute(MOVE_RUN, &[&tree, &run.0, &new.id.0, &base, &epoch])
            .await?;
        if moved == 0 {
            return Ok(false);
        }
    }
    if new.activate {
        client
            .execute(ACTIVATE, &[&slot.thread.0, &new.id.0])
            .await?;
    }
    events::append(client, slot.tree, slot.thread, &opening.events).await?;
    Ok(true)
}

/// See [`opening::creation_id`]. With `rests` no run works on the branch: where its head is the base, all that it has
/// stored there is shared.
pub(super) async fn creation_id(
    client: &Client,
    tree: Uuid,
    (source, base): (Uuid, Uuid),
    rests: bool,
) -> Result<Uuid> {
    let of: Params<'_, 4> = [&tree, &source, &base, &rests];
    let row = client.query_one(CREATION, &of).await?;
    let id = |name| -> Result<_> { Ok(id_if(&row, name)?) };
    let creation = opening::creation_id(CheckpointId(base), id("resumed")?, id("newest")?);
    Ok(creation.0)
}

/// See [`COPY_WRITES`].
pub(super) async fn copy_writes(
    client: &Client,
    tree: Uuid,
    base: Uuid,
    from: Uuid,
    to: Uuid,
) -> Result<()> {
    client
        .execute(COPY_WRITES, &[&tree, &from, &to, &base, &TaskId::NULL.0])
        .await?;
    Ok(())
}

statements!(
    EXISTS,
    SHARE_TREE,
    LOCK_SOURCE,
    BASE,
    NAMES,
    INSERT,
    CREATION,
    COPY_WRITES,
    ACTIVATE,
    MOVE_RUN
);
