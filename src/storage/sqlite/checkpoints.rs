//! Checkpoints with their values and writes.

/// Steps that a walk may take before the data is taken for damaged.
const MAX_WALK: i64 = 100_000;

/// A query for checkpoints, in the order of columns that [`load::read_checkpoint`] expects.
macro_rules! select {
    ($($rest:literal),+) => {
        concat!(
            "SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, \
             c.root_checkpoint_id, c.depth, c.thread_id, c.branch_id, c.run_id, c.source, c.step, \
             c.last_node_id, c.event_number, c.checkpoint, c.metadata, c.created_at, \
             c.run_supersteps, c.blob_versions, c.graph_id, c.assistant_id ",
            $($rest),+
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
    commit::{commit_all, insert_writes},
    flush::flush,
    list::list,
    load::{load, without_values},
    page::{page, page_of},
};

#[cfg(test)]
pub(super) use {
    list::{LIST_OF_LABEL, LIST_OF_NAMESPACE},
    load::NEWEST,
};
