//! Supersteps of many runs in one statement: each run is gated by its own branch, and what one of
//! them is refused does not touch the others.

mod columns;

use std::collections::HashSet;

use tokio_postgres::{Client, Statement, types::ToSql};

use self::columns::Columns;
use super::Kind;
use crate::{
    checkpoint::Commit, storage::postgres::columns::column, storage::postgres::connection::Failure,
};

/// What [`FULL`](super::FULL) does for each superstep of each branch of `c`, where `k` supersteps follow
/// each other and have so many events. No branch and no thread stands in `c` twice.
///
/// Rows have the number of their branch and find what the database knows of it in arrays, so that
/// nothing is joined behind the fence. The event number and the depth of `a` are those before.
pub(super) const MANY: &str = "
WITH c AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::uuid[], $6::int[], $7::bigint[])
    WITH ORDINALITY c(tree, branch, epoch, parent, id, k, events, n)),
f AS (
  UPDATE branches b SET head_checkpoint_id = c.id, head_depth = b.head_depth + c.k, version = b.version + c.k, updated_at = now()
    FROM c WHERE b.tree_id = c.tree AND b.branch_id = c.branch AND b.writer_epoch = c.epoch AND b.head_checkpoint_id IS NOT DISTINCT FROM c.parent
  RETURNING c.n, b.thread_id, b.head_depth - c.k AS depth, c.events),
e AS (
  UPDATE threads t SET last_event_number = t.last_event_number + f.events
    FROM f WHERE t.thread_id = f.thread_id AND f.events > 0 RETURNING f.n, t.last_event_number - f.events AS number),
g AS (
  SELECT f.n, f.depth, COALESCE((SELECT e.number FROM e WHERE e.n = f.n),
         (SELECT t.last_event_number FROM threads t WHERE t.thread_id = f.thread_id)) AS number FROM f),
a AS MATERIALIZED (
  SELECT array_agg((SELECT g.depth FROM g WHERE g.n = c.n) ORDER BY c.n) AS depths,
         array_agg((SELECT g.number FROM g WHERE g.n = c.n) ORDER BY c.n) AS numbers FROM c),
ck AS (
  INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id,
         last_node_id, event_number, run_id, source, step, checkpoint, blob_versions, metadata, created_at, run_supersteps, graph_id, assistant_id,
         result_task, result_header, result)
  SELECT x.tree, '', x.id, x.parent, a.depths[x.n] + x.i, x.thread, x.branch, x.last_node, GREATEST(x.event, a.numbers[x.n] + x.events),
         x.run, x.source, x.step, x.envelope, x.blob_versions, x.metadata, x.at, x.run_supersteps, x.graph, x.assistant,
         x.result_task, x.result_header, x.result
    FROM a, unnest($8::int[], $9::int[], $10::uuid[], $11::uuid[], $12::uuid[], $13::uuid[], $14::uuid[], $15::uuid[], $16::bigint[],
                   $17::bigint[], $18::uuid[], $19::text[], $20::bigint[], $21::bytea[], $22::text[], $23::timestamptz[], $24::int[], $71::jsonb[],
                   $72::text[], $73::uuid[], $74::uuid[], $75::text[], $76::bytea[])
         x(n, i, tree, id, parent, thread, branch, last_node, event, events, run, source, step, envelope, metadata, at, run_supersteps, blob_versions, graph, assistant,
           result_task, result_header, result)
   WHERE a.depths[x.n] IS NOT NULL),
bl AS (
  INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob)
  SELECT x.tree, '', x.channel, x.version, x.base, x.chain, x.type, x.blob
    FROM a, unnest($25::int[], $26::uuid[], $27::text[], $28::text[], $29::text[], $30::int[], $31::text[], $32::bytea[])
         x(n, tree, channel, version, base, chain, type, blob) WHERE a.depths[x.n] IS NOT NULL),
w AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT x.tree, '', x.cp, x.branch, x.task, x.idx, x.path, x.channel, x.type, x.writes
    FROM a, unnest($33::int[], $34::uuid[], $35::uuid[], $36::uuid[], $37::uuid[], $38::int[], $39::text[], $40::text[], $41::text[], $42::bytea[])
         x(n, tree, cp, branch, task, idx, path, channel, type, writes) WHERE a.depths[x.n] IS NOT NULL
  ON CONFLICT DO NOTHING),
ms AS (
  INSERT INTO message_nodes (tree_id, node_id, parent_node_id, ordinal, kind, message_id, edit_of, checkpoint_id, depth, seq,
         thread_id, branch_id, run_id, role, event_number)
  SELECT x.tree, x.node, x.parent, x.ordinal + COALESCE((SELECT p.ordinal FROM message_nodes p WHERE p.tree_id = x.tree AND p.node_id = x.base), 0),
         x.kind, x.message_id, x.edit_of, x.cp, a.depths[x.n] + x.i, x.seq, x.thread, x.branch, x.run, x.role,
         COALESCE(x.event_number, a.numbers[x.n] + x.event)
    FROM a, unnest($43::int[], $44::int[], $45::uuid[], $46::uuid[], $47::uuid[], $48::uuid[], $49::int[], $50::text[], $51::text[], $52::text[],
                   $53::uuid[], $54::int[], $55::uuid[], $56::uuid[], $57::uuid[], $58::text[], $59::bigint[], $60::bigint[])
         x(n, i, tree, node, parent, base, ordinal, kind, message_id, edit_of, cp, seq, thread, branch, run, role, event_number, event)
   WHERE a.depths[x.n] IS NOT NULL),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, kind, payload, branch_id, checkpoint_id, run_id, message_id)
  SELECT x.tree, x.thread, a.numbers[x.n] + x.event, x.kind, x.payload, x.branch, x.cp, x.run, x.message_id
    FROM a, unnest($61::int[], $62::bigint[], $63::uuid[], $64::uuid[], $65::smallint[], $66::jsonb[], $67::uuid[], $68::uuid[], $69::uuid[], $70::text[])
         x(n, event, tree, thread, kind, payload, branch, cp, run, message_id) WHERE a.depths[x.n] IS NOT NULL)
SELECT n::int AS n, depth FROM g";

/// Which commits of a group go in [`MANY`], by branch: of each branch those it begins with that change
/// nothing but the root graph and what belongs to it. What follows the first one that does more goes
/// behind.
pub(super) fn members(group: &[Commit]) -> Vec<Vec<usize>> {
    let (mut branches, mut threads) = (HashSet::new(), HashSet::new());
    let mut members = Vec::new();
    let mut from = 0;
    for of_branch in group.chunk_by(|a, b| a.slot.branch == b.slot.branch) {
        let (first, start) = (&of_branch[0], from);
        from += of_branch.len();
        // Events of two branches of a thread are numbered one after the other.
        if !branches.insert(first.slot.branch) || !threads.insert(first.slot.thread) {
            continue;
        }
        let follows = |at: usize| {
            let (before, next) = (&of_branch[at - 1], &of_branch[at]);
            next.slot.epoch == first.slot.epoch
                && next.checkpoint.parent == Some(before.checkpoint.id)
        };
        let belongs = |at: &usize| (*at == 0 || follows(*at)) && is_plain(&of_branch[*at]);
        let count = (0..of_branch.len()).take_while(belongs).count();
        if count > 0 {
            members.push((start..start + count).collect());
        }
    }
    members
}

/// A superstep of a run, whose results are all at its parent.
fn is_plain(commit: &Commit) -> bool {
    let is_light = Kind::of(commit) == Kind::Light;
    is_light || (commit.checkpoint.run.is_some() && Kind::of_rows(commit) == Kind::Light)
}

/// Sends the commits of `members`; returns each with its depth, without those that the fence refused. The
/// request leaves when this future is first polled.
pub(super) async fn send(
    client: &Client,
    statement: &Statement,
    group: &[Commit],
    members: &[Vec<usize>],
) -> Result<Vec<(usize, i32)>, Failure> {
    if members.is_empty() {
        return Ok(vec![]);
    }
    let mut columns = Columns::default();
    for of_branch in members {
        columns.add(of_branch.iter().map(|&at| &group[at]))?;
    }
    let params: Vec<&(dyn ToSql + Sync)> = columns.params();
    let mut depths = Vec::with_capacity(group.len());
    for row in client.query(statement, &params).await? {
        let number: i32 = column(&row, "n")?;
        let depth: i32 = column(&row, "depth")?;
        let index = usize::try_from(number - 1).ok();
        let of_branch = index.and_then(|index| members.get(index));
        depths.extend(of_branch.into_iter().flatten().copied().zip(depth + 1..));
    }
    Ok(depths)
}

statements!(MANY);
