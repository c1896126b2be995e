//! Deletes channel values that no checkpoint and no result names any more.

use std::borrow::Cow;

use tokio_postgres::Client;
use uuid::Uuid;

use super::super::{
    columns::{column, name},
    connection::Failure,
};
use crate::checkpoint::frame;

/// Results whose superstep's checkpoint, which named the same values, is gone.
const ORPHANS: &str = "
WITH o AS MATERIALIZED (
  SELECT w.checkpoint_ns, w.checkpoint_id, w.branch_id, p.depth + 1 AS depth FROM checkpoint_writes w
    JOIN checkpoints p ON p.tree_id = $1 AND p.checkpoint_ns = w.checkpoint_ns AND p.checkpoint_id = w.checkpoint_id
   WHERE w.tree_id = $1 AND w.idx = 0
  EXCEPT SELECT checkpoint_ns, parent_checkpoint_id, branch_id, depth FROM checkpoints WHERE tree_id = $1)
SELECT w.checkpoint_ns, w.type, w.writes FROM o JOIN checkpoint_writes w ON w.tree_id = $1 AND w.checkpoint_ns = o.checkpoint_ns
   AND w.checkpoint_id = o.checkpoint_id AND w.branch_id = o.branch_id AND w.idx = 0";

/// Channel values that no checkpoint and no such result (`$2`, `$3`, `$4`) names any more, directly
/// or by a chain of deltas.
const DROP_BLOBS: &str = "
WITH RECURSIVE live AS (
  SELECT c.checkpoint_ns, v.key COLLATE \"C\" AS channel, v.value COLLATE \"C\" AS version
    FROM checkpoints c, jsonb_each_text(c.checkpoint->'channel_versions') v WHERE c.tree_id = $1
  UNION
  SELECT x.ns COLLATE \"C\", x.channel COLLATE \"C\", x.version COLLATE \"C\" FROM unnest($2::text[], $3::text[], $4::text[]) x(ns, channel, version)
  UNION
  SELECT b.checkpoint_ns, b.channel, b.base_version FROM live l JOIN checkpoint_blobs b ON b.tree_id = $1
     AND b.checkpoint_ns = l.checkpoint_ns AND b.channel = l.channel AND b.version = l.version WHERE b.base_version IS NOT NULL)
DELETE FROM checkpoint_blobs b WHERE b.tree_id = $1
   AND NOT EXISTS (SELECT 1 FROM live l WHERE l.checkpoint_ns = b.checkpoint_ns AND l.channel = b.channel AND l.version = b.version)";

/// Deletes the values of a tree that nobody names any more.
pub(super) async fn drop_blobs(client: &Client, tree: Uuid) -> Result<(), Failure> {
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
    pub(in super::super) fn by(rows: &'a [tokio_postgres::Row]) -> Result<Self, Failure> {
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
SELECT task_id, type, writes FROM checkpoint_writes
 WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $3 AND branch_id = $2 AND idx = 0";

const FORGET: &str = "
DELETE FROM checkpoint_writes WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $3 AND branch_id = $2 AND idx = 0
   AND task_id = ANY($4)";

/// Removes results of a branch at its base that the undone superstep used and that name its
/// values: the tasks are to run again.
pub(in super::super) async fn forget_results(
    client: &Client,
    tree: Uuid,
    branch: Uuid,
    base: Option<Uuid>,
) -> Result<(), Failure> {
    let mut used: Vec<Uuid> = Vec::new();
    for row in client.query(RESULTS, &[&tree, &branch, &base]).await? {
        let references = frame::references(column(&row, "type")?, column(&row, "writes")?);
        if !references.is_empty() {
            used.push(column(&row, "task_id")?);
        }
    }
    if !used.is_empty() {
        client
            .execute(FORGET, &[&tree, &branch, &base, &used])
            .await?;
    }
    Ok(())
}
