//! Threads, branches, tags, events and open runs.

use std::sync::Arc;

use const_format::formatcp;
use tokio_postgres::Row;

use super::{THREAD_COLUMNS, WITH_GRAPH};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    storage::postgres::{
        columns::{JsonText, Time, all, column, id_if, one, text_if, word},
        connection::{Object, Result},
    },
    tree::store::rows::{Branch, OpenRun, Tag, ThreadRow},
};

const THREAD: &str = formatcp!("SELECT {THREAD_COLUMNS} FROM threads t WHERE t.thread_id = $1");
const THREADS: &str = formatcp!("SELECT {WITH_GRAPH} FROM threads t WHERE t.thread_id = ANY($1)");

pub(super) fn thread_of(row: &Row) -> Result<ThreadRow, Error> {
    Ok(ThreadRow {
        id: ThreadId(column(row, "thread_id")?),
        tree: TreeId(column(row, "tree_id")?),
        parent: id_if(row, "parent_thread_id")?,
        fork_checkpoint: id_if(row, "fork_checkpoint_id")?,
        fork_depth: column(row, "fork_checkpoint_depth")?,
        fork_anchor: text_if(row, "fork_anchor")?,
        fork_position: column::<Option<&str>>(row, "fork_position")?
            .map(word)
            .transpose()?,
        fork_event_number: column(row, "fork_event_number")?,
        fork_level: column(row, "fork_level")?,
        active_branch: id_if(row, "active_branch_id")?,
        last_event_number: column(row, "last_event_number")?,
        metadata: column::<JsonText>(row, "metadata")?.map()?,
        created_at: column::<Time>(row, "created_at")?.0,
        updated_at: column::<Time>(row, "updated_at")?.0,
        deleted_at: column::<Option<Time>>(row, "deleted_at")?.map(|time| time.0),
    })
}

pub(super) async fn thread_row(db: &Object, id: ThreadId) -> Result<Option<ThreadRow>> {
    one(db, THREAD, &[&id.0], thread_of).await
}

pub(super) async fn thread_rows(db: &Object, ids: &[ThreadId]) -> Result<Vec<ThreadRow>> {
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    all(db, THREADS, &[&ids], thread_of).await
}

macro_rules! branches {
    ($rest:literal) => {
        formatcp!(
            "SELECT b.tree_id, b.branch_id, b.thread_id, b.name, b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.version,
       b.outcome, b.error, b.origin, b.source_branch_id, b.creation_id, b.created_at, b.updated_at
  FROM branches b WHERE b.tree_id = $1 {rest}",
            rest = $rest
        )
    };
}

const BRANCHES: &str = branches!("AND b.thread_id = $2 ORDER BY b.created_at, b.branch_id");
const BRANCH: &str = branches!("AND b.branch_id = $2");
const LOCK_BRANCH: &str = branches!("AND b.branch_id = $2 FOR UPDATE OF b");

fn branch_of(row: &Row) -> Result<Branch, Error> {
    Ok(Branch {
        tree: TreeId(column(row, "tree_id")?),
        id: BranchId(column(row, "branch_id")?),
        thread: ThreadId(column(row, "thread_id")?),
        name: Arc::from(column::<&str>(row, "name")?),
        head: id_if(row, "head_checkpoint_id")?,
        head_depth: column(row, "head_depth")?,
        epoch: column(row, "writer_epoch")?,
        version: column(row, "version")?,
        outcome: word(column(row, "outcome")?)?,
        error: column::<Option<JsonText>>(row, "error")?
            .map(|json| json.value())
            .transpose()?,
        origin: Arc::from(column::<&str>(row, "origin")?),
        source: id_if(row, "source_branch_id")?,
        creation: id_if(row, "creation_id")?,
        created_at: column::<Time>(row, "created_at")?.0,
        updated_at: column::<Time>(row, "updated_at")?.0,
    })
}

pub(super) async fn branches(db: &Object, tree: TreeId, thread: ThreadId) -> Result<Vec<Branch>> {
    all(db, BRANCHES, &[&tree.0, &thread.0], branch_of).await
}

pub(super) async fn branch(db: &Object, tree: TreeId, id: BranchId) -> Result<Option<Branch>> {
    one(db, BRANCH, &[&tree.0, &id.0], branch_of).await
}

pub(super) async fn lock_branch(db: &Object, tree: TreeId, id: BranchId) -> Result<Option<Branch>> {
    one(db, LOCK_BRANCH, &[&tree.0, &id.0], branch_of).await
}

macro_rules! tags {
    ($rest:literal) => {
        formatcp!(
            "SELECT name, checkpoint_id, depth, message_id, created_at, updated_at \
             FROM tags WHERE tree_id = $1 AND thread_id = $2 {rest}",
            rest = $rest
        )
    };
}

const TAGS: &str = tags!("ORDER BY name");
const TAG: &str = tags!("AND name = $3");

fn tag_of(row: &Row) -> Result<Tag, Error> {
    Ok(Tag {
        name: Arc::from(column::<&str>(row, "name")?),
        checkpoint: CheckpointId(column(row, "checkpoint_id")?),
        depth: column(row, "depth")?,
        message_id: text_if(row, "message_id")?,
        created_at: column::<Time>(row, "created_at")?.0,
        updated_at: column::<Time>(row, "updated_at")?.0,
    })
}

pub(super) async fn tags(db: &Object, tree: TreeId, thread: ThreadId) -> Result<Vec<Tag>> {
    all(db, TAGS, &[&tree.0, &thread.0], tag_of).await
}

pub(super) async fn tag(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    name: &str,
) -> Result<Option<Tag>> {
    one(db, TAG, &[&tree.0, &thread.0, &name], tag_of).await
}

const OPEN_RUNS: &str = "
SELECT run_id, branch_id, status = 'running' AS running FROM runs
 WHERE tree_id = $1 AND thread_id = $2 AND status IN ('pending', 'running') ORDER BY seq";

pub(super) async fn open_runs(db: &Object, tree: TreeId, thread: ThreadId) -> Result<Vec<OpenRun>> {
    all(db, OPEN_RUNS, &[&tree.0, &thread.0], |row| {
        Ok(OpenRun {
            id: RunId(column(row, "run_id")?),
            branch: id_if(row, "branch_id")?,
            running: column(row, "running")?,
        })
    })
    .await
}

statements!(
    THREAD,
    THREADS,
    BRANCHES,
    BRANCH,
    LOCK_BRANCH,
    TAGS,
    TAG,
    OPEN_RUNS
);
