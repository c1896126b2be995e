//! How much is stored of a thread.

use super::{
    columns::{column, unname},
    connection::{Object, Result, prepare},
};
use crate::{
    id::{ThreadId, TreeId},
    tree::usage::{Amount, Usage},
};

/// One row for the checkpoints of the thread (`kind` 0), one for the results at them (1), and one for each channel
/// with the versions that they name, directly or by a chain of deltas (2).
const USAGE: &str = "
WITH RECURSIVE c AS MATERIALIZED (
  SELECT c.checkpoint_ns, c.checkpoint_id, pg_column_size(c.checkpoint) + pg_column_size(c.blob_versions) + pg_column_size(c.metadata) AS bytes,
         c.blob_versions AS named FROM checkpoints c WHERE c.tree_id = $1 AND c.thread_id = $2),
n AS (
  SELECT c.checkpoint_ns, v.key COLLATE \"C\" AS channel, v.value COLLATE \"C\" AS version FROM c CROSS JOIN LATERAL jsonb_each_text(c.named) v
  UNION
  SELECT b.checkpoint_ns, b.channel, b.base_version FROM n CROSS JOIN LATERAL (
    SELECT b.checkpoint_ns, b.channel, b.base_version FROM checkpoint_blobs b WHERE b.tree_id = $1
       AND b.checkpoint_ns = n.checkpoint_ns AND b.channel = n.channel AND b.version = n.version LIMIT 1) b WHERE b.base_version IS NOT NULL)
SELECT 0 AS kind, '' AS channel, count(*) AS amount, COALESCE(sum(c.bytes), 0)::bigint AS bytes FROM c
UNION ALL
SELECT 1, '', COALESCE(sum(w.amount), 0)::bigint, COALESCE(sum(w.bytes), 0)::bigint FROM c CROSS JOIN LATERAL (
    SELECT count(*) AS amount, sum(octet_length(w.writes)) AS bytes FROM all_checkpoint_writes w
     WHERE w.tree_id = $1 AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id) w
UNION ALL
SELECT 2, n.channel, count(*), sum(b.bytes)::bigint FROM n CROSS JOIN LATERAL (
    SELECT octet_length(b.blob) AS bytes FROM checkpoint_blobs b WHERE b.tree_id = $1
       AND b.checkpoint_ns = n.checkpoint_ns AND b.channel = n.channel AND b.version = n.version LIMIT 1) b GROUP BY n.channel";

/// See [`tree::Store::usage`](crate::tree::Store::usage).
pub(super) async fn usage(db: &Object, tree: TreeId, thread: ThreadId) -> Result<Usage> {
    let statement = prepare(db, USAGE).await?;
    let mut usage = Usage::default();
    for row in db.query(&statement, &[&tree.0, &thread.0]).await? {
        let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
        let amount = Amount {
            rows: unsigned(column(&row, "amount")?),
            bytes: unsigned(column(&row, "bytes")?),
        };
        match column::<i32>(&row, "kind")? {
            0 => usage.checkpoints = amount,
            1 => usage.writes = amount,
            _ => {
                let channel = unname(column(&row, "channel")?);
                usage.channels.insert(channel, amount);
            }
        }
    }
    Ok(usage)
}

statements!(USAGE);
