//! Supersteps of many runs in one statement: each is gated by its own branch, and what one of
//! them is refused does not touch the others.

use tokio_postgres::{Client, Statement, types::ToSql};
use uuid::Uuid;

use super::arrays::{Blobs, Writes};
use crate::{
    checkpoint::Commit,
    storage::postgres::{
        columns::{Json, Time},
        connection::Failure,
    },
};

/// What [`LIGHT`](super::LIGHT) does, for each row of `c`. No branch stands in it twice.
pub(super) const MANY: &str = "
WITH c AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::uuid[], $6::uuid[], $7::bigint[], $8::uuid[], $9::text[],
         $10::bigint[], $11::jsonb[], $12::jsonb[], $13::timestamptz[], $28::int[])
    WITH ORDINALITY c(tree, branch, epoch, parent, id, last_node, event, run, source, step, envelope, metadata, at, run_supersteps, n)),
f AS (
  UPDATE branches b SET head_checkpoint_id = c.id, head_depth = b.head_depth + 1, version = b.version + 1, updated_at = now()
    FROM c WHERE b.tree_id = c.tree AND b.branch_id = c.branch AND b.writer_epoch = c.epoch AND b.head_checkpoint_id IS NOT DISTINCT FROM c.parent
  RETURNING c.n, b.thread_id, b.head_depth),
ck AS (
  INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id,
         last_node_id, event_number, run_id, source, step, checkpoint, metadata, created_at, run_supersteps)
  SELECT c.tree, '', c.id, c.parent, f.head_depth, f.thread_id, c.branch, c.last_node,
         GREATEST(c.event, (SELECT t.last_event_number FROM threads t WHERE t.thread_id = f.thread_id)),
         c.run, c.source, c.step, c.envelope, c.metadata, c.at, c.run_supersteps FROM f JOIN c ON c.n = f.n),
bl AS (
  INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob)
  SELECT c.tree, '', x.channel, x.version, x.base, x.chain, x.type, x.blob FROM f JOIN c ON c.n = f.n
    JOIN unnest($14::bigint[], $15::text[], $16::text[], $17::text[], $18::int[], $19::text[], $20::bytea[])
         x(n, channel, version, base, chain, type, blob) ON x.n = f.n),
w AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT c.tree, '', c.parent, c.branch, x.task, x.idx, x.path, x.channel, x.type, x.writes FROM f JOIN c ON c.n = f.n
    JOIN unnest($21::bigint[], $22::uuid[], $23::int[], $24::text[], $25::text[], $26::text[], $27::bytea[])
         x(n, task, idx, path, channel, type, writes) ON x.n = f.n
  ON CONFLICT DO NOTHING)
SELECT n, head_depth FROM f";

/// Columns of the rows of `checkpoints`, and what gates them.
#[derive(Default)]
struct Rows<'a> {
    trees: Vec<Uuid>,
    branches: Vec<Uuid>,
    epochs: Vec<i64>,
    parents: Vec<Option<Uuid>>,
    ids: Vec<Uuid>,
    nodes: Vec<Option<Uuid>>,
    events: Vec<i64>,
    runs: Vec<Option<Uuid>>,
    sources: Vec<&'static str>,
    steps: Vec<i64>,
    envelopes: Vec<Json<'a>>,
    metadata: Vec<Json<'a>>,
    times: Vec<Time>,
    run_supersteps: Vec<i32>,
}

/// Columns of blobs and writes with the numbers of the commits they belong to.
#[derive(Default)]
struct Parts<'a> {
    blob_of: Vec<i64>,
    blobs: Blobs<'a>,
    write_of: Vec<i64>,
    writes: Writes<'a>,
}

/// Sends the commits, each of another branch; their depths, `None` for those that the fence
/// refused. The request leaves when this future is first polled.
pub(super) async fn send(
    client: &Client,
    statement: &Statement,
    commits: &[&Commit],
) -> Result<Vec<Option<i32>>, Failure> {
    let mut rows = Rows::default();
    let mut parts = Parts::default();
    for (number, commit) in (1_i64..).zip(commits) {
        let (slot, row) = (&commit.slot, &commit.checkpoint);
        rows.trees.push(slot.tree.0);
        rows.branches.push(slot.branch.0);
        rows.epochs.push(slot.epoch);
        rows.parents.push(row.parent.map(|id| id.0));
        rows.ids.push(row.id.0);
        rows.nodes.push(row.last_node.map(|id| id.0));
        rows.events.push(row.event_number);
        rows.runs.push(row.run.map(|id| id.0));
        rows.sources.push(row.source.as_str());
        rows.steps.push(row.step);
        rows.envelopes.push(Json::new(row.envelope.as_str()));
        rows.metadata.push(Json::new(row.metadata.as_str()));
        rows.times.push(Time(row.created_at));
        rows.run_supersteps.push(row.run_supersteps);
        parts.blobs.extend(&commit.blobs);
        parts.blob_of.resize(parts.blobs.len(), number);
        parts.writes.extend(&commit.writes);
        parts.write_of.resize(parts.writes.len(), number);
    }
    let (blobs, writes) = (&parts.blobs, &parts.writes);
    let params: [&(dyn ToSql + Sync); 28] = [
        &rows.trees,
        &rows.branches,
        &rows.epochs,
        &rows.parents,
        &rows.ids,
        &rows.nodes,
        &rows.events,
        &rows.runs,
        &rows.sources,
        &rows.steps,
        &rows.envelopes,
        &rows.metadata,
        &rows.times,
        &parts.blob_of,
        &blobs.channels,
        &blobs.versions,
        &blobs.bases,
        &blobs.chains,
        &blobs.tags,
        &blobs.bytes,
        &parts.write_of,
        &writes.tasks,
        &writes.idxs,
        &writes.paths,
        &writes.channels,
        &writes.tags,
        &writes.bytes,
        &rows.run_supersteps,
    ];
    let mut depths = vec![None; commits.len()];
    for row in client.query(statement, &params).await? {
        let number: i64 = row.try_get(0)?;
        let index = usize::try_from(number - 1).ok();
        if let Some(depth) = index.and_then(|index| depths.get_mut(index)) {
            *depth = Some(row.try_get(1)?);
        }
    }
    Ok(depths)
}

statements!(MANY);
