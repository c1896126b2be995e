//! Supersteps: one fenced statement each.

use std::collections::HashSet;

use futures::future::join_all;
use tokio_postgres::{Client, Statement, types::ToSql};
use uuid::Uuid;

use self::arrays::{Blobs, Events, Nodes, Writes};
use crate::{
    checkpoint::{Commit, Error, WriteRow, metadata::Columns},
    id::CheckpointId,
    runs::Finish,
    storage::postgres::{
        branches,
        columns::{Json, Time, envelope_bytes, name},
        connection::{self, Failure, Object, Pool, prepare},
    },
};

pub(crate) mod arrays;
mod batch;
pub(crate) mod end;
pub(crate) mod queue;

/// A superstep of the root graph without messages and events, whose writes are results at the
/// parent checkpoint.
const LIGHT: &str = "
WITH f AS (
  UPDATE branches SET head_checkpoint_id = $5, head_depth = head_depth + 1, version = version + 1, updated_at = now()
   WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 AND head_checkpoint_id IS NOT DISTINCT FROM $4
  RETURNING thread_id, head_depth),
ck AS (
  INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id,
         last_node_id, event_number, run_id, source, step, checkpoint, blob_versions, metadata, created_at, run_supersteps, graph_id, assistant_id)
  SELECT $1, '', $5, $4, f.head_depth, f.thread_id, $2, $6,
         GREATEST($7::bigint, (SELECT t.last_event_number FROM threads t WHERE t.thread_id = f.thread_id)), $8, $9, $10, $11, $27, $12, $13, $26, $28, $29 FROM f),
bl AS (
  INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob)
  SELECT $1, '', x.* FROM f, unnest($14::text[], $15::text[], $16::text[], $17::int[], $18::text[], $19::bytea[]) x),
w AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT $1, '', $4, $2, x.* FROM f, unnest($20::uuid[], $21::int[], $22::text[], $23::text[], $24::text[], $25::bytea[]) x
  ON CONFLICT DO NOTHING)
SELECT head_depth FROM f";

/// Any superstep of the root graph. Within a run the time of the thread stays, for which lists have an
/// index: the end of the run moves it. A post or an edit is a change of its own.
const FULL: &str = concat!(
    "
WITH f AS (
  UPDATE branches SET head_checkpoint_id = $5, head_depth = head_depth + 1, version = version + 1, updated_at = now()
   WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 AND head_checkpoint_id IS NOT DISTINCT FROM $4
  RETURNING thread_id, head_depth),
e AS (
  UPDATE threads t SET last_event_number = t.last_event_number + $29,
         updated_at = CASE WHEN $8::uuid IS NULL THEN clock_timestamp() ELSE t.updated_at END
    FROM f WHERE t.thread_id = f.thread_id AND $29::bigint > 0 RETURNING t.last_event_number AS n),
ck AS (
  INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id,
         last_node_id, event_number, run_id, source, step, checkpoint, blob_versions, metadata, created_at, run_supersteps, graph_id, assistant_id)
  SELECT $1, '', $5, $4, f.head_depth, f.thread_id, $2, $6,
         GREATEST($7::bigint, COALESCE((SELECT n FROM e), (SELECT t.last_event_number FROM threads t WHERE t.thread_id = f.thread_id))),
         $8, $9, $10, $11, $46, $12, $13, $45, $47, $48 FROM f),
bl AS (
  INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob)
  SELECT $1, '', x.* FROM f, unnest($14::text[], $15::text[], $16::text[], $17::int[], $18::text[], $19::bytea[]) x),",
    insert_writes!("$26::text[], $27::uuid[], $20::uuid[], $21::int[], $22::text[], $23::text[], $24::text[], $25::bytea[], $28::bool[]"),
    ",
ms AS (
  INSERT INTO message_nodes (tree_id, node_id, parent_node_id, ordinal, kind, message_id, edit_of, checkpoint_id, depth, seq,
         thread_id, branch_id, run_id, role, event_number)
  SELECT $1, m.node_id, m.parent_node_id, m.ordinal + COALESCE((SELECT p.ordinal FROM message_nodes p WHERE p.tree_id = $1 AND p.node_id = $30), 0),
         m.kind, m.message_id, m.edit_of, $5, f.head_depth, m.seq, f.thread_id, $2, $8, m.role, COALESCE(m.event_number, e.n - $29 + m.event_offset)
    FROM f CROSS JOIN unnest($31::uuid[], $32::uuid[], $33::int[], $34::text[], $35::text[], $36::text[], $37::int[], $38::text[], $39::bigint[], $40::int[])
         m(node_id, parent_node_id, ordinal, kind, message_id, edit_of, seq, role, event_number, event_offset) LEFT JOIN e ON true),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, kind, payload, branch_id, checkpoint_id, run_id, message_id)
  SELECT $1, f.thread_id, e.n - $29 + x.i, x.kind, x.payload, $2, $5, x.run_id, x.message_id
    FROM f, e, unnest($41::smallint[], $42::jsonb[], $43::uuid[], $44::text[]) WITH ORDINALITY x(kind, payload, run_id, message_id, i))
SELECT head_depth FROM f"
);

/// A superstep of a subgraph: gated by the epoch alone. A retry changes nothing.
const SUBGRAPH: &str = concat!(
    "
WITH f AS (SELECT 1 FROM branches WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 FOR SHARE),
ck AS (
  INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id,
         last_node_id, event_number, run_id, source, step, checkpoint, blob_versions, metadata, created_at, root_checkpoint_id, run_supersteps, graph_id, assistant_id)
  SELECT $1, $29, $5, $4, $30, $31, $2, $6, $7, $8, $9, $10, $11, $34, $12, $13, $32, $33, $35, $36 FROM f ON CONFLICT DO NOTHING),
bl AS (
  INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob)
  SELECT $1, $29, x.* FROM f, unnest($14::text[], $15::text[], $16::text[], $17::int[], $18::text[], $19::bytea[]) x
  ON CONFLICT DO NOTHING),",
    insert_writes!("$26::text[], $27::uuid[], $20::uuid[], $21::int[], $22::text[], $23::text[], $24::text[], $25::bytea[], $28::bool[]"),
    "
SELECT $30::int FROM f"
);

/// The head of a branch, to find out whether a commit whose reply was lost took effect.
const HEAD: &str = "SELECT head_checkpoint_id, head_depth, writer_epoch FROM branches WHERE tree_id = $1 AND branch_id = $2";

/// Which statement a commit needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Light,
    Full,
    Subgraph,
}

impl Kind {
    pub(crate) fn of(commit: &Commit) -> Self {
        match Self::of_rows(commit) {
            Self::Light if !commit.nodes.is_empty() || !commit.events.is_empty() => Self::Full,
            kind => kind,
        }
    }

    /// [`Kind::of`] a commit without its messages and events.
    fn of_rows(commit: &Commit) -> Self {
        let row = &commit.checkpoint;
        if !row.ns.is_empty() {
            return Self::Subgraph;
        }
        let plain = |write: &WriteRow| {
            write.ns.is_empty() && Some(write.checkpoint) == row.parent && !write.upsert
        };
        if commit.writes.iter().all(plain) {
            Self::Light
        } else {
            Self::Full
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Light => LIGHT,
            Self::Full => FULL,
            Self::Subgraph => SUBGRAPH,
        }
    }
}

/// Sends one superstep; `None` when the fence refused it.
///
/// The request leaves when this future is first polled.
pub(crate) async fn send(
    client: &Client,
    statement: &Statement,
    kind: Kind,
    commit: &Commit,
) -> Result<Option<i32>, Failure> {
    let (slot, row) = (&commit.slot, &commit.checkpoint);
    let blobs = Blobs::of(&commit.blobs);
    let writes = Writes::of(&commit.writes);
    let parent = row.parent.map(|id| id.0);
    let last_node = row.last_node.map(|id| id.0);
    let run = row.run.map(|id| id.0);
    let root = row.root.map(|id| id.0);
    let source = row.source.as_str();
    let envelope = envelope_bytes(&row.envelope);
    let blob_versions = Json::new(row.blob_versions.as_str());
    let own = Columns::of(&row.metadata);
    let metadata = Json::new(own.rest);
    let assistant = own.assistant.map(|id| id.0);
    let created_at = Time(row.created_at);
    let ns = name(&row.ns);
    let (count, nodes, events);
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![
        &slot.tree.0,
        &slot.branch.0,
        &slot.epoch,
        &parent,
        &row.id.0,
        &last_node,
        &row.event_number,
        &run,
        &source,
        &row.step,
        &envelope,
        &metadata,
        &created_at,
        &blobs.channels,
        &blobs.versions,
        &blobs.bases,
        &blobs.chains,
        &blobs.tags,
        &blobs.bytes,
        &writes.tasks,
        &writes.idxs,
        &writes.paths,
        &writes.channels,
        &writes.tags,
        &writes.bytes,
    ];
    if kind != Kind::Light {
        params.extend([
            &writes.nss as &(dyn ToSql + Sync),
            &writes.checkpoints,
            &writes.upserts,
        ]);
    }
    match kind {
        Kind::Light => {}
        Kind::Full => {
            count = i64::try_from(commit.events.len()).unwrap_or(i64::MAX);
            nodes = Nodes::of(&commit.nodes);
            events = Events::of(&commit.events)?;
            params.extend([
                &count as &(dyn ToSql + Sync),
                &nodes.base,
                &nodes.ids,
                &nodes.parents,
                &nodes.ordinals,
                &nodes.kinds,
                &nodes.messages,
                &nodes.replaced,
                &nodes.positions,
                &nodes.roles,
                &nodes.numbers,
                &nodes.offsets,
                &events.kinds,
                &events.payloads,
                &events.runs,
                &events.messages,
            ]);
        }
        Kind::Subgraph => {
            params.extend([&ns as &(dyn ToSql + Sync), &row.depth, &row.thread.0, &root]);
        }
    }
    params.push(&row.run_supersteps);
    params.extend([
        &blob_versions as &(dyn ToSql + Sync),
        &own.graph,
        &assistant,
    ]);
    let depth = client.query_opt(statement, &params).await?;
    Ok(depth.map(|row| row.try_get(0)).transpose()?)
}

/// What shares a transaction: supersteps, and ends of runs.
///
/// The supersteps of one branch follow each other in their order, and one with a branch to open is
/// alone.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) commits: Vec<Commit>,
    pub(crate) ends: Vec<End>,
}

/// The end of a run, and the checkpoint that it is to find as the head if supersteps of the run go with
/// it.
pub(crate) type End = (Finish, Option<CheckpointId>);

/// What became of a group: the depth of each checkpoint, and of each run that has ended where its last frames are in the
/// log; nothing where the fence refused it.
pub(crate) struct Written {
    pub(crate) depths: Vec<Option<i32>>,
    pub(crate) ends: Vec<Option<Vec<i64>>>,
}

/// Writes a group in one transaction and one round trip.
///
/// # Errors
/// The transaction failed as a whole: nothing is known to be written. Transient failures were
/// retried a few times.
pub(crate) async fn together(pool: &Pool, group: &Group) -> Result<Written, Error> {
    let attempt = |mut client| async move { attempt(&mut client, group).await };
    connection::retry(pool, attempt).await
}

/// [`together`] without a retry: who can divide the group need not let all of it wait for one
/// member.
///
/// # Errors
/// As [`together`].
pub(crate) async fn together_once(pool: &Pool, group: &Group) -> Result<Written, Error> {
    let attempt = |mut client| async move { attempt(&mut client, group).await };
    connection::once(pool, attempt).await
}

async fn attempt(client: &mut Object, group: &Group) -> Result<Written, Failure> {
    let frames = group.ends.iter().map(|(finish, _)| finish.frame_bytes());
    let bytes = group.commits.iter().map(Commit::bytes).chain(frames);
    client.carries(bytes.sum());
    let mut written = match (&*group.commits, &*group.ends) {
        ([commit], []) if commit.open.is_some() => Written {
            depths: vec![open_and_send(client, commit).await?],
            ends: vec![],
        },
        ([commit], []) => {
            let kind = Kind::of(commit);
            let statement = prepare(client, kind.text()).await?;
            Written {
                depths: vec![send(client, &statement, kind, commit).await?],
                ends: vec![],
            }
        }
        _ => send_together(client, group).await?,
    };
    if written.depths.contains(&None) {
        let mut from = 0;
        for one in group
            .commits
            .chunk_by(|a, b| a.slot.branch == b.slot.branch)
        {
            let depths = &mut written.depths[from..from + one.len()];
            if depths.contains(&None) {
                resolve_lost_reply(client, one, depths).await?;
            }
            from += one.len();
        }
    }
    for ((finish, _), positions) in group.ends.iter().zip(&mut written.ends) {
        if positions.is_none() && end::was_written(client, finish).await? {
            *positions = Some(vec![]);
        }
    }
    Ok(written)
}

/// A transaction in one round trip: the supersteps that can share one statement, then those that cannot, each
/// in its own, and the ends in the same way. The requests leave in the order in which the futures are first polled, which is their order
/// here.
async fn send_together(client: &Object, group: &Group) -> Result<Written, Failure> {
    let (commits, ends) = (&*group.commits, &group.ends);
    let members = batch::members(commits);
    let ahead: HashSet<usize> = members.iter().flatten().copied().collect();
    let many = prepare(client, batch::MANY).await?;
    let finish = prepare(client, end::text(ends.iter().map(|end| &end.0))).await?;
    let mut rest = Vec::with_capacity(commits.len() - ahead.len());
    for (at, commit) in commits.iter().enumerate() {
        if !ahead.contains(&at) {
            let kind = Kind::of(commit);
            rest.push((at, kind, prepare(client, kind.text()).await?));
        }
    }
    let ahead = batch::send(client, &many, commits, &members);
    let mut depths = vec![None; commits.len()];
    if rest.is_empty() && ends.is_empty() {
        // One statement is a transaction.
        for (at, depth) in ahead.await? {
            depths[at] = Some(depth);
        }
        let ends = vec![];
        return Ok(Written { depths, ends });
    }
    let (shared, apart) = end::divide(ends);
    let bound = |at: &usize| (&ends[*at].0, ends[*at].1);
    let mut positions = vec![None; ends.len()];
    let together = end::send(client, &finish, shared.iter().map(bound));
    if commits.is_empty() && apart.is_empty() {
        for ended in together.await? {
            positions[shared[ended.at]] = Some(ended.positions);
        }
        let ends = positions;
        return Ok(Written { depths, ends });
    }
    let sends = rest
        .iter()
        .map(|(at, kind, statement)| send(client, statement, *kind, &commits[*at]));
    let finishes = apart
        .iter()
        .map(|at| end::send(client, &finish, std::iter::once(bound(at))));
    let (begin, ahead, results, together, finishes, end) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        ahead,
        join_all(sends),
        together,
        join_all(finishes),
        client.batch_execute("COMMIT"),
    );
    begin?;
    // After a failure the rest only reports that the transaction is over, and COMMIT rolls back.
    for (at, depth) in ahead? {
        depths[at] = Some(depth);
    }
    for ((at, ..), depth) in rest.iter().zip(results) {
        depths[*at] = depth?;
    }
    for ended in together? {
        positions[shared[ended.at]] = Some(ended.positions);
    }
    for (at, ended) in apart.iter().zip(finishes) {
        positions[*at] = ended?.pop().map(|ended| ended.positions);
    }
    end?;
    let ends = positions;
    Ok(Written { depths, ends })
}

/// The first durable write of a run that makes a branch.
async fn open_and_send(client: &mut Object, commit: &Commit) -> Result<Option<i32>, Failure> {
    let Some(new) = &commit.open else {
        return Ok(None);
    };
    let kind = Kind::of(commit);
    let statement = prepare(client, kind.text()).await?;
    let transaction = client.transaction().await?;
    if !branches::open(transaction.client(), &commit.slot, new).await? {
        return Ok(None);
    }
    let depth = send(transaction.client(), &statement, kind, commit).await?;
    if depth.is_some() {
        transaction.commit().await?;
    }
    Ok(depth)
}

/// Zero rows mean that somebody else writes now, or that an earlier attempt took effect and its
/// reply was lost: only in the second case the head of the branch is that of the commit, under its epoch.
async fn resolve_lost_reply(
    client: &Object,
    group: &[Commit],
    depths: &mut [Option<i32>],
) -> Result<(), Failure> {
    let statement = prepare(client, HEAD).await?;
    let slot = &group[0].slot;
    let row = client
        .query_opt(&statement, &[&slot.tree.0, &slot.branch.0])
        .await?;
    let Some(row) = row else {
        return Ok(());
    };
    let head: Option<Uuid> = row.try_get(0)?;
    let mut depth: i32 = row.try_get(1)?;
    let epoch: i64 = row.try_get(2)?;
    let is_root = |commit: &Commit| commit.checkpoint.ns.is_empty();
    let is_written = |commit: &Commit| {
        let current = commit.slot.epoch == epoch;
        current && is_root(commit) && Some(commit.checkpoint.id.0) == head
    };
    let Some(last) = group.iter().rposition(is_written) else {
        return Ok(());
    };
    // Several writers may have tried this branch: only the head and its ancestors are written.
    let mut written = Some(group[last].checkpoint.id);
    for (commit, result) in group.iter().zip(depths.iter_mut()).take(last + 1).rev() {
        if is_root(commit) && Some(commit.checkpoint.id) == written {
            *result = Some(depth);
            depth -= 1;
            written = commit.checkpoint.parent;
        }
    }
    Ok(())
}

statements!(LIGHT, FULL, SUBGRAPH, HEAD; batch, end);
