//! Several checkpoints, newest first, in one statement.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use const_format::formatcp;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{
    COLUMNS, WRITES,
    blobs::blobs_of,
    load::{row_of, writes_of},
    narrow::label_of,
};
use crate::{
    checkpoint::{
        BlobRow, Error, List, Source, Stored, Version, filter::MetadataFilter, frame,
        metadata::is_own_assistant,
    },
    storage::postgres::{
        columns::{Json, column, name, unname},
        connection::{Object, Result, prepare},
    },
    value::Value,
};

/// Completes a page of rows: the blobs of all of them, each once, come with the first.
macro_rules! list {
    ($rows:expr, $order:expr) => {
        formatcp!(
            "WITH RECURSIVE page AS (
  SELECT {COLUMNS}, row_number() OVER ({order}) AS n FROM {rows}
     AND c.checkpoint_id < COALESCE($3, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
     AND c.checkpoint_id >= COALESCE($4, '00000000-0000-0000-0000-000000000000'::uuid)
     AND c.checkpoint_id <= COALESCE($4, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
     AND c.source = COALESCE($5, c.source) AND c.step = COALESCE($6, c.step)
     AND ($7::uuid IS NULL OR c.run_id = $7) AND ($8::jsonb IS NULL OR {metadata})
     AND (SELECT 1 FROM deleted_runs d WHERE d.tree_id = c.tree_id AND d.run_id = c.run_id) IS NULL
   {order} LIMIT $9),
chain AS (
  SELECT b.* FROM (SELECT DISTINCT p.checkpoint_ns, v.key, v.value FROM page p
     CROSS JOIN LATERAL jsonb_each_text(p.blob_versions) v) v
   CROSS JOIN LATERAL (SELECT b.checkpoint_ns, b.channel, b.version, b.base_version FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = v.checkpoint_ns AND b.channel = v.key AND b.version = v.value LIMIT 1) b
  UNION
  SELECT b.* FROM chain k
   CROSS JOIN LATERAL (SELECT b.checkpoint_ns, b.channel, b.version, b.base_version FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = k.checkpoint_ns AND b.channel = k.channel AND b.version = k.base_version LIMIT 1) b)
SELECT p.*, w.*, b.* FROM page p {WRITES}
  LEFT JOIN LATERAL (
    SELECT array_agg(k.checkpoint_ns) AS b_nss, array_agg(k.channel) AS b_channels, array_agg(k.version) AS b_versions,
           array_agg(k.base_version) AS b_bases, array_agg(x.chain_bytes) AS b_chains, array_agg(x.type) AS b_types,
           array_agg(x.blob) AS b_blobs
      FROM chain k CROSS JOIN LATERAL (SELECT b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b WHERE b.tree_id = $1
       AND b.checkpoint_ns = k.checkpoint_ns AND b.channel = k.channel AND b.version = k.version LIMIT 1) x
     WHERE p.n = 1) b ON true
 ORDER BY p.n",
            order = $order,
            rows = $rows,
            metadata = contains!("$8", "$10")
        )
    };
}

/// One namespace, in the order of its index.
const LIST: &str = list!(
    "checkpoints c WHERE c.tree_id = $1 AND c.thread_id = $2 AND c.checkpoint_ns = $11",
    "ORDER BY c.checkpoint_id DESC"
);

/// The root graph's, looked up by a label.
const LIST_OF_LABEL: &str = list!(
    concat!(
        labelled!("$2", "$11", "$3", "$4"),
        " WHERE c.thread_id = $2"
    ),
    "ORDER BY l.checkpoint_id DESC"
);

/// All namespaces of the thread.
const LIST_ALL: &str = list!(
    "(SELECT * FROM checkpoints c WHERE c.tree_id = $1 AND c.thread_id = $2 OFFSET 0) c WHERE true",
    "ORDER BY c.checkpoint_id DESC, c.checkpoint_ns"
);

/// Graphs whose own assistant is not the one that a filter names. A checkpoint of the own assistant of its graph stores
/// the graph alone, from which no statement makes the assistant: a page also has rows of graphs that are not known to
/// be others, and is read again without those that turn out to be.
pub(super) struct OtherGraphs<'a> {
    assistant: Option<&'a Value>,
    pub(super) names: Vec<String>,
}

impl<'a> OtherGraphs<'a> {
    /// None but the one that the filter names.
    pub(super) fn of(filter: &'a MetadataFilter) -> Self {
        let mut others = Self {
            assistant: filter.rest.get("assistant_id"),
            names: Vec::new(),
        };
        others.add(filter.rest.get("graph_id").and_then(Value::as_str));
        others
    }

    /// Whether rows of a page are of such a graph, which is known from then on.
    pub(super) fn found_in(&mut self, rows: &[Row]) -> Result<bool, Error> {
        let known = self.names.len();
        for row in rows {
            if column::<Option<Uuid>>(row, "assistant_id")?.is_none() {
                self.add(column(row, "graph_id")?);
            }
        }
        Ok(self.names.len() > known)
    }

    fn add(&mut self, graph: Option<&str>) {
        if let (Some(assistant), Some(graph)) = (self.assistant, graph)
            && !is_own_assistant(assistant, graph)
            && !self.names.iter().any(|known| known == graph)
        {
            self.names.push(graph.to_owned());
        }
    }
}

/// Several checkpoints, newest first.
pub(crate) async fn list(db: &Object, list: &List) -> Result<Vec<Stored>> {
    let Some(filter) = MetadataFilter::of(list.metadata.as_ref()) else {
        return Ok(Vec::new());
    };
    let before = list.before.map(|id| id.0);
    let id = list.id.map(|id| id.0);
    let limit = i64::try_from(list.limit).unwrap_or(i64::MAX);
    let source = filter.source.map(Source::as_str);
    let run = filter.run.map(|id| id.0);
    let metadata = (!filter.rest.is_empty()).then(|| Json::of_map(&filter.rest));
    let label = label_of(db, list, &filter).await?;
    let (text, of) = match (&list.ns, &label) {
        (_, Some(label)) => (LIST_OF_LABEL, Some(Cow::Borrowed(&**label))),
        (Some(ns), None) => (LIST, Some(name(ns))),
        (None, None) => (LIST_ALL, None),
    };
    let statement = prepare(db, text).await?;
    let mut others = OtherGraphs::of(&filter);
    loop {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![
            &list.tree.0,
            &list.thread.0,
            &before,
            &id,
            &source,
            &filter.step,
            &run,
            &metadata,
            &limit,
            &others.names,
        ];
        if of.is_some() {
            params.push(&of);
        }
        let rows = db.query(&statement, &params).await?;
        if !others.found_in(&rows)? {
            return Ok(page(&rows)?);
        }
    }
}

/// Reads the rows of a page, each with its own blobs out of those that came with the first.
fn page(rows: &[Row]) -> Result<Vec<Stored>, Error> {
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let nss: Option<Vec<String>> = column(first, "b_nss")?;
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
            let mut visited = HashSet::new();
            for (channel, version) in frame::versions_of(&stored.blob_versions)? {
                let mut next = Some(version);
                while let Some(blob) =
                    next.and_then(|version| by_key.get(&(&*stored.ns, &*channel, version)))
                {
                    // Damaged data must not make a circle.
                    if !visited.insert((&*blob.channel, blob.version)) {
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

statements!(LIST, LIST_OF_LABEL, LIST_ALL);
