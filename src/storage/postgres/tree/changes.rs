//! Rows that operations on the tree insert, change and delete. Times are those of the statement:
//! a transaction may have waited long for its tree.

use crate::{
    checkpoint::{Commit, Error},
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::{Created, NewRun},
    storage::postgres::{
        branches,
        checkpoints::commit::{self, Kind},
        columns::{Json, Params, Time, execute, id_if, name},
        connection::{Object, Result, prepare},
        events,
        runs::{CANCEL, LOCK_SLOTS, create},
    },
    tree::{
        Outcome, opening,
        store::rows::{NewEvent, Position, Tag},
        store::tx::{InsertBranch, InsertFork, SharedInside},
    },
};

const LOCK_BRANCH: &str =
    "SELECT 1 FROM branches WHERE tree_id = $1 AND branch_id = $2 FOR NO KEY UPDATE";

const SET_CREATION: &str =
    "UPDATE branches SET creation_id = $3 WHERE tree_id = $1 AND branch_id = $2";

const INSIDE: &str = "
SELECT (SELECT s.checkpoint_id FROM checkpoints s
         WHERE s.tree_id = $1 AND s.root_checkpoint_id = $2 AND s.checkpoint_ns <> '' AND s.branch_id = $3
         ORDER BY s.checkpoint_id DESC LIMIT 1) AS own,
       b.creation_id
  FROM branches b WHERE b.tree_id = $1 AND b.branch_id = $3";

const SHARE_INSIDE: &str = "
UPDATE branches SET source_branch_id = $3, creation_id = $4 WHERE tree_id = $1 AND branch_id = $2";

const RENAME_BRANCH: &str = "
UPDATE branches SET name = $3, updated_at = clock_timestamp() WHERE tree_id = $1 AND branch_id = $2";

const DELETE_BRANCH: &str = "DELETE FROM branches WHERE tree_id = $1 AND branch_id = $2";

const ACTIVATE: &str = "
UPDATE threads SET active_branch_id = $2, updated_at = clock_timestamp() WHERE thread_id = $1";

const DELETE_TAG: &str = "DELETE FROM tags WHERE tree_id = $1 AND thread_id = $2 AND name = $3";

/// No state is newer than its thread.
const SET_OUTCOME: &str = "
WITH b AS (
  UPDATE branches SET outcome = $3, error = NULL, updated_at = clock_timestamp() WHERE tree_id = $1 AND branch_id = $2
  RETURNING thread_id, updated_at)
UPDATE threads t SET updated_at = GREATEST(t.updated_at, (SELECT b.updated_at FROM b)) WHERE t.thread_id = (SELECT b.thread_id FROM b)";

const INSERT_BRANCH: &str = "
INSERT INTO branches (tree_id, branch_id, thread_id, name, head_checkpoint_id, head_depth, outcome, origin, source_branch_id, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp(), clock_timestamp())";

pub(super) async fn insert_branch(db: &Object, new: &InsertBranch) -> Result<()> {
    let head = new.head.map(|id| id.0);
    let source = new.source.map(|id| id.0);
    let params: Params<'_, 9> = [
        &new.tree.0,
        &new.id.0,
        &new.thread.0,
        &&*new.name,
        &head,
        &new.head_depth,
        &new.outcome.as_str(),
        &new.origin,
        &source,
    ];
    execute(db, INSERT_BRANCH, &params).await?;
    Ok(())
}

pub(super) async fn copy_writes(
    db: &Object,
    tree: TreeId,
    base: CheckpointId,
    from: BranchId,
    to: BranchId,
) -> Result<()> {
    // Flushes in flight end first.
    execute(db, LOCK_BRANCH, &[&tree.0, &from.0]).await?;
    let creation = branches::creation_id(db, tree.0, (from.0, base.0), true).await?;
    branches::copy_writes(db, tree.0, base.0, from.0, to.0).await?;
    execute(db, SET_CREATION, &[&tree.0, &to.0, &creation]).await?;
    Ok(())
}

pub(super) async fn inside(
    db: &Object,
    tree: TreeId,
    base: CheckpointId,
    from: BranchId,
) -> Result<Option<SharedInside>> {
    let statement = prepare(db, INSIDE).await?;
    let row = db
        .query_opt(&statement, &[&tree.0, &base.0, &from.0])
        .await?;
    let Some(row) = row else { return Ok(None) };
    let (own, creation) = (id_if(&row, "own")?, id_if(&row, "creation_id")?);
    Ok(opening::shared_inside(from, own, creation))
}

pub(super) async fn share_inside(
    db: &Object,
    tree: TreeId,
    to: BranchId,
    shared: SharedInside,
) -> Result<()> {
    let of: Params<'_, 4> = [&tree.0, &to.0, &shared.source.0, &shared.creation.0];
    execute(db, SHARE_INSIDE, &of).await?;
    Ok(())
}

pub(super) async fn rename_branch(
    db: &Object,
    tree: TreeId,
    id: BranchId,
    name: &str,
) -> Result<()> {
    execute(db, RENAME_BRANCH, &[&tree.0, &id.0, &name]).await?;
    Ok(())
}

pub(super) async fn delete_branch(db: &Object, tree: TreeId, id: BranchId) -> Result<()> {
    execute(db, DELETE_BRANCH, &[&tree.0, &id.0]).await?;
    Ok(())
}

pub(super) async fn activate(db: &Object, thread: ThreadId, branch: BranchId) -> Result<()> {
    execute(db, ACTIVATE, &[&thread.0, &branch.0]).await?;
    Ok(())
}

/// `xmax` is zero in a row that this statement inserted.
const PUT_TAG: &str = "
INSERT INTO tags (tree_id, thread_id, name, checkpoint_id, depth, message_id, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tree_id, thread_id, name) DO UPDATE SET checkpoint_id = EXCLUDED.checkpoint_id, depth = EXCLUDED.depth,
  message_id = EXCLUDED.message_id, updated_at = EXCLUDED.updated_at
RETURNING xmax = 0 AS is_new";

pub(super) async fn put_tag(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    tag: &Tag,
) -> Result<bool> {
    let statement = prepare(db, PUT_TAG).await?;
    let message = tag.message_id.as_deref().map(name);
    let params: Params<'_, 8> = [
        &tree.0,
        &thread.0,
        &&*tag.name,
        &tag.checkpoint.0,
        &tag.depth,
        &message,
        &Time(tag.created_at),
        &Time(tag.updated_at),
    ];
    Ok(db.query_one(&statement, &params).await?.try_get(0)?)
}

pub(super) async fn delete_tag(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    name: &str,
) -> Result<bool> {
    let deleted = execute(db, DELETE_TAG, &[&tree.0, &thread.0, &name]).await?;
    Ok(deleted > 0)
}

pub(super) async fn cancel_runs(db: &Object, thread: ThreadId, runs: &[RunId]) -> Result<()> {
    let lock = prepare(db, LOCK_SLOTS).await?;
    let cancel = prepare(db, CANCEL).await?;
    for run in runs {
        let run = Some(run.0);
        db.query(&lock, &[&thread.0, &run]).await?;
        db.query(&cancel, &[&thread.0, &run, &None::<Json<'_>>])
            .await?;
    }
    Ok(())
}

const PIN_RUNS: &str = "
UPDATE runs SET branch_id = $2, updated_at = clock_timestamp()
 WHERE run_id = ANY($1) AND CASE WHEN status = 'pending' THEN branch_id IS NULL END";

pub(super) async fn pin_runs(db: &Object, runs: &[RunId], branch: BranchId) -> Result<()> {
    let runs: Vec<_> = runs.iter().map(|run| run.0).collect();
    execute(db, PIN_RUNS, &[&runs, &branch.0]).await?;
    Ok(())
}

const INSERT_FORK: &str = "
INSERT INTO threads (thread_id, tree_id, parent_thread_id, fork_checkpoint_id, fork_checkpoint_depth, fork_anchor, fork_position,
       fork_event_number, fork_level, active_branch_id, last_event_number, metadata, created_at, updated_at, owner)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $8, $11, clock_timestamp(), clock_timestamp(), o.owner FROM trees o WHERE o.tree_id = $2";

pub(super) async fn insert_fork(db: &Object, new: &InsertFork) -> Result<()> {
    let checkpoint = new.checkpoint.map(|id| id.0);
    let anchor = new.anchor.as_deref().map(name);
    let position = new.position.map(Position::as_str);
    let metadata = Json::of_map(&new.metadata);
    let params: Params<'_, 11> = [
        &new.id.0,
        &new.tree.0,
        &new.parent.0,
        &checkpoint,
        &new.depth,
        &anchor,
        &position,
        &new.event_number,
        &new.level,
        &new.active_branch.0,
        &metadata,
    ];
    execute(db, INSERT_FORK, &params).await?;
    Ok(())
}

pub(super) async fn put(db: &Object, commit: &Commit) -> Result<i32> {
    let kind = Kind::of(commit);
    let statement = prepare(db, kind.text()).await?;
    let Some(new) = &commit.open else {
        let depth = commit::send(db, &statement, kind, commit).await?;
        return Ok(depth.ok_or(Error::Fenced)?);
    };
    db.batch_execute("SAVEPOINT put").await?;
    if branches::open(db, &commit.slot, new).await?
        && let Some(depth) = commit::send(db, &statement, kind, commit).await?
    {
        db.batch_execute("RELEASE put").await?;
        return Ok(depth);
    }
    // A refused superstep takes its branch along.
    db.batch_execute("ROLLBACK TO put; RELEASE put").await?;
    Err(Error::Fenced.into())
}

pub(super) async fn set_outcome(
    db: &Object,
    tree: TreeId,
    branch: BranchId,
    outcome: Outcome,
) -> Result<()> {
    execute(db, SET_OUTCOME, &[&tree.0, &branch.0, &outcome.as_str()]).await?;
    Ok(())
}

const TOUCH: &str = "UPDATE threads SET updated_at = clock_timestamp() WHERE thread_id = $1";

pub(super) async fn append(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    new: &[NewEvent],
) -> Result<i64> {
    if !new.is_empty() {
        execute(db, TOUCH, &[&thread.0]).await?;
    }
    events::append(db, tree, thread, new).await
}

pub(super) async fn create_run(db: &Object, new: NewRun) -> Result<Created> {
    db.batch_execute("SAVEPOINT run").await?;
    let created = create::within(db, &new).await?;
    let end = match &created {
        Created::Started(..) | Created::Queued(_) => "RELEASE run",
        // What was done to make room for it is rolled back.
        Created::Busy
        | Created::NoThread
        | Created::Exists
        | Created::Denied(_)
        | Created::QueueFull(_)
        | Created::Changed => "ROLLBACK TO run; RELEASE run",
    };
    db.batch_execute(end).await?;
    Ok(created)
}

statements!(
    LOCK_BRANCH,
    SET_CREATION,
    INSIDE,
    SHARE_INSIDE,
    RENAME_BRANCH,
    DELETE_BRANCH,
    ACTIVATE,
    DELETE_TAG,
    SET_OUTCOME,
    INSERT_BRANCH,
    PUT_TAG,
    PIN_RUNS,
    INSERT_FORK,
    TOUCH
);
