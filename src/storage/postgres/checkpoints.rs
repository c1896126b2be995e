//! Checkpoints: every operation is one statement.

/// The columns of a page, of the checkpoint row `c`.
const COLUMNS: &str = "c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.root_checkpoint_id, c.depth, c.thread_id,
          c.branch_id, c.run_id, c.source, c.step, c.last_node_id, c.event_number, c.checkpoint, c.blob_versions, c.metadata, c.created_at,
          c.run_supersteps, c.graph_id, c.assistant_id";

/// The pending writes of each row of `page` as arrays.
const WRITES: &str = "LEFT JOIN LATERAL (
            SELECT array_agg(s.branch_id) AS w_branches, array_agg(s.task_id) AS w_tasks, array_agg(s.idx) AS w_idxs,
                   array_agg(s.task_path) AS w_paths, array_agg(s.channel) AS w_channels, array_agg(s.type) AS w_types,
                   array_agg(s.writes) AS w_writes
              FROM (SELECT * FROM all_checkpoint_writes s WHERE s.tree_id = $1 AND s.checkpoint_ns = p.checkpoint_ns
                       AND s.checkpoint_id = p.checkpoint_id ORDER BY s.task_path, s.task_id, s.idx, s.branch_id) s) w ON true";

/// Whether the metadata of the checkpoint row `c` contains that of a filter; the graphs are those whose own
/// assistant is known not to be the one that the filter names.
macro_rules! contains {
    ($filter:literal, $graphs:literal) => {
        concat!(
            "c.metadata::jsonb || jsonb_strip_nulls(jsonb_build_object('graph_id', c.graph_id, 'assistant_id', COALESCE(c.assistant_id::text,
         CASE WHEN c.graph_id IS NOT NULL AND c.graph_id <> ALL(", $graphs, "::text[]) THEN ", $filter, "->>'assistant_id' END))) @> ", $filter
        )
    };
}

/// The end of a statement that inserts pending writes, the rows `x`, where the fence `f` allows it:
/// the first writer wins, except for rows that replace what is there. `$1` is the tree and `$2` the
/// branch.
macro_rules! insert_writes {
    ($arrays:literal) => {
        concat!(
            "
x AS (
  SELECT x.* FROM f, unnest(", $arrays, ")
    x(ns, cp, task, idx, path, channel, type, writes, upsert)),
k AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT $1, ns, cp, $2, task, idx, path, channel, type, writes FROM x WHERE upsert
  ON CONFLICT (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx) DO UPDATE SET type = EXCLUDED.type, writes = EXCLUDED.writes),
o AS (
  INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
  SELECT $1, ns, cp, $2, task, idx, path, channel, type, writes FROM x WHERE NOT upsert
  ON CONFLICT DO NOTHING)"
        )
    };
}

pub(crate) mod blobs;
pub(crate) mod commit;
mod flush;
mod list;
mod load;
mod page;

pub(super) use self::{
    blobs::blobs,
    flush::flush,
    list::list,
    load::{Names, load, row_named, writes_of},
    page::{page, page_of},
};

statements!(; blobs, commit, flush, list, load, page);
