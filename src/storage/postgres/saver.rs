//! Reading checkpoints: one statement, whatever is asked for.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Store,
    commit::prepare,
    params::{Json, name, unname, version},
    pool,
    read::{self, blobs_of, row_of, writes_of},
};
use crate::{
    checkpoint::{At, BlobRow, Commit, Error, Flush, List, Query, Saver, Source, Stored, Version},
    id::TreeId,
    value::{Map, Value},
};

/// The columns of a page, of the checkpoint row `c`.
macro_rules! columns {
    () => {
        " c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.root_checkpoint_id, c.depth, c.thread_id,
          c.branch_id, c.run_id, c.source, c.step, c.last_node_id, c.event_number, c.checkpoint, c.metadata, c.created_at "
    };
}

/// The pending writes of each row of `page` as arrays.
macro_rules! writes {
    () => {
        " LEFT JOIN LATERAL (
            SELECT array_agg(s.branch_id) AS w_branches, array_agg(s.task_id) AS w_tasks, array_agg(s.idx) AS w_idxs,
                   array_agg(s.task_path) AS w_paths, array_agg(s.channel) AS w_channels, array_agg(s.type) AS w_types,
                   array_agg(s.writes) AS w_writes
              FROM (SELECT * FROM checkpoint_writes s WHERE s.tree_id = $1 AND s.checkpoint_ns = p.checkpoint_ns
                       AND s.checkpoint_id = p.checkpoint_id ORDER BY s.task_path, s.task_id, s.idx, s.branch_id) s) w ON true "
    };
}

/// Completes `WITH RECURSIVE page AS (one row)`: `$2` says whether values are wanted. Every step
/// of a chain is a look-up by primary key: LIMIT keeps the planner from joining in another way.
macro_rules! load {
    ($page:expr) => {
        concat!(
            "WITH RECURSIVE page AS (", $page, "),
chain AS (
  SELECT b.* FROM page p CROSS JOIN LATERAL jsonb_each_text(p.checkpoint->'channel_versions') v
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version, b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = v.key AND b.version = v.value LIMIT 1) b
   WHERE $2
  UNION ALL
  SELECT b.* FROM chain k CROSS JOIN page p
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version, b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = p.checkpoint_ns AND b.channel = k.channel AND b.version = k.base_version LIMIT 1) b)
SELECT p.*, w.*, b.* FROM page p", writes!(), "
  LEFT JOIN LATERAL (
    SELECT array_agg(k.channel) AS b_channels, array_agg(k.version) AS b_versions, array_agg(k.base_version) AS b_bases,
           array_agg(k.chain_bytes) AS b_chains, array_agg(k.type) AS b_types, array_agg(k.blob) AS b_blobs FROM chain k) b ON true"
        )
    };
}

const BY_ID: &str = load!(concat!(
    "SELECT",
    columns!(),
    "FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = $3 AND c.checkpoint_id = $4"
));

const BY_BRANCH: &str = load!(concat!(
    "SELECT",
    columns!(),
    "FROM branches h JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = $3
        AND c.checkpoint_id = h.head_checkpoint_id WHERE h.tree_id = $1 AND h.branch_id = $4"
));

const BY_THREAD: &str = load!(concat!(
    "SELECT", columns!(), "FROM threads t JOIN branches h ON h.tree_id = $1 AND h.branch_id = t.active_branch_id
       JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = $3 AND c.checkpoint_id = h.head_checkpoint_id
      WHERE t.thread_id = $4 AND t.tree_id = $1 AND t.deleted_at IS NULL"
));

const NEWEST: &str = load!(concat!(
    "SELECT",
    columns!(),
    "FROM checkpoints c WHERE c.tree_id = $1 AND c.thread_id = $4 AND c.checkpoint_ns = $3
      ORDER BY c.checkpoint_id DESC LIMIT 1"
));

/// Walks the path from the root checkpoint `$4` and stops at the first row of the namespace that
/// belongs to it. `owner` is the branch whose subgraph rows count: that of the child on the path.
const SUBGRAPH: &str = load!(concat!(
    "SELECT * FROM (WITH RECURSIVE path AS (
       SELECT r.checkpoint_id, r.parent_checkpoint_id, r.branch_id, $5::uuid AS owner, 1 AS n
         FROM checkpoints r WHERE r.tree_id = $1 AND r.checkpoint_ns = '' AND r.checkpoint_id = $4
          AND EXISTS (SELECT 1 FROM checkpoints s WHERE s.tree_id = $1 AND s.checkpoint_ns = $3)
       UNION ALL
       SELECT r.checkpoint_id, r.parent_checkpoint_id, r.branch_id, p.branch_id, p.n + 1
         FROM path p JOIN checkpoints r ON r.tree_id = $1 AND r.checkpoint_ns = '' AND r.checkpoint_id = p.parent_checkpoint_id
        WHERE p.n < 100000)
     SELECT c.* FROM path p CROSS JOIN LATERAL (
       SELECT", columns!(), "FROM checkpoints c LEFT JOIN branches o ON o.tree_id = $1 AND o.branch_id = p.owner
        WHERE c.tree_id = $1 AND c.checkpoint_ns = $3 AND c.root_checkpoint_id = p.checkpoint_id
          AND c.checkpoint_id < COALESCE($6, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
          AND (c.branch_id = p.owner OR (c.branch_id = o.source_branch_id AND c.checkpoint_id < o.creation_id))
        ORDER BY c.checkpoint_id DESC LIMIT 1) c
     LIMIT 1) c"
));

/// Completes a page of rows: the blobs of all of them, each once, come with the first.
macro_rules! list {
    ($ns:expr, $order:expr) => {
        concat!(
            "WITH RECURSIVE page AS (
  SELECT", columns!(), ", row_number() OVER (", $order, ") AS n FROM checkpoints c
   WHERE c.tree_id = $1 AND c.thread_id = $2", $ns, "
     AND c.checkpoint_id < COALESCE($3, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
     AND c.checkpoint_id >= COALESCE($4, '00000000-0000-0000-0000-000000000000'::uuid)
     AND c.checkpoint_id <= COALESCE($4, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
     AND c.source = COALESCE($5, c.source) AND c.step = COALESCE($6, c.step)
     AND ($7::uuid IS NULL OR c.run_id = $7) AND ($8::jsonb IS NULL OR c.metadata @> $8)
     AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.tree_id = c.tree_id AND d.run_id = c.run_id)
   ", $order, " LIMIT $9),
chain AS (
  SELECT b.* FROM (SELECT DISTINCT p.checkpoint_ns, v.key, v.value FROM page p
     CROSS JOIN LATERAL jsonb_each_text(p.checkpoint->'channel_versions') v) v
   CROSS JOIN LATERAL (SELECT b.checkpoint_ns, b.channel, b.version, b.base_version FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = v.checkpoint_ns AND b.channel = v.key AND b.version = v.value LIMIT 1) b
  UNION
  SELECT b.* FROM chain k
   CROSS JOIN LATERAL (SELECT b.checkpoint_ns, b.channel, b.version, b.base_version FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = k.checkpoint_ns AND b.channel = k.channel AND b.version = k.base_version LIMIT 1) b)
SELECT p.*, w.*, b.* FROM page p", writes!(), "
  LEFT JOIN LATERAL (
    SELECT array_agg(k.checkpoint_ns) AS b_nss, array_agg(k.channel) AS b_channels, array_agg(k.version) AS b_versions,
           array_agg(k.base_version) AS b_bases, array_agg(x.chain_bytes) AS b_chains, array_agg(x.type) AS b_types,
           array_agg(x.blob) AS b_blobs
      FROM chain k CROSS JOIN LATERAL (SELECT b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b WHERE b.tree_id = $1
       AND b.checkpoint_ns = k.checkpoint_ns AND b.channel = k.channel AND b.version = k.version LIMIT 1) x
     WHERE p.n = 1) b ON true
 ORDER BY p.n"
        )
    };
}

/// One namespace, in the order of its index.
const LIST: &str = list!(
    " AND c.checkpoint_ns = $10",
    "ORDER BY c.checkpoint_id DESC"
);

/// All namespaces of the thread.
const LIST_ALL: &str = list!("", "ORDER BY c.checkpoint_id DESC, c.checkpoint_ns");

/// Values by channel and version, each row of their chains once.
const BLOBS: &str = "
WITH RECURSIVE chain AS (
  SELECT b.* FROM unnest($3::text[], $4::text[]) v(channel, version)
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = $2 AND b.channel = v.channel COLLATE \"C\" AND b.version = v.version COLLATE \"C\" LIMIT 1) b
  UNION
  SELECT b.* FROM chain k
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = $2 AND b.channel = k.channel AND b.version = k.base_version LIMIT 1) b)
SELECT k.channel, k.version, k.base_version, x.chain_bytes, x.type, x.blob
  FROM chain k CROSS JOIN LATERAL (SELECT b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b WHERE b.tree_id = $1
   AND b.checkpoint_ns = $2 AND b.channel = k.channel AND b.version = k.version LIMIT 1) x";

#[async_trait]
impl Saver for Store {
    async fn load(&self, query: Query) -> Result<Option<Stored>, Error> {
        let query = &query;
        let row = pool::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let (tree, ns) = (query.tree.0, name(&query.ns));
            let one = |text, id: Uuid| (text, id);
            let (text, id) = match &query.at {
                At::Id(id) => one(BY_ID, id.0),
                At::Head(branch) => one(BY_BRANCH, branch.0),
                At::ActiveHead => one(BY_THREAD, query.thread.0),
                At::Newest => one(NEWEST, query.thread.0),
                At::Subgraph {
                    start,
                    branch,
                    before,
                } => {
                    let statement = prepare(client, SUBGRAPH).await?;
                    let before = before.map(|id| id.0);
                    return Ok(client
                        .query_opt(
                            &statement,
                            &[&tree, &query.values, &ns, &start.0, &branch.0, &before],
                        )
                        .await?);
                }
            };
            let statement = prepare(client, text).await?;
            Ok(client
                .query_opt(&statement, &[&tree, &query.values, &ns, &id])
                .await?)
        })
        .await?;
        let Some(row) = row else { return Ok(None) };
        let stored = row_of(&row)?;
        Ok(Some(Stored {
            blobs: blobs_of(&row, |_| Arc::clone(&query.ns))?,
            writes: writes_of(&row, &stored)?,
            row: stored,
        }))
    }

    async fn list(&self, list: List) -> Result<Vec<Stored>, Error> {
        let Some(filter) = Filter::of(list.metadata.as_ref()) else {
            return Ok(Vec::new());
        };
        let (list, filter) = (&list, &filter);
        let rows = pool::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let before = list.before.map(|id| id.0);
            let id = list.id.map(|id| id.0);
            let limit = i64::try_from(list.limit).unwrap_or(i64::MAX);
            let metadata = filter.rest.as_ref().map(Json::of_map);
            let text = if list.ns.is_some() { LIST } else { LIST_ALL };
            let statement = prepare(client, text).await?;
            let mut params: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = vec![
                &list.tree.0,
                &list.thread.0,
                &before,
                &id,
                &filter.source,
                &filter.step,
                &filter.run,
                &metadata,
                &limit,
            ];
            let ns = list.ns.as_deref().map(name);
            if ns.is_some() {
                params.push(&ns);
            }
            Ok(client.query(&statement, &params).await?)
        })
        .await?;
        page(&rows)
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        self.commit_all(commits).await
    }

    async fn flush(&self, flush: Flush) -> Result<(), Error> {
        self.flush_writes(flush).await
    }

    async fn blobs(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        wanted: Vec<(Arc<str>, Version)>,
    ) -> Result<Vec<BlobRow>, Error> {
        let (channels, versions): (Vec<Cow<'_, str>>, Vec<String>) = wanted
            .iter()
            .map(|(channel, version)| (name(channel), version.to_string()))
            .unzip();
        let (channels, versions, at) = (&channels, &versions, &name(&ns));
        let rows = pool::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let statement = prepare(client, BLOBS).await?;
            Ok(client
                .query(&statement, &[&tree.0, at, channels, versions])
                .await?)
        })
        .await?;
        rows.iter().map(|row| read::blob_of(row, &ns)).collect()
    }
}

/// A metadata filter, taken apart into columns and the rest.
#[derive(Default)]
struct Filter {
    source: Option<&'static str>,
    step: Option<i64>,
    run: Option<Uuid>,
    rest: Option<Map>,
}

impl Filter {
    /// `None` when nothing can match.
    fn of(metadata: Option<&Map>) -> Option<Self> {
        let mut filter = Self::default();
        let Some(metadata) = metadata else {
            return Some(filter);
        };
        let mut rest = Map::new();
        for (key, value) in metadata.iter() {
            match &**key {
                "source" => {
                    filter.source = Some(value.as_str()?.parse::<Source>().ok()?.as_str());
                }
                "step" => filter.step = Some(integer(value)?),
                "run_id" => filter.run = Some(value.as_str()?.parse().ok()?),
                _ => {
                    rest.insert(Arc::clone(key), value.clone());
                }
            }
        }
        filter.rest = (!rest.is_empty()).then_some(rest);
        Some(filter)
    }
}

/// JSON knows one kind of number.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
    })
}

/// Gives each row of a page its own blobs out of those that came with the first.
fn page(rows: &[Row]) -> Result<Vec<Stored>, Error> {
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let nss: Option<Vec<String>> = super::params::column(first, "b_nss")?;
    let nss: Vec<Arc<str>> = nss
        .unwrap_or_default()
        .iter()
        .map(|ns| unname(ns))
        .collect();
    let all = blobs_of(first, |index| {
        nss.get(index).cloned().unwrap_or_else(|| Arc::from(""))
    })?;
    let by_key: HashMap<(&str, &str, Version), &BlobRow> = all
        .iter()
        .map(|blob| ((&*blob.ns, &*blob.channel, blob.version), blob))
        .collect();
    rows.iter()
        .map(|row| {
            let stored = row_of(row)?;
            let mut blobs = Vec::new();
            let mut seen = HashSet::new();
            for (channel, text) in channel_versions(&stored.envelope)? {
                let mut next = Some(version(&text)?);
                while let Some(blob) =
                    next.and_then(|version| by_key.get(&(&*stored.ns, &*channel, version)))
                {
                    // Damaged data must not make a circle.
                    if !seen.insert((&*blob.channel, blob.version)) {
                        break;
                    }
                    blobs.push((*blob).clone());
                    next = blob.base;
                }
            }
            Ok(Stored {
                writes: writes_of(row, &stored)?,
                blobs,
                row: stored,
            })
        })
        .collect()
}

fn channel_versions(envelope: &str) -> Result<Vec<(String, String)>, Error> {
    #[derive(serde::Deserialize)]
    struct Envelope {
        #[serde(default)]
        channel_versions: serde_json::Map<String, serde_json::Value>,
    }
    let envelope: Envelope = serde_json::from_str(envelope)
        .map_err(|error| Error::Corrupt(format!("checkpoint envelope: {error}")))?;
    Ok(envelope
        .channel_versions
        .into_iter()
        .filter_map(|(channel, version)| match version {
            serde_json::Value::String(text) => Some((channel, text)),
            _ => None,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(json: &str) -> Option<Filter> {
        match Value::from_json_slice(json.as_bytes()).unwrap() {
            Value::Map(map) => Filter::of(Some(&map)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn columns_are_taken_out_of_a_metadata_filter() {
        let filter = filter(r#"{"source":"loop","step":2.0,"user":"ada"}"#).unwrap();
        assert_eq!(filter.source, Some("loop"));
        assert_eq!(filter.step, Some(2));
        assert_eq!(filter.rest.unwrap().len(), 1);
    }

    #[test]
    fn a_filter_that_no_checkpoint_can_match_is_recognised() {
        assert!(filter(r#"{"run_id":"not an id"}"#).is_none());
        assert!(filter(r#"{"source":"elsewhere"}"#).is_none());
        assert!(filter(r#"{"step":"2"}"#).is_none());
    }
}
