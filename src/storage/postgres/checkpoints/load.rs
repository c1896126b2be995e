//! One checkpoint with its values and pending writes, in one statement.

use std::sync::Arc;

use const_format::formatcp;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{COLUMNS, WRITES, blobs::blobs_of};
use crate::{
    checkpoint::{
        At, CheckpointRow, Error, Query, Stored, WriteRow, metadata::Columns, paths::whole, results,
    },
    id::{AssistantId, BranchId, CheckpointId, NodeId, RunId, TaskId, ThreadId},
    storage::postgres::{
        columns::{JsonText, Time, column, name, unname, word},
        connection::{Object, Result, prepare},
    },
};

/// How the columns of a checkpoint are called that rows of other tables have too.
pub(in super::super) struct Names {
    pub(in super::super) thread: &'static str,
    pub(in super::super) branch: &'static str,
    pub(in super::super) metadata: &'static str,
    pub(in super::super) created_at: &'static str,
}

const NAMES: Names = Names {
    thread: "thread_id",
    branch: "branch_id",
    metadata: "metadata",
    created_at: "created_at",
};

/// A row of `checkpoints`.
pub(super) fn row_of(row: &Row) -> Result<CheckpointRow, Error> {
    row_named(row, &NAMES)
}

/// A row of `checkpoints` beside those of other tables.
pub(in super::super) fn row_named(row: &Row, names: &Names) -> Result<CheckpointRow, Error> {
    let id = |name| column::<Option<Uuid>>(row, name);
    Ok(CheckpointRow {
        ns: unname(column(row, "checkpoint_ns")?),
        id: CheckpointId(column(row, "checkpoint_id")?),
        parent: id("parent_checkpoint_id")?.map(CheckpointId),
        root: id("root_checkpoint_id")?.map(CheckpointId),
        depth: column(row, "depth")?,
        thread: ThreadId(column(row, names.thread)?),
        branch: BranchId(column(row, names.branch)?),
        run: id("run_id")?.map(RunId),
        source: word(column(row, "source")?)?,
        step: column(row, "step")?,
        last_node: id("last_node_id")?.map(NodeId),
        event_number: column(row, "event_number")?,
        envelope: envelope(column(row, "checkpoint")?),
        blob_versions: column::<JsonText>(row, "blob_versions")?.0,
        metadata: metadata_of(row, column::<JsonText>(row, names.metadata)?)?,
        created_at: column::<Time>(row, names.created_at)?.0,
        run_supersteps: column(row, "run_supersteps")?,
    })
}

/// The metadata of a checkpoint, of which columns have a part.
pub(super) fn metadata_of(row: &Row, rest: JsonText) -> Result<String, Error> {
    let assistant = column::<Option<Uuid>>(row, "assistant_id")?;
    let columns = Columns {
        graph: column(row, "graph_id")?,
        assistant: assistant.map(AssistantId),
        rest: rest.0.into(),
    };
    Ok(columns.text())
}

/// JSON text is stored with the escapes that a `jsonb` needs.
pub(super) fn envelope(bytes: Vec<u8>) -> Vec<u8> {
    if bytes.first() == Some(&b'{') {
        JsonText::of_column(&String::from_utf8_lossy(&bytes))
            .0
            .into_bytes()
    } else {
        bytes
    }
}

/// The aggregated writes at a checkpoint.
pub(in super::super) fn writes_of(row: &Row, at: &CheckpointRow) -> Result<Vec<WriteRow>, Error> {
    results::split_all(aggregated_writes(row, |_| at)?)
}

/// The aggregated writes at several checkpoints; `at` returns the one of each.
pub(super) fn aggregated_writes<'a>(
    row: &Row,
    at: impl Fn(usize) -> &'a CheckpointRow,
) -> Result<Vec<WriteRow>, Error> {
    let Some(tasks) = column::<Option<Vec<Uuid>>>(row, "w_tasks")? else {
        return Ok(Vec::new());
    };
    let branches: Vec<Uuid> = column(row, "w_branches")?;
    let idxs: Vec<i32> = column(row, "w_idxs")?;
    let paths: Vec<&str> = column(row, "w_paths")?;
    let channels: Vec<Option<&str>> = column(row, "w_channels")?;
    let tags: Vec<&str> = column(row, "w_types")?;
    let bytes: Vec<Vec<u8>> = column(row, "w_writes")?;
    Ok(bytes
        .into_iter()
        .enumerate()
        .map(|(index, bytes)| WriteRow {
            ns: Arc::clone(&at(index).ns),
            checkpoint: at(index).id,
            branch: BranchId(branches[index]),
            task: TaskId(tasks[index]),
            idx: idxs[index],
            path: unname(&whole(paths[index])),
            channel: channels[index].filter(|name| !name.is_empty()).map(unname),
            tag: Arc::from(tags[index]),
            bytes,
            upsert: false,
        })
        .collect())
}

/// Completes `WITH RECURSIVE page AS (one row)`: `$2` is true when values are wanted. Every step
/// of a chain is a look-up by primary key: LIMIT keeps the planner from joining in another way.
macro_rules! load {
    ($page:expr) => {
        formatcp!(
            "WITH RECURSIVE page AS ({page}),
chain AS (
  SELECT b.* FROM page p CROSS JOIN LATERAL jsonb_each_text(p.blob_versions) v
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version, b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = v.key AND b.version = v.value LIMIT 1) b
   WHERE $2
  UNION ALL
  SELECT b.* FROM chain k CROSS JOIN page p
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version, b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = k.channel AND b.version = k.base_version LIMIT 1) b)
SELECT p.*, w.*, b.* FROM page p {WRITES}
  LEFT JOIN LATERAL (
    SELECT array_agg(k.channel) AS b_channels, array_agg(k.version) AS b_versions, array_agg(k.base_version) AS b_bases,
           array_agg(k.chain_bytes) AS b_chains, array_agg(k.type) AS b_types, array_agg(k.blob) AS b_blobs FROM chain k) b ON true",
            page = $page
        )
    };
}

const BY_ID: &str = load!(formatcp!(
    "SELECT {COLUMNS} FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = $3 AND c.checkpoint_id = $4"
));

const BY_BRANCH: &str = load!(formatcp!(
    "SELECT {COLUMNS} FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = $3
        AND c.checkpoint_id = (SELECT h.head_checkpoint_id FROM branches h WHERE h.tree_id = $1 AND h.branch_id = $4)"
));

const BY_THREAD: &str = load!(formatcp!(
    "SELECT {COLUMNS} FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = $3
        AND c.checkpoint_id = (SELECT h.head_checkpoint_id FROM branches h WHERE h.tree_id = $1
          AND h.branch_id = (SELECT t.active_branch_id FROM threads t WHERE t.thread_id = $4 AND t.deleted_at IS NULL))"
));

const NEWEST: &str = load!(formatcp!(
    "SELECT {COLUMNS} FROM checkpoints c WHERE c.tree_id = $1 AND c.thread_id = $4 AND c.checkpoint_ns = $3
      ORDER BY c.checkpoint_id DESC LIMIT 1"
));

/// Walks the path from the root checkpoint `$4` and stops at the first row of the namespace that
/// belongs to it. `owner` is the branch whose subgraph rows count: that of the child on the path.
/// So do those which a run that stores at its exit had made before the root checkpoint, those that the branch shares with
/// the one it was made from, and that one with its own, and those at which its own copy of an interrupt stands, whichever branch wrote them: where a checkpoint is answered on one branch after another,
/// each of them copies the interrupts of the one before.
/// Where neither the thread nor one above wrote in the namespace, which is the usual case, there is no walk.
const SUBGRAPH: &str = load!(formatcp!(
    "SELECT * FROM (WITH RECURSIVE path AS (
       SELECT r.checkpoint_id, r.parent_checkpoint_id, r.branch_id, $5::uuid AS owner
         FROM checkpoints r WHERE r.tree_id = $1 AND r.checkpoint_ns = '' AND r.checkpoint_id = $4
          AND EXISTS (
            WITH RECURSIVE above AS (
              SELECT $7::uuid AS thread_id
              UNION ALL
              SELECT t.parent_thread_id FROM above a CROSS JOIN LATERAL (
                SELECT t.parent_thread_id FROM threads t WHERE t.thread_id = a.thread_id LIMIT 1) t WHERE t.parent_thread_id IS NOT NULL)
            SELECT 1 FROM above a CROSS JOIN LATERAL (
              SELECT 1 FROM checkpoints s WHERE s.tree_id = $1 AND s.checkpoint_ns = $3 AND s.thread_id = a.thread_id LIMIT 1) s)
       UNION ALL
       SELECT r.checkpoint_id, r.parent_checkpoint_id, r.branch_id, p.branch_id
         FROM path p CROSS JOIN LATERAL (SELECT r.checkpoint_id, r.parent_checkpoint_id, r.branch_id FROM checkpoints r
                WHERE r.tree_id = $1 AND r.checkpoint_ns = '' AND r.checkpoint_id = p.parent_checkpoint_id LIMIT 1) r)
     SELECT c.* FROM path p CROSS JOIN LATERAL (
       SELECT {COLUMNS} FROM (SELECT c.* FROM checkpoints c
           WHERE c.tree_id = $1 AND c.checkpoint_ns = $3 AND c.checkpoint_ns <> '' AND c.root_checkpoint_id = p.checkpoint_id
             AND c.checkpoint_id < COALESCE($6, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
           ORDER BY c.checkpoint_id DESC OFFSET 0) c
         LEFT JOIN branches o ON o.tree_id = $1 AND o.branch_id = p.owner
        WHERE (c.branch_id = p.owner OR (c.branch_id = p.branch_id AND c.checkpoint_id < p.checkpoint_id)
            OR CASE WHEN c.checkpoint_id < o.creation_id THEN EXISTS (
                 WITH RECURSIVE shared AS (
                   SELECT o.source_branch_id AS id, o.creation_id AS creation
                   UNION ALL
                   SELECT b.source_branch_id, LEAST(a.creation, b.creation_id) FROM shared a CROSS JOIN LATERAL (
                     SELECT b.source_branch_id, b.creation_id FROM branches b WHERE b.tree_id = $1 AND b.branch_id = a.id
                        AND b.creation_id IS NOT NULL LIMIT 1) b)
                 SELECT 1 FROM shared a WHERE a.id = c.branch_id AND c.checkpoint_id < a.creation)
              OR (SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = $1
                 AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
                 AND w.branch_id = p.owner AND w.idx = -3 LIMIT 1) IS NOT NULL END)
        ORDER BY c.checkpoint_id DESC LIMIT 1) c
     LIMIT 1) c"
));

/// One checkpoint with its pending writes and, when the query asks for them, its values.
pub(crate) async fn load(db: &Object, query: &Query) -> Result<Option<Stored>> {
    let (tree, ns) = (query.tree.0, name(&query.ns));
    let (text, id) = match &query.at {
        At::Id(id) => (BY_ID, id.0),
        At::Head(branch) => (BY_BRANCH, branch.0),
        At::ActiveHead => (BY_THREAD, query.thread.0),
        At::Newest => (NEWEST, query.thread.0),
        At::Subgraph { start, .. } => (SUBGRAPH, start.0),
    };
    let (owner, before, thread);
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&tree, &query.values, &ns, &id];
    if let At::Subgraph {
        branch,
        before: end,
        ..
    } = &query.at
    {
        (owner, before, thread) = (branch.0, end.map(|id| id.0), query.thread.0);
        params.extend([&owner as &(dyn ToSql + Sync), &before, &thread]);
    }
    let statement = prepare(db, text).await?;
    let row = db.query_opt(&statement, &params).await?;
    let Some(row) = row else { return Ok(None) };
    let stored = row_of(&row)?;
    Ok(Some(Stored {
        blobs: blobs_of(&row, |_| Arc::clone(&query.ns))?,
        writes: writes_of(&row, &stored)?,
        row: stored,
    }))
}

statements!(BY_ID, BY_BRANCH, BY_THREAD, NEWEST, SUBGRAPH);
