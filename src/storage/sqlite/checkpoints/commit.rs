//! Writes supersteps, each gated by the row of its branch.

use std::{collections::HashMap, mem};

use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    checkpoint::{
        BlobRow, CheckpointRow, Commit, Error, Result, Slot, WriteRow, metadata::Columns, paths,
    },
    id::{BranchId, NodeId, TreeId},
    storage::sqlite::{branches, events},
    time::Timestamp,
    tree::store::rows::NewEvent,
};

/// Supersteps, each one whole or not at all. What follows one of its branch that cannot be stored fails
/// with it; what the fence refuses was another writer's. On `Err` the caller rolls back what was written so far.
pub(crate) fn commit_all(db: &Connection, commits: &[Commit]) -> Result<Vec<Result<i32>>> {
    if let [only] = commits {
        return commit(db, only).map(|depth| vec![Ok(depth)]);
    }
    let mut results = Vec::with_capacity(commits.len());
    let mut failed = HashMap::new();
    for of_branch in commits.chunk_by(|a, b| a.slot.branch == b.slot.branch) {
        let branch = of_branch[0].slot.branch;
        let failed: &mut Option<Error> = failed.entry(branch).or_default();
        let together = if failed.is_some() {
            None
        } else {
            within(db, || commit_together(db, of_branch))?.ok()
        };
        match together {
            Some(depths) => results.extend(depths.into_iter().map(Ok)),
            None => results.extend(commit_one_by_one(db, of_branch, failed)?),
        }
    }
    Ok(results)
}

/// What `write` does, whole or not at all.
fn within<T>(db: &Connection, write: impl FnOnce() -> Result<T>) -> Result<Result<T>> {
    db.prepare_cached("SAVEPOINT supersteps")?.execute([])?;
    let result = write();
    if result.is_err() {
        db.prepare_cached("ROLLBACK TO supersteps")?.execute([])?;
    }
    db.prepare_cached("RELEASE supersteps")?.execute([])?;
    Ok(result)
}

/// Supersteps of one branch, all or none: so the row of a checkpoint may have the results that the next one brings,
/// which may point to values of the next one.
fn commit_together(db: &Connection, commits: &[Commit]) -> Result<Vec<i32>> {
    let mut depths = Vec::with_capacity(commits.len());
    let mut commits = commits.iter().peekable();
    let mut is_written = false;
    while let Some(commit) = commits.next() {
        let results = commits.peek().and_then(|next| commit.results_in(next));
        // Where the row of the checkpoint before has the results, there are no others.
        let writes = if mem::replace(&mut is_written, results.is_some()) {
            &[]
        } else {
            &*commit.writes
        };
        depths.push(superstep(db, commit, writes, results.as_deref())?);
    }
    Ok(depths)
}

/// Supersteps of one branch, as far as they can be stored: none behind what `failed` of it.
fn commit_one_by_one(
    db: &Connection,
    commits: &[Commit],
    failed: &mut Option<Error>,
) -> Result<Vec<Result<i32>>> {
    let mut results = Vec::with_capacity(commits.len());
    for next in commits {
        let result = match &*failed {
            Some(error) => Err(error.clone()),
            None => within(db, || commit(db, next))?,
        };
        if let Err(error) = &result
            && !matches!(error, Error::Fenced)
        {
            *failed = Some(error.clone());
        }
        results.push(result);
    }
    Ok(results)
}

/// One superstep. On `Err` the caller rolls back what was written so far.
pub(crate) fn commit(db: &Connection, commit: &Commit) -> Result<i32> {
    superstep(db, commit, &commit.writes, None)
}

/// A superstep that brings these results, with the row of those of the tasks that ran from its checkpoint.
fn superstep(
    db: &Connection,
    commit: &Commit,
    writes: &[WriteRow],
    result: Option<&WriteRow>,
) -> Result<i32> {
    let now = Timestamp::now();
    if let Some(open) = &commit.open {
        branches::open(db, open, now)?;
    }
    let slot = &commit.slot;
    let row = &commit.checkpoint;
    let depth = if row.ns.is_empty() {
        match move_head(db, slot, row, now)? {
            Some(depth) => depth,
            // One that was written before has no result in its row.
            None if result.is_some() => return Err(Error::Fenced),
            // Nothing was written, unless this is a retry after a lost reply.
            None => return written_depth(db, slot, row)?.ok_or(Error::Fenced),
        }
    } else {
        check_epoch(db, slot)?;
        row.depth
    };
    let events = commit.events.len() as i64;
    let last_event = match events {
        0 => None,
        _ => Some(append_events(db, commit, now)?),
    };
    if !insert_checkpoint(db, slot.tree, row, depth, result)? {
        // A subgraph's row that is there already: a retry, nothing more to do.
        return Ok(depth);
    }
    insert_blobs(db, slot.tree, &commit.blobs)?;
    insert_writes(db, slot.tree, slot.branch, writes)?;
    if !commit.nodes.is_empty() {
        insert_nodes(db, commit, depth, last_event.map(|last| last - events), now)?;
    }
    Ok(depth)
}

/// The fence: compare-and-swap of the head. `None` when the branch is not as expected.
fn move_head(
    db: &Connection,
    slot: &Slot,
    row: &CheckpointRow,
    now: Timestamp,
) -> Result<Option<i32>> {
    let depth = db
        .prepare_cached(
            "UPDATE branches SET head_checkpoint_id = ?1, head_depth = head_depth + 1, \
             version = version + 1, updated_at = ?2 \
             WHERE tree_id = ?3 AND branch_id = ?4 AND writer_epoch = ?5 \
             AND head_checkpoint_id IS ?6 RETURNING head_depth",
        )?
        .query_row(
            params![
                row.id,
                now.0,
                slot.tree,
                slot.branch,
                slot.epoch,
                row.parent,
            ],
            |row| row.get(0),
        )
        .optional()?;
    Ok(depth)
}

/// The depth of a checkpoint that an earlier attempt has written, while it is the head.
fn written_depth(db: &Connection, slot: &Slot, row: &CheckpointRow) -> Result<Option<i32>> {
    let depth = db
        .prepare_cached(
            "SELECT head_depth FROM branches WHERE tree_id = ?1 AND branch_id = ?2 \
             AND writer_epoch = ?3 AND head_checkpoint_id = ?4",
        )?
        .query_row(params![slot.tree, slot.branch, slot.epoch, row.id], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(depth)
}

pub(super) fn check_epoch(db: &Connection, slot: &Slot) -> Result<()> {
    let is_current = db
        .prepare_cached(
            "SELECT 1 FROM branches WHERE tree_id = ?1 AND branch_id = ?2 AND writer_epoch = ?3",
        )?
        .exists(params![slot.tree, slot.branch, slot.epoch])?;
    if is_current {
        Ok(())
    } else {
        Err(Error::Fenced)
    }
}

/// False when a subgraph's row with this id is there already.
fn insert_checkpoint(
    db: &Connection,
    tree: TreeId,
    row: &CheckpointRow,
    depth: i32,
    result: Option<&WriteRow>,
) -> Result<bool> {
    let own = Columns::of(&row.metadata);
    let inserted = db
        .prepare_cached(
            "INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, \
             parent_checkpoint_id, depth, thread_id, branch_id, root_checkpoint_id, last_node_id, \
             event_number, run_id, source, step, checkpoint, metadata, created_at, run_supersteps, \
             blob_versions, graph_id, assistant_id, result_task, result_header, result) \
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, \
              max(?10, coalesce((SELECT last_event_number FROM threads WHERE thread_id = ?6 AND ?2 = ''), 0)), \
              ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23 \
             WHERE ?2 = '' OR NOT EXISTS (SELECT 1 FROM checkpoints \
              WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3)",
        )?
        .execute(params![
            tree,
            row.ns,
            row.id,
            row.parent,
            depth,
            row.thread,
            row.branch,
            row.root,
            row.last_node,
            row.event_number,
            row.run,
            row.source.as_str(),
            row.step,
            row.envelope,
            own.rest,
            row.created_at.0,
            row.run_supersteps,
            row.blob_versions,
            own.graph,
            own.assistant,
            result.map(|row| row.task),
            result.map(|row| row.header(&paths::shortened(&row.path))),
            result.map(|row| &row.bytes),
        ])?;
    Ok(inserted == 1)
}

fn insert_blobs(db: &Connection, tree: TreeId, blobs: &[BlobRow]) -> Result<()> {
    if blobs.is_empty() {
        return Ok(());
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, \
         chain_bytes, type, blob) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for blob in blobs {
        insert.execute(params![
            tree,
            blob.ns,
            blob.channel,
            blob.version.to_string(),
            blob.base.map(|base| base.to_string()),
            blob.chain_bytes,
            blob.tag,
            blob.bytes,
        ])?;
    }
    Ok(())
}

/// The first writer wins, except for rows that replace what is there.
pub(in super::super) fn insert_writes(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    writes: &[WriteRow],
) -> Result<()> {
    for write in writes {
        let sql = if write.upsert {
            "INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, \
             task_id, idx, task_path, channel, type, writes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
             ON CONFLICT DO UPDATE SET type = excluded.type, writes = excluded.writes"
        } else {
            "INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, \
             task_id, idx, task_path, channel, type, writes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING"
        };
        db.prepare_cached(sql)?.execute(params![
            tree,
            write.ns,
            write.checkpoint,
            branch,
            write.task,
            write.idx,
            paths::shortened(&write.path),
            write.channel,
            write.tag,
            write.bytes,
        ])?;
    }
    Ok(())
}

/// Numbers and inserts the events; returns the number of the last one.
fn append_events(db: &Connection, commit: &Commit, now: Timestamp) -> Result<i64> {
    let slot = &commit.slot;
    let events: Vec<NewEvent> = commit
        .events
        .iter()
        .map(|event| NewEvent {
            kind: event.kind,
            payload: event.payload.clone(),
            branch: Some(slot.branch),
            checkpoint: Some(commit.checkpoint.id),
            message_id: event.message_id.clone(),
        })
        .collect();
    // A post or an edit is a change of its own.
    let append = if commit.checkpoint.run.is_some() {
        events::append_in_run
    } else {
        events::append
    };
    append(db, slot.tree, slot.thread, &events, now)
}

fn insert_nodes(
    db: &Connection,
    commit: &Commit,
    depth: i32,
    before_events: Option<i64>,
    now: Timestamp,
) -> Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO message_nodes (tree_id, node_id, parent_node_id, ordinal, kind, message_id, \
         edit_of, checkpoint_id, depth, seq, thread_id, branch_id, run_id, role, event_number, \
         created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
    )?;
    let slot = &commit.slot;
    let row = &commit.checkpoint;
    let before = match commit.nodes.first().and_then(|first| first.parent) {
        Some(parent) => ordinal(db, slot.tree, parent)?,
        None => 0,
    };
    for node in &commit.nodes {
        let event = node.event_number.or_else(|| {
            let offset = node.event_offset?;
            Some(before_events? + i64::from(offset))
        });
        insert.execute(params![
            slot.tree,
            node.id,
            node.parent,
            before + node.ordinal,
            node.kind,
            node.message_id,
            node.edit_of,
            row.id,
            depth,
            node.seq,
            slot.thread,
            slot.branch,
            row.run,
            node.role,
            event,
            now.0,
        ])?;
    }
    Ok(())
}

/// How many messages there are up to a node; 0 when it is gone.
fn ordinal(db: &Connection, tree: TreeId, node: NodeId) -> Result<i32> {
    let ordinal = db
        .prepare_cached("SELECT ordinal FROM message_nodes WHERE tree_id = ?1 AND node_id = ?2")?
        .query_row(params![tree, node], |row| row.get(0))
        .optional()?;
    Ok(ordinal.unwrap_or(0))
}
