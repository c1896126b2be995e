//! Rows out of the database.

use std::sync::Arc;

use tokio_postgres::Row;
use uuid::Uuid;

use super::params::{JsonText, Time, column, unname, version, word};
use crate::{
    checkpoint::{BlobRow, CheckpointRow, Error, WriteRow},
    id::{BranchId, CheckpointId, NodeId, RunId, TaskId, ThreadId},
};

/// A row of `checkpoints`.
pub(super) fn row_of(row: &Row) -> Result<CheckpointRow, Error> {
    let id = |name| column::<Option<Uuid>>(row, name);
    Ok(CheckpointRow {
        ns: unname(column(row, "checkpoint_ns")?),
        id: CheckpointId(column(row, "checkpoint_id")?),
        parent: id("parent_checkpoint_id")?.map(CheckpointId),
        root: id("root_checkpoint_id")?.map(CheckpointId),
        depth: column(row, "depth")?,
        thread: ThreadId(column(row, "thread_id")?),
        branch: BranchId(column(row, "branch_id")?),
        run: id("run_id")?.map(RunId),
        source: word(column(row, "source")?)?,
        step: column(row, "step")?,
        last_node: id("last_node_id")?.map(NodeId),
        event_number: column(row, "event_number")?,
        envelope: column::<JsonText>(row, "checkpoint")?.0,
        metadata: column::<JsonText>(row, "metadata")?.0,
        created_at: column::<Time>(row, "created_at")?.0,
    })
}

/// The aggregated blobs of a row; `ns` gives the namespace of each.
pub(super) fn blobs_of(row: &Row, ns: impl Fn(usize) -> Arc<str>) -> Result<Vec<BlobRow>, Error> {
    let Some(channels) = column::<Option<Vec<&str>>>(row, "b_channels")? else {
        return Ok(Vec::new());
    };
    let versions: Vec<&str> = column(row, "b_versions")?;
    let bases: Vec<Option<&str>> = column(row, "b_bases")?;
    let chains: Vec<i32> = column(row, "b_chains")?;
    let tags: Vec<&str> = column(row, "b_types")?;
    let bytes: Vec<Vec<u8>> = column(row, "b_blobs")?;
    let mut blobs = Vec::with_capacity(bytes.len());
    for (index, bytes) in bytes.into_iter().enumerate() {
        blobs.push(BlobRow {
            ns: ns(index),
            channel: unname(channels[index]),
            version: version(versions[index])?,
            base: bases[index].map(version).transpose()?,
            chain_bytes: chains[index],
            tag: Arc::from(tags[index]),
            bytes,
        });
    }
    Ok(blobs)
}

/// One row of `checkpoint_blobs`.
pub(super) fn blob_of(row: &Row, ns: &str) -> Result<BlobRow, Error> {
    Ok(BlobRow {
        ns: Arc::from(ns),
        channel: unname(column(row, "channel")?),
        version: version(column(row, "version")?)?,
        base: column::<Option<&str>>(row, "base_version")?
            .map(version)
            .transpose()?,
        chain_bytes: column(row, "chain_bytes")?,
        tag: Arc::from(column::<&str>(row, "type")?),
        bytes: column(row, "blob")?,
    })
}

/// The aggregated writes at a checkpoint.
pub(super) fn writes_of(row: &Row, at: &CheckpointRow) -> Result<Vec<WriteRow>, Error> {
    let Some(tasks) = column::<Option<Vec<Uuid>>>(row, "w_tasks")? else {
        return Ok(Vec::new());
    };
    let branches: Vec<Uuid> = column(row, "w_branches")?;
    let idxs: Vec<i32> = column(row, "w_idxs")?;
    let paths: Vec<&str> = column(row, "w_paths")?;
    let channels: Vec<Option<&str>> = column(row, "w_channels")?;
    let tags: Vec<&str> = column(row, "w_types")?;
    let bytes: Vec<Vec<u8>> = column(row, "w_writes")?;
    Ok(bytes
        .into_iter()
        .enumerate()
        .map(|(index, bytes)| WriteRow {
            ns: Arc::clone(&at.ns),
            checkpoint: at.id,
            branch: BranchId(branches[index]),
            task: TaskId(tasks[index]),
            idx: idxs[index],
            path: unname(paths[index]),
            channel: channels[index].map(unname),
            tag: Arc::from(tags[index]),
            bytes,
            upsert: false,
        })
        .collect())
}
