//! Pages of checkpoints: whole when they are small, else their sizes. Measuring reads no values:
//! Postgres knows the length of one without fetching it.

use std::{collections::HashMap, sync::Arc};

use const_format::formatcp;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{
    COLUMNS,
    blobs::blobs_of,
    list::OtherGraphs,
    load::{aggregated_writes, metadata_of, row_of},
    narrow::label_of,
};
use crate::{
    checkpoint::{
        CheckpointRow, Error, List, Page, PageScope, SizedCheckpoint, Source, StoredRows, WriteRow,
        chain_sizes::ChainSizes, filter::MetadataFilter, frame::versions_of, results,
    },
    fail_point,
    id::{CheckpointId, RunId, TreeId},
    storage::postgres::{
        columns::{Json, JsonText, column, name, unname, version, word},
        connection::{Object, Result, prepare},
    },
};

/// Completes `page`, checkpoints of the namespace `$2` numbered by `n`: with everything that is
/// stored of them if that weighs at most `$3`, else with what each weighs. `$4`: with metadata in any case.
/// What is pending at all of them, and their values, come with the first row: to make arrays for
/// each takes longer than all else.
macro_rules! paged {
    ($page:expr) => {
        formatcp!(
            "
WITH RECURSIVE page AS ({page}),
chain AS (
  SELECT b.* FROM (SELECT DISTINCT v.key, v.value FROM page p
     CROSS JOIN LATERAL jsonb_each_text(p.blob_versions) v) v
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version, {blob} AS weight FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = $2 AND b.channel = v.key AND b.version = v.value LIMIT 1) b
  UNION
  SELECT b.* FROM chain k
   CROSS JOIN LATERAL (SELECT b.channel, b.version, b.base_version, {blob} AS weight FROM checkpoint_blobs b
     WHERE b.tree_id = $1 AND b.checkpoint_ns = $2 AND b.channel = k.channel AND b.version = k.base_version LIMIT 1) b),
sized AS (
  SELECT p.*, octet_length(p.checkpoint) + pg_column_size(p.blob_versions) + {metadata} + COALESCE(s.weight, 0)
         + COALESCE({result}, 0) AS weight
    FROM page p CROSS JOIN LATERAL (SELECT sum({writes}) AS weight FROM checkpoint_writes s WHERE s.tree_id = $1
     AND s.checkpoint_ns = $2 AND s.checkpoint_id = p.checkpoint_id) s),
fit AS MATERIALIZED (
  SELECT COALESCE((SELECT sum(weight) FROM chain), 0) + COALESCE((SELECT sum(weight) FROM sized), 0) <= $3::bigint AS whole,
         (SELECT min(p.n) FROM page p) AS first),
w AS MATERIALIZED (
  SELECT array_agg(s.n) AS w_rows, array_agg(s.branch_id) AS w_branches, array_agg(s.task_id) AS w_tasks, array_agg(s.idx) AS w_idxs,
         array_agg(s.task_path) AS w_paths, array_agg(s.channel) AS w_channels, array_agg(s.type) AS w_types,
         array_agg(s.writes) AS w_writes
    FROM (SELECT p.n, s.branch_id, s.task_id, s.idx, s.task_path, s.channel, s.type, s.writes
            FROM fit f CROSS JOIN page p CROSS JOIN LATERAL (SELECT * FROM checkpoint_writes s WHERE s.tree_id = $1
             AND s.checkpoint_ns = $2 AND s.checkpoint_id = p.checkpoint_id OFFSET 0) s WHERE f.whole
          UNION ALL
          SELECT p.n, p.branch_id, p.result_task, 0, substr(p.result_header, strpos(p.result_header, ' ') + 1), '' COLLATE \"C\",
                 split_part(p.result_header, ' ', 1), p.result
            FROM fit f CROSS JOIN page p WHERE f.whole AND p.result_task IS NOT NULL
           ORDER BY n, task_path, task_id, idx, branch_id) s),
l AS MATERIALIZED (
  SELECT array_agg(k.channel) AS l_channels, array_agg(k.version) AS l_versions, array_agg(k.base_version) AS l_bases,
         array_agg(k.weight) AS l_weights FROM fit f CROSS JOIN chain k WHERE NOT f.whole),
b AS MATERIALIZED (
  SELECT array_agg(k.channel) AS b_channels, array_agg(k.version) AS b_versions, array_agg(k.base_version) AS b_bases,
         array_agg(x.chain_bytes) AS b_chains, array_agg(x.type) AS b_types, array_agg(x.blob) AS b_blobs
    FROM fit f CROSS JOIN chain k CROSS JOIN LATERAL (SELECT b.chain_bytes, b.type, b.blob FROM checkpoint_blobs b WHERE b.tree_id = $1
     AND b.checkpoint_ns = $2 AND b.channel = k.channel AND b.version = k.version LIMIT 1) x
   WHERE f.whole)
SELECT p.checkpoint_ns, p.checkpoint_id, p.parent_checkpoint_id, p.root_checkpoint_id, p.depth, p.thread_id, p.branch_id,
       p.run_id, p.source, p.step, p.last_node_id, p.event_number, p.created_at, p.run_supersteps, p.graph_id, p.assistant_id, p.n, f.whole,
       p.weight::bigint AS weight,
       CASE WHEN f.whole THEN p.checkpoint END AS checkpoint, CASE WHEN f.whole OR $4 THEN p.metadata END AS metadata,
       p.blob_versions, w.*, l.*, b.*
  FROM fit f CROSS JOIN sized p LEFT JOIN w ON p.n = f.first LEFT JOIN l ON p.n = f.first LEFT JOIN b ON p.n = f.first
 ORDER BY p.n",
            page = $page,
            blob = weight!("b.type", "b.blob"),
            metadata = json_weight!("p.metadata"),
            writes = weight!("s.type", "s.writes"),
            result = weight!("split_part(p.result_header, ' ', 1)", "p.result")
        )
    };
}

/// The checkpoints `c` of a thread that a filter selects, in an order.
macro_rules! selected {
    ($from:expr, $order:literal) => {
        formatcp!(
            "SELECT {COLUMNS}, c.result_task, c.result_header, c.result, row_number() OVER ({order}) AS n FROM {from} AND c.thread_id = $5
     AND c.checkpoint_id < COALESCE($6, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
     AND c.checkpoint_id >= COALESCE($7, '00000000-0000-0000-0000-000000000000'::uuid)
     AND c.checkpoint_id <= COALESCE($7, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
     AND c.source = COALESCE($8, c.source) AND c.step = COALESCE($9, c.step)
     AND ($10::uuid IS NULL OR c.run_id = $10) AND ($11::jsonb IS NULL OR {metadata})
     AND (SELECT 1 FROM deleted_runs d WHERE d.tree_id = c.tree_id AND d.run_id = c.run_id) IS NULL
   {order} LIMIT $12",
            from = $from,
            order = $order,
            metadata = contains!("$11", "$13")
        )
    };
}

/// One namespace of a thread, in the order of its index.
const PAGE: &str = paged!(selected!(
    "checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = $2",
    "ORDER BY c.checkpoint_id DESC"
));

/// Those of the root graph, looked up by a label.
const PAGE_OF_LABEL: &str = paged!(selected!(
    concat!(
        labelled!("$5", "$14", "$6", "$7"),
        " WHERE c.checkpoint_ns = $2"
    ),
    "ORDER BY l.checkpoint_id DESC"
));

/// Checkpoints by their keys.
const PAGE_OF: &str = paged!(
    "SELECT c.*, i.n FROM unnest($5::uuid[]) WITH ORDINALITY i(id, n) CROSS JOIN LATERAL (
     SELECT * FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = $2 AND c.checkpoint_id = i.id LIMIT 1) c"
);

/// The checkpoints that a list selects, newest first.
pub(crate) async fn page(db: &Object, list: &List, scope: PageScope) -> Result<Page> {
    let Some(filter) = MetadataFilter::of(list.metadata.as_ref()) else {
        return Ok(Page::Rows(StoredRows::default()));
    };
    let ns = name(list.ns.as_deref().unwrap_or_default());
    let before = list.before.map(|id| id.0);
    let id = list.id.map(|id| id.0);
    let limit = i64::try_from(list.limit).unwrap_or(i64::MAX);
    let source = filter.source.map(Source::as_str);
    let run = filter.run.map(|id| id.0);
    let metadata = (!filter.rest.is_empty()).then(|| Json::of_map(&filter.rest));
    let most = i64::try_from(scope.most).unwrap_or(i64::MAX);
    let mut others = OtherGraphs::of(&filter);
    let label = label_of(db, list, &filter).await?;
    loop {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![
            &list.tree.0,
            &ns,
            &most,
            &scope.metadata,
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
        let text = match &label {
            Some(label) => {
                params.push(label);
                PAGE_OF_LABEL
            }
            None => PAGE,
        };
        let rows = rows_in(db, text, &params).await?;
        if !others.found_in(&rows)? {
            return Ok(page_in(&rows, scope)?);
        }
    }
}

/// Checkpoints by id.
pub(crate) async fn page_of(
    db: &Object,
    tree: TreeId,
    ns: &Arc<str>,
    ids: &[CheckpointId],
    scope: PageScope,
) -> Result<Page> {
    let ns = name(ns);
    let most = i64::try_from(scope.most).unwrap_or(i64::MAX);
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let params: [&(dyn ToSql + Sync); 5] = [&tree.0, &ns, &most, &scope.metadata, &ids];
    let rows = rows_in(db, PAGE_OF, &params).await?;
    Ok(page_in(&rows, scope)?)
}

async fn rows_in(
    db: &Object,
    sql: &'static str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>> {
    let statement = prepare(db, sql).await?;
    let rows = db.query(&statement, params).await?;
    fail_point!(async "checkpoints::page");
    Ok(rows)
}

fn page_in(rows: &[Row], scope: PageScope) -> Result<Page, Error> {
    let Some(first) = rows.first() else {
        return Ok(Page::Rows(StoredRows::default()));
    };
    if column(first, "whole")? {
        let ns = unname(column(first, "checkpoint_ns")?);
        let read = |row| Ok((column(row, "n")?, row_of(row)?));
        let read = rows.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        return Ok(Page::Rows(StoredRows {
            rows: with_writes(first, read)?,
            blobs: blobs_of(first, |_| ns.clone())?,
        }));
    }
    let mut chains = chains_of(first)?;
    let sizes = rows.iter().map(|row| {
        let own: i64 = column(row, "weight")?;
        let mut weight = u64::try_from(own).unwrap_or(0);
        let versions = column::<JsonText>(row, "blob_versions")?;
        for (channel, version) in versions_of(&versions.0)? {
            weight += chains.sum(&channel, version);
        }
        let metadata = column::<Option<JsonText>>(row, "metadata")?;
        Ok(SizedCheckpoint {
            id: CheckpointId(column(row, "checkpoint_id")?),
            run: column::<Option<Uuid>>(row, "run_id")?.map(RunId),
            source: word(column(row, "source")?)?,
            step: column(row, "step")?,
            metadata: metadata
                .filter(|_| scope.metadata)
                .map(|rest| metadata_of(row, rest))
                .transpose()?,
            weight,
        })
    });
    Ok(Page::Sizes(sizes.collect::<Result<_, Error>>()?))
}

/// The checkpoints of a page, each by its number, with what is pending at them.
fn with_writes(
    first: &Row,
    rows: Vec<(i64, CheckpointRow)>,
) -> Result<Vec<(CheckpointRow, Vec<WriteRow>)>, Error> {
    let of: Option<Vec<i64>> = column(first, "w_rows")?;
    let of = of.unwrap_or_default();
    let numbers: HashMap<i64, usize> = rows.iter().map(|(n, _)| *n).zip(0..).collect();
    let at = |index: usize| {
        let row = of.get(index).and_then(|n| numbers.get(n)).copied();
        &rows[row.unwrap_or(0)].1
    };
    let mut writes: Vec<Vec<WriteRow>> = vec![];
    writes.resize_with(rows.len(), Vec::new);
    for (write, n) in aggregated_writes(first, at)?.into_iter().zip(&of) {
        if let Some(row) = numbers.get(n) {
            writes[*row].push(write);
        }
    }
    let rows = rows.into_iter().map(|(_, row)| row).zip(writes);
    rows.map(|(row, writes)| Ok((row, results::split_all(writes)?)))
        .collect()
}

/// The sizes of all values of a page, which come with its first row.
fn chains_of(row: &Row) -> Result<ChainSizes, Error> {
    let mut chains = ChainSizes::default();
    let Some(channels) = column::<Option<Vec<&str>>>(row, "l_channels")? else {
        return Ok(chains);
    };
    let versions: Vec<&str> = column(row, "l_versions")?;
    let bases: Vec<Option<&str>> = column(row, "l_bases")?;
    let weights: Vec<i64> = column(row, "l_weights")?;
    for (index, channel) in channels.into_iter().enumerate() {
        chains.add(
            unname(channel),
            version(versions[index])?,
            bases[index].map(version).transpose()?,
            u64::try_from(weights[index]).unwrap_or(0),
        );
    }
    Ok(chains)
}

statements!(PAGE, PAGE_OF_LABEL, PAGE_OF);
