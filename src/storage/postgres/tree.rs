//! Rows of conversation trees.

/// The columns of a node of the message index, of the row `m`. Of a role, which may be any text, the beginning is
/// read, so that lists of nodes have a bounded size.
const NODE_COLUMNS: &str = "m.node_id, m.parent_node_id, m.ordinal, m.kind, m.message_id, m.edit_of, m.checkpoint_id, m.depth, m.seq,
          m.settled_checkpoint_id, m.thread_id, m.branch_id, m.run_id, substr(m.role, 1, 64) AS role, m.event_number, m.created_at";

/// The columns of a thread, of the row `t`, with this as its metadata.
macro_rules! thread_columns {
    ($metadata:literal) => {
        concat!(
            "t.thread_id, t.tree_id, t.parent_thread_id, t.fork_checkpoint_id, t.fork_checkpoint_depth, t.fork_anchor, t.fork_position,
          t.fork_event_number, t.fork_level, t.active_branch_id, t.last_event_number, ",
            $metadata,
            ", t.created_at, t.updated_at, t.deleted_at"
        )
    };
}

const THREAD_COLUMNS: &str = thread_columns!("t.metadata");
const WITHOUT_METADATA: &str = thread_columns!("'{}'::jsonb AS metadata");

/// With the graph as the only part of it that is read.
const WITH_GRAPH: &str =
    thread_columns!("jsonb_build_object('graph_id', t.metadata -> 'graph_id') AS metadata");

/// The columns of a checkpoint as a point of its tree, of the row `c`.
const POINT_COLUMNS: &str = "c.checkpoint_id, c.parent_checkpoint_id, c.depth, c.thread_id, c.branch_id, c.last_node_id, c.event_number, c.run_id,
          c.source, c.step, c.created_at";

mod changes;
mod family;
mod index;
mod lifecycle;
mod lookup;
mod members;
mod outline;
mod paths;
mod session;

pub(super) use members::{LEVEL_ON_THREAD, level_on_thread, withdrawn};

statements!(; changes, family, index, lifecycle, lookup, members, outline, paths);
