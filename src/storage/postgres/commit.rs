//! Supersteps: one fenced statement each.

use std::borrow::Cow;

use deadpool_postgres::{Object, Pool};
use futures::future::join_all;
use tokio_postgres::{Client, Statement, types::ToSql};
use uuid::Uuid;

use super::{
    flush::Writes,
    open,
    params::{Json, Time, name},
    pool::{self, Failure},
};
use crate::checkpoint::{BlobRow, Commit, Error, WriteRow};

/// A superstep of the root graph without messages and events, whose writes are results at the
/// parent checkpoint.
const LIGHT: &str = "
WITH f AS (
  UPDATE branches SET head_checkpoint_id = $5, head_depth = head_depth + 1, version = version + 1, updated_at = now()
   WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 AND head_checkpoint_id IS NOT DISTINCT FROM $4
  RETURNING thread_id, head_depth),
ck AS (
  INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id,
         last_node_id, event_number, run_id, source, step, checkpoint, metadata, created_at)
  SELECT $1, '', $5, $4, f.head_depth, f.thread_id, $2, $6, $7, $8, $9, $10, $11, $12, $13 FROM f),
bl AS (
  INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob)
  SELECT $1, '', x.* FROM f, unnest($14::text[], $15::text[], $16::text[], $17::int[], $18::text[], $19::bytea[]) x),
w AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT $1, '', $4, $2, x.* FROM f, unnest($20::uuid[], $21::int[], $22::text[], $23::text[], $24::text[], $25::bytea[]) x
  ON CONFLICT DO NOTHING)
SELECT head_depth FROM f";

/// Any superstep of the root graph.
const FULL: &str = "
WITH f AS (
  UPDATE branches SET head_checkpoint_id = $5, head_depth = head_depth + 1, version = version + 1, updated_at = now()
   WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 AND head_checkpoint_id IS NOT DISTINCT FROM $4
  RETURNING thread_id, head_depth),
e AS (
  UPDATE threads t SET last_event_number = t.last_event_number + $29, updated_at = now()
    FROM f WHERE t.thread_id = f.thread_id AND $29::bigint > 0 RETURNING t.last_event_number AS n),
ck AS (
  INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id,
         last_node_id, event_number, run_id, source, step, checkpoint, metadata, created_at)
  SELECT $1, '', $5, $4, f.head_depth, f.thread_id, $2, $6, GREATEST($7::bigint, (SELECT n FROM e)), $8, $9, $10, $11, $12, $13 FROM f),
bl AS (
  INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob)
  SELECT $1, '', x.* FROM f, unnest($14::text[], $15::text[], $16::text[], $17::int[], $18::text[], $19::bytea[]) x),
x AS (
  SELECT x.* FROM f, unnest($26::text[], $27::uuid[], $20::uuid[], $21::int[], $22::text[], $23::text[], $24::text[], $25::bytea[], $28::bool[])
    x(ns, cp, task, idx, path, channel, type, writes, upsert)),
k AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT $1, ns, cp, $2, task, idx, path, channel, type, writes FROM x WHERE upsert
  ON CONFLICT (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx) DO UPDATE SET type = EXCLUDED.type, writes = EXCLUDED.writes),
o AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT $1, ns, cp, $2, task, idx, path, channel, type, writes FROM x WHERE NOT upsert
  ON CONFLICT DO NOTHING),
ms AS (
  INSERT INTO message_nodes (tree_id, node_id, parent_node_id, ordinal, kind, message_id, edit_of, checkpoint_id, depth, seq,
         thread_id, branch_id, run_id, role, event_number)
  SELECT $1, m.node_id, m.parent_node_id, m.ordinal, m.kind, m.message_id, m.edit_of, $5, f.head_depth, m.seq,
         f.thread_id, $2, $8, m.role, COALESCE(m.event_number, e.n - $29 + m.event_offset)
    FROM f CROSS JOIN jsonb_to_recordset($30) m(node_id uuid, parent_node_id uuid, ordinal int, kind text, message_id text,
         edit_of text, seq int, role text, event_number bigint, event_offset int) LEFT JOIN e ON true),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, event_id, event_type, payload, branch_id, checkpoint_id, message_id)
  SELECT $1, f.thread_id, e.n - $29 + x.i, (x.j->>'event_id')::uuid, x.j->>'type', x.j->'payload', $2, $5, x.j->>'message_id'
    FROM f, e, jsonb_array_elements($31) WITH ORDINALITY x(j, i))
SELECT head_depth FROM f";

/// A superstep of a subgraph: gated by the epoch alone. Sending it again changes nothing.
const SUBGRAPH: &str = "
WITH f AS (SELECT 1 FROM branches WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 FOR SHARE),
ck AS (
  INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id,
         last_node_id, event_number, run_id, source, step, checkpoint, metadata, created_at, root_checkpoint_id)
  SELECT $1, $29, $5, $4, $30, $31, $2, $6, $7, $8, $9, $10, $11, $12, $13, $32 FROM f ON CONFLICT DO NOTHING),
bl AS (
  INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob)
  SELECT $1, $29, x.* FROM f, unnest($14::text[], $15::text[], $16::text[], $17::int[], $18::text[], $19::bytea[]) x
  ON CONFLICT DO NOTHING),
x AS (
  SELECT x.* FROM f, unnest($26::text[], $27::uuid[], $20::uuid[], $21::int[], $22::text[], $23::text[], $24::text[], $25::bytea[], $28::bool[])
    x(ns, cp, task, idx, path, channel, type, writes, upsert)),
k AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT $1, ns, cp, $2, task, idx, path, channel, type, writes FROM x WHERE upsert
  ON CONFLICT (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx) DO UPDATE SET type = EXCLUDED.type, writes = EXCLUDED.writes),
o AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT $1, ns, cp, $2, task, idx, path, channel, type, writes FROM x WHERE NOT upsert
  ON CONFLICT DO NOTHING)
SELECT $30::int FROM f";

/// What became of a branch, to settle a commit whose reply is not known.
const HEAD: &str = "SELECT head_checkpoint_id, head_depth, writer_epoch FROM branches WHERE tree_id = $1 AND branch_id = $2";

/// Columns of blob rows.
#[derive(Default)]
struct Blobs<'a> {
    channels: Vec<Cow<'a, str>>,
    versions: Vec<String>,
    bases: Vec<Option<String>>,
    chains: Vec<i32>,
    tags: Vec<&'a str>,
    bytes: Vec<&'a [u8]>,
}

impl<'a> Blobs<'a> {
    fn of(rows: &'a [BlobRow]) -> Self {
        let mut columns = Self::default();
        for row in rows {
            columns.channels.push(name(&row.channel));
            columns.versions.push(row.version.to_string());
            columns.bases.push(row.base.map(|base| base.to_string()));
            columns.chains.push(row.chain_bytes);
            columns.tags.push(&row.tag);
            columns.bytes.push(&row.bytes);
        }
        columns
    }
}

/// Which statement a commit needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Light,
    Full,
    Subgraph,
}

impl Kind {
    fn of(commit: &Commit) -> Self {
        let row = &commit.checkpoint;
        if !row.ns.is_empty() {
            return Self::Subgraph;
        }
        let plain = |write: &WriteRow| {
            write.ns.is_empty() && Some(write.checkpoint) == row.parent && !write.upsert
        };
        if commit.nodes.is_empty() && commit.events.is_empty() && commit.writes.iter().all(plain) {
            Self::Light
        } else {
            Self::Full
        }
    }

    fn text(self) -> &'static str {
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
async fn send(
    client: &Client,
    statement: &Statement,
    kind: Kind,
    commit: &Commit,
) -> Result<Option<i32>, tokio_postgres::Error> {
    let (slot, row) = (&commit.slot, &commit.checkpoint);
    let blobs = Blobs::of(&commit.blobs);
    let writes = Writes::of(&commit.writes);
    let parent = row.parent.map(|id| id.0);
    let last_node = row.last_node.map(|id| id.0);
    let run = row.run.map(|id| id.0);
    let root = row.root.map(|id| id.0);
    let source = row.source.as_str();
    let envelope = Json::new(row.envelope.as_str());
    let metadata = Json::new(row.metadata.as_str());
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
            nodes = Json::new(nodes_json(commit));
            events = Json::new(events_json(commit));
            params.extend([&count as &(dyn ToSql + Sync), &nodes, &events]);
        }
        Kind::Subgraph => {
            params.extend([&ns as &(dyn ToSql + Sync), &row.depth, &row.thread.0, &root]);
        }
    }
    let answer = client.query_opt(statement, &params).await?;
    answer.map(|row| row.try_get(0)).transpose()
}

fn nodes_json(commit: &Commit) -> String {
    let nodes: Vec<_> = commit
        .nodes
        .iter()
        .map(|node| {
            serde_json::json!({
                "node_id": node.id, "parent_node_id": node.parent, "ordinal": node.ordinal,
                "kind": node.kind, "message_id": node.message_id, "edit_of": node.edit_of,
                "seq": node.seq, "role": node.role, "event_number": node.event_number,
                "event_offset": node.event_offset,
            })
        })
        .collect();
    serde_json::Value::Array(nodes).to_string()
}

fn events_json(commit: &Commit) -> String {
    let events: Vec<_> = commit
        .events
        .iter()
        .map(|event| {
            let payload = serde_json::from_str(&event.payload)
                .unwrap_or_else(|_| serde_json::Value::String(event.payload.clone()));
            serde_json::json!({
                "event_id": event.id, "type": event.kind, "payload": payload,
                "message_id": event.message_id,
            })
        })
        .collect();
    serde_json::Value::Array(events).to_string()
}

/// Writes commits in one transaction and one round trip: the depths of their checkpoints, `Fenced`
/// for those that the fence refused. Those of one branch follow each other in their order, and a
/// commit with a branch to open is alone.
///
/// # Errors
/// The transaction failed as a whole: nothing is known to be written.
pub(super) async fn together(
    pool: &Pool,
    group: &[Commit],
) -> Result<Vec<Result<i32, Error>>, Error> {
    let depths = once(pool, group).await?;
    let depths = depths.into_iter();
    Ok(depths.map(|depth| depth.ok_or(Error::Fenced)).collect())
}

/// The depths of a group's checkpoints; `None` for those that the fence refused.
async fn once(pool: &Pool, group: &[Commit]) -> Result<Vec<Option<i32>>, Error> {
    pool::retry(pool, |mut client| async move {
        let client = &mut client;
        let mut depths = match group {
            [commit] if commit.open.is_some() => vec![open_and_send(client, commit).await?],
            [commit] => {
                let kind = Kind::of(commit);
                let statement = prepare(client, kind.text()).await?;
                vec![send(client, &statement, kind, commit).await?]
            }
            _ => send_together(client, group).await?,
        };
        if depths.contains(&None) {
            let mut from = 0;
            for one in group.chunk_by(|a, b| a.slot.branch == b.slot.branch) {
                let depths = &mut depths[from..from + one.len()];
                if depths.contains(&None) {
                    settle(client, one, depths).await?;
                }
                from += one.len();
            }
        }
        Ok(depths)
    })
    .await
}

/// Prepared once per connection.
pub(super) async fn prepare(client: &Object, text: &'static str) -> Result<Statement, Failure> {
    Ok(client.prepare_cached(text).await?)
}

/// A transaction in one round trip. The requests leave in the order in which the futures are
/// first polled, which is their order here.
async fn send_together(client: &Object, group: &[Commit]) -> Result<Vec<Option<i32>>, Failure> {
    let mut prepared = Vec::with_capacity(group.len());
    for commit in group {
        let kind = Kind::of(commit);
        prepared.push((kind, prepare(client, kind.text()).await?));
    }
    let sends = group
        .iter()
        .zip(&prepared)
        .map(|(commit, (kind, statement))| send(client, statement, *kind, commit));
    let (begin, sent, end) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        join_all(sends),
        client.batch_execute("COMMIT"),
    );
    begin?;
    // After a failure the rest only says that the transaction is over, and COMMIT rolls back.
    let depths = sent.into_iter().collect::<Result<Vec<_>, _>>()?;
    end?;
    Ok(depths)
}

/// The first durable write of a run that makes a branch.
async fn open_and_send(client: &mut Object, commit: &Commit) -> Result<Option<i32>, Failure> {
    let Some(new) = &commit.open else {
        return Ok(None);
    };
    let kind = Kind::of(commit);
    let statement = prepare(client, kind.text()).await?;
    let transaction = client.transaction().await?;
    if !open::open(transaction.client(), &commit.slot, new).await? {
        return Ok(None);
    }
    let depth = send(transaction.client(), &statement, kind, commit).await?;
    if depth.is_some() {
        transaction.commit().await?;
    }
    Ok(depth)
}

/// Zero rows mean that somebody else writes now, or that an earlier attempt took effect and its
/// reply was lost. The branch tells: its head is ours under our epoch only in the second case.
async fn settle(
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
    let ours = |commit: &Commit| is_root(commit) && Some(commit.checkpoint.id.0) == head;
    let Some(last) = group.iter().rposition(ours).filter(|_| epoch == slot.epoch) else {
        return Ok(());
    };
    for (commit, place) in group.iter().zip(depths.iter_mut()).take(last + 1).rev() {
        if is_root(commit) {
            *place = Some(depth);
            depth -= 1;
        }
    }
    Ok(())
}
