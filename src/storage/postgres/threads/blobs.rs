//! Deletes channel values that no checkpoint and no result names any more.

use std::borrow::Cow;

use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::super::{
    columns::{column, name},
    connection::Result,
};
use crate::checkpoint::frame;

/// Results whose superstep's checkpoint, which named the same values, is gone.
const ORPHANS: &str = "
WITH c AS MATERIALIZED (
  SELECT c.* FROM threads t CROSS JOIN LATERAL (
    SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.branch_id, c.depth FROM checkpoints c
     WHERE c.tree_id = $1 AND c.thread_id = t.thread_id OFFSET 0) c WHERE t.tree_id = $1),
o AS MATERIALIZED (
  SELECT w.checkpoint_ns, w.checkpoint_id, w.branch_id, c.depth + 1 AS depth FROM c CROSS JOIN LATERAL (
    SELECT w.checkpoint_ns, w.checkpoint_id, w.branch_id FROM all_checkpoint_writes w
     WHERE w.tree_id = $1 AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id AND w.idx = 0 OFFSET 0) w
  EXCEPT SELECT checkpoint_ns, parent_checkpoint_id, branch_id, depth FROM c)
SELECT w.checkpoint_ns, w.type, w.writes FROM o CROSS JOIN LATERAL (
    SELECT w.checkpoint_ns, w.type, w.writes FROM all_checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = o.checkpoint_ns
       AND w.checkpoint_id = o.checkpoint_id AND w.branch_id = o.branch_id AND w.idx = 0 OFFSET 0) w";

/// Channel values that no checkpoint and no such result (`$2`, `$3`, `$4`) names any more, directly
/// or by a chain of deltas.
const DROP_BLOBS: &str = "
WITH RECURSIVE live AS (
  SELECT c.checkpoint_ns, v.key COLLATE \"C\" AS channel, v.value COLLATE \"C\" AS version
    FROM threads t CROSS JOIN LATERAL (SELECT c.checkpoint_ns, c.blob_versions FROM checkpoints c
      WHERE c.tree_id = $1 AND c.thread_id = t.thread_id OFFSET 0) c CROSS JOIN LATERAL jsonb_each_text(c.blob_versions) v
   WHERE t.tree_id = $1
  UNION
  SELECT x.ns COLLATE \"C\", x.channel COLLATE \"C\", x.version COLLATE \"C\" FROM unnest($2::text[], $3::text[], $4::text[]) x(ns, channel, version)
  UNION
  SELECT b.checkpoint_ns, b.channel, b.base_version FROM live l CROSS JOIN LATERAL (
    SELECT b.checkpoint_ns, b.channel, b.base_version FROM checkpoint_blobs b WHERE b.tree_id = $1
       AND b.checkpoint_ns = l.checkpoint_ns AND b.channel = l.channel AND b.version = l.version LIMIT 1) b WHERE b.base_version IS NOT NULL)
DELETE FROM checkpoint_blobs b WHERE b.tree_id = $1
   AND (b.checkpoint_ns, b.channel, b.version) NOT IN (SELECT l.checkpoint_ns, l.channel, l.version FROM live l)";

/// Deletes the values of a tree that nobody names any more.
pub(super) async fn drop_blobs(client: &Client, tree: Uuid) -> Result<()> {
    let rows = client.query(ORPHANS, &[&tree]).await?;
    let named = Named::by(&rows)?;
    client
        .execute(
            DROP_BLOBS,
            &[&tree, &named.nss, &named.channels, &named.versions],
        )
        .await?;
    Ok(())
}

/// Values that results point to, as columns.
#[derive(Default)]
pub(in super::super) struct Named<'a> {
    pub(in super::super) nss: Vec<&'a str>,
    pub(in super::super) channels: Vec<String>,
    pub(in super::super) versions: Vec<String>,
}

impl<'a> Named<'a> {
    /// Of rows of results.
    pub(in super::super) fn by(rows: &'a [Row]) -> Result<Self> {
        let mut named = Self::default();
        for row in rows {
            let ns = column(row, "checkpoint_ns")?;
            for (channel, version) in
                frame::references(column(row, "type")?, column(row, "writes")?)
            {
                named.nss.push(ns);
                named.channels.push(Cow::into_owned(name(&channel)));
                named.versions.push(version.to_string());
            }
        }
        Ok(named)
    }
}

const RESULTS: &str = "
SELECT x.ns, x.at, w.task_id, w.type, w.writes FROM unnest($3::text[], $4::uuid[]) x(ns, at) CROSS JOIN LATERAL (
    SELECT w.task_id, w.type, w.writes FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = x.ns
       AND w.checkpoint_id = x.at AND w.branch_id = $2 AND w.idx = 0 OFFSET 0) w";

const FORGET: &str = "
DELETE FROM checkpoint_writes WHERE ctid = ANY (ARRAY(
  SELECT w.ctid FROM unnest($3::text[], $4::uuid[], $5::uuid[]) x(ns, at, task) CROSS JOIN LATERAL (
    SELECT w.ctid FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = x.ns AND w.checkpoint_id = x.at
       AND w.branch_id = $2 AND w.task_id = x.task AND w.idx = 0 OFFSET 0) w))";

/// Removes results of a branch at checkpoints of a namespace each that the undone superstep used and that name its
/// values: the tasks are to run again.
pub(in super::super) async fn forget_results(
    client: &Client,
    tree: Uuid,
    branch: Uuid,
    at: &[(&str, Uuid)],
) -> Result<()> {
    if at.is_empty() {
        return Ok(());
    }
    let (nss, ats): (Vec<&str>, Vec<Uuid>) = at.iter().copied().unzip();
    let (mut in_ns, mut used_at, mut used): (Vec<&str>, Vec<Uuid>, Vec<Uuid>) = Default::default();
    let rows = client.query(RESULTS, &[&tree, &branch, &nss, &ats]).await?;
    for row in &rows {
        let references = frame::references(column(row, "type")?, column(row, "writes")?);
        if !references.is_empty() {
            in_ns.push(column(row, "ns")?);
            used_at.push(column(row, "at")?);
            used.push(column(row, "task_id")?);
        }
    }
    if !used.is_empty() {
        client
            .execute(FORGET, &[&tree, &branch, &in_ns, &used_at, &used])
            .await?;
    }
    Ok(())
}

statements!(ORPHANS, DROP_BLOBS, RESULTS, FORGET);
