//! Channel values that came with the checkpoints of a run that is rolled back, or of a thread that is deleted. Those that
//! nothing else names go with them; what the rest of the tree has is not read.

use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::{
    super::{columns::column, connection::Result},
    blobs::Named,
};

/// Versions that the checkpoints to be deleted made: those they name and the ones before them do not.
const MADE: &str = "
WITH d AS MATERIALIZED (
  SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.blob_versions AS named FROM checkpoints c
   WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ANY($2)
  UNION ALL
  SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.blob_versions FROM checkpoints c
   WHERE c.tree_id = $1 AND c.checkpoint_ns <> '' AND c.root_checkpoint_id = ANY($2)),
above AS (
  SELECT p.checkpoint_ns, p.blob_versions AS named
    FROM (SELECT checkpoint_ns, parent_checkpoint_id FROM d EXCEPT SELECT checkpoint_ns, checkpoint_id FROM d) d
   CROSS JOIN LATERAL (SELECT p.* FROM checkpoints p WHERE p.tree_id = $1 AND p.checkpoint_ns = d.checkpoint_ns
       AND p.checkpoint_id = d.parent_checkpoint_id LIMIT 1) p)
SELECT array_agg(x.checkpoint_ns) AS nss, array_agg(x.key) AS channels, array_agg(x.value) AS versions FROM (
  SELECT d.checkpoint_ns, v.key, v.value FROM d CROSS JOIN LATERAL jsonb_each_text(d.named) v
  EXCEPT SELECT a.checkpoint_ns, v.key, v.value FROM above a CROSS JOIN LATERAL jsonb_each_text(a.named) v) x";

/// Results at checkpoints that stay, whose superstep's checkpoint is to be deleted. Those of the
/// branch itself at the base are deleted too.
const RESULTS_ABOVE: &str = "
SELECT w.checkpoint_ns, w.type, w.writes FROM (
    SELECT c.checkpoint_ns, c.parent_checkpoint_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ANY($2) AND c.parent_checkpoint_id <> ALL($2)
    UNION ALL
    SELECT c.checkpoint_ns, c.parent_checkpoint_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns <> '' AND c.root_checkpoint_id = ANY($2)) c
 CROSS JOIN LATERAL (SELECT w.* FROM all_checkpoint_writes w
    WHERE w.tree_id = $1 AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.parent_checkpoint_id AND w.idx = 0 OFFSET 0) w
 WHERE NOT (w.checkpoint_ns = '' AND w.branch_id IS NOT DISTINCT FROM $4 AND w.checkpoint_id IS NOT DISTINCT FROM $3)";

/// Those of them that nothing else names. Only checkpoints that descend from the one that made a
/// version name it. Whoever descends from a deleted one was written by the same thread, since the base of
/// a fork keeps its whole path, and has a greater id than the base `$5`.
/// Values are looked up one by one and never change, so that rows can be named by where they lie.
const DROP_MADE: &str = "
WITH RECURSIVE gone AS (SELECT x.ns COLLATE \"C\" AS ns, x.channel COLLATE \"C\" AS channel, x.version COLLATE \"C\" AS version
    FROM unnest($2::text[], $3::text[], $4::text[]) x(ns, channel, version)),
newer AS MATERIALIZED (
  SELECT c.checkpoint_ns, c.checkpoint_id, c.blob_versions AS named FROM checkpoints c
   WHERE c.tree_id = $1 AND c.thread_id = $9 AND c.checkpoint_ns = '' AND c.checkpoint_id >= COALESCE($5, '00000000-0000-0000-0000-000000000000'::uuid)),
live AS (
  SELECT c.checkpoint_ns, v.key COLLATE \"C\" AS channel, v.value COLLATE \"C\" AS version
    FROM (SELECT n.checkpoint_ns, n.named FROM newer n
          UNION ALL
          SELECT s.checkpoint_ns, s.named FROM newer n CROSS JOIN LATERAL (
            SELECT s.checkpoint_ns, s.blob_versions AS named FROM checkpoints s
             WHERE s.tree_id = $1 AND s.root_checkpoint_id = n.checkpoint_id AND s.checkpoint_ns <> '' OFFSET 0) s) c
   CROSS JOIN LATERAL jsonb_each_text(c.named) v
  UNION
  SELECT x.ns COLLATE \"C\", x.channel COLLATE \"C\", x.version COLLATE \"C\" FROM unnest($6::text[], $7::text[], $8::text[]) x(ns, channel, version)
  UNION
  SELECT b.checkpoint_ns, b.channel, b.base_version FROM live l CROSS JOIN LATERAL (
    SELECT b.* FROM checkpoint_blobs b WHERE b.tree_id = $1 AND b.checkpoint_ns = l.checkpoint_ns AND b.channel = l.channel
       AND b.version = l.version LIMIT 1) b WHERE b.base_version IS NOT NULL)
DELETE FROM checkpoint_blobs WHERE ctid = ANY (ARRAY(
  SELECT b.ctid FROM gone g CROSS JOIN LATERAL (SELECT b.ctid FROM checkpoint_blobs b
    WHERE b.tree_id = $1 AND b.checkpoint_ns = g.ns AND b.channel = g.channel AND b.version = g.version LIMIT 1) b
   WHERE (g.ns, g.channel, g.version) NOT IN (SELECT l.checkpoint_ns, l.channel, l.version FROM live l)))";

/// Results that go with the checkpoints. What one of them points to may have lost its superstep's
/// checkpoint before.
const RESULTS_OF: &str = "
SELECT w.checkpoint_ns, w.type, w.writes FROM (
    SELECT '' COLLATE \"C\" AS ns, unnest($2::uuid[]) AS id
    UNION ALL
    SELECT c.checkpoint_ns, c.checkpoint_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns <> '' AND c.root_checkpoint_id = ANY($2)) c
 CROSS JOIN LATERAL (SELECT w.* FROM all_checkpoint_writes w
    WHERE w.tree_id = $1 AND w.checkpoint_ns = c.ns AND w.checkpoint_id = c.id AND w.idx = 0 OFFSET 0) w";

/// Values that came with checkpoints and results which are about to be deleted.
pub(in super::super) struct MadeValues {
    made: Row,
    results: Vec<Row>,
    /// Results that stay and may point to the same values.
    retained: Vec<Row>,
}

impl MadeValues {
    /// Of the root checkpoints. A branch that is rolled back loses its results at the base too.
    pub(in super::super) async fn by(
        client: &Client,
        tree: Uuid,
        checkpoints: &[Uuid],
        rolled_back: Option<(Uuid, Option<Uuid>)>,
    ) -> Result<Self> {
        let (branch, base) = rolled_back.unzip();
        Ok(Self {
            made: client.query_one(MADE, &[&tree, &checkpoints]).await?,
            results: client.query(RESULTS_OF, &[&tree, &checkpoints]).await?,
            retained: client
                .query(
                    RESULTS_ABOVE,
                    &[&tree, &checkpoints, &base.flatten(), &branch],
                )
                .await?,
        })
    }

    /// Deletes those that nothing names, once the checkpoints are gone. See [`DROP_MADE`].
    pub(in super::super) async fn drop(
        &self,
        client: &Client,
        tree: Uuid,
        thread: Uuid,
        base: Option<Uuid>,
    ) -> Result<()> {
        let mut gone = Named::by(&self.results)?;
        let nss: Option<Vec<&str>> = column(&self.made, "nss")?;
        let channels: Option<Vec<String>> = column(&self.made, "channels")?;
        let versions: Option<Vec<String>> = column(&self.made, "versions")?;
        gone.nss.extend(nss.into_iter().flatten());
        gone.channels.extend(channels.into_iter().flatten());
        gone.versions.extend(versions.into_iter().flatten());
        if gone.nss.is_empty() {
            return Ok(());
        }
        let retained = Named::by(&self.retained)?;
        client
            .execute(
                DROP_MADE,
                &[
                    &tree,
                    &gone.nss,
                    &gone.channels,
                    &gone.versions,
                    &base,
                    &retained.nss,
                    &retained.channels,
                    &retained.versions,
                    &thread,
                ],
            )
            .await?;
        Ok(())
    }
}

statements!(MADE, RESULTS_ABOVE, DROP_MADE, RESULTS_OF);
