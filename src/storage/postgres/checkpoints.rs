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

/// Keys of a thread's checkpoints with a label, newest first; `$1` is the tree.
macro_rules! keys_of_label {
    ($thread:literal, $label:literal, $before:literal, $id:literal) => {
        concat!(
            "(SELECT l.checkpoint_id FROM checkpoint_labels l WHERE l.thread_id = ",
            $thread,
            " AND l.label = ",
            $label,
            " AND l.tree_id = $1
        AND l.checkpoint_id < COALESCE(",
            $before,
            ", 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
        AND l.checkpoint_id >= COALESCE(",
            $id,
            ", '00000000-0000-0000-0000-000000000000'::uuid)
        AND l.checkpoint_id <= COALESCE(",
            $id,
            ", 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) ORDER BY l.checkpoint_id DESC)"
        )
    };
}

/// The checkpoints `c` of the root graph that have a label, and those that have more labels than are stored, newest first by
/// their keys `l`. Both are ranges of one index, merged in its order, so that what is behind the end of a page is not read.
macro_rules! labelled {
    ($thread:literal, $label:literal, $before:literal, $id:literal) => {
        concat!(
            "(", keys_of_label!($thread, $label, $before, $id), "
     UNION ALL
     ", keys_of_label!($thread, "''", $before, $id), "
     ORDER BY checkpoint_id DESC OFFSET 0) l CROSS JOIN LATERAL (
     SELECT * FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = l.checkpoint_id LIMIT 1) c"
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
mod channels;
pub(crate) mod commit;
mod flush;
mod list;
mod load;
mod narrow;
mod page;

pub(super) use self::{
    blobs::blobs,
    channels::channels,
    flush::flush,
    list::list,
    load::{Names, load, row_named, writes_of},
    page::{page, page_of},
};

statements!(; blobs, channels, commit, flush, list, load, narrow, page);
