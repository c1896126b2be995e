//! Threads and the slots of their active branches.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    Store,
    columns::{id, id_if, json_if, json_map, map_text, parsed},
    runs, tree as trees,
};
use crate::{
    checkpoint::{Error, Slot},
    id::{BranchId, ThreadId, TreeId},
    time::Timestamp,
    tree::{self, Copied, IfExists, NewCopy, NewThread, Outcome, Thread, members::Level},
    value::{Map, Value},
};

pub(super) mod blobs;
mod copy;
pub(super) mod create;
pub(super) mod delete;
pub(super) mod event_facts;
mod prune;
mod search;

/// What a test plans.
#[cfg(test)]
pub(super) const PLANNED: &[&[&str]] = &[
    &[THREAD, prune::INNER],
    delete::PLANNED,
    event_facts::PLANNED,
];
/// Statements that walk a tree on purpose, and the alias of the table they walk: a resume value
/// retains a checkpoint of the thread, whatever branch it is stored for.
#[cfg(test)]
pub(super) const WALKING: &[(&str, &str)] = &[
    (search::ASCENDING, "t"),
    (search::DESCENDING, "t"),
    (prune::ROWS, "w"),
];

#[async_trait]
impl tree::Store for Store {
    async fn create_thread(&self, new: NewThread) -> Result<Option<Thread>, Error> {
        self.writer
            .submit(move |db| {
                if !create::is_free(db, new.id)? {
                    return match new.if_exists {
                        IfExists::Raise => Ok(None),
                        IfExists::DoNothing => thread(db, new.id),
                    };
                }
                create::insert(db, new.id, &new, true, Timestamp::now())?;
                thread(db, new.id)
            })
            .await
    }

    async fn thread(&self, id: ThreadId) -> Result<Option<Thread>, Error> {
        self.readers.read(move |db| thread(db, id)).await
    }

    async fn patch_thread(&self, id: ThreadId, metadata: Map) -> Result<Option<Thread>, Error> {
        self.writer
            .submit(move |db| {
                let Some(mut thread) = thread(db, id)? else {
                    return Ok(None);
                };
                thread.metadata.extend(metadata);
                let now = Timestamp::now();
                db.prepare_cached(
                    "UPDATE threads SET metadata = ?1, updated_at = ?2 WHERE thread_id = ?3",
                )?
                .execute(params![
                    map_text(&thread.metadata),
                    now.0,
                    id.0.as_bytes()
                ])?;
                thread.updated_at = thread.updated_at.max(now);
                Ok(Some(thread))
            })
            .await
    }

    async fn delete_thread(&self, id: ThreadId) -> Result<bool, Error> {
        self.writer
            .submit(move |db| match tree_of(db, id)? {
                Some(tree) => delete::thread(db, tree, id, true).map(|()| true),
                None => Ok(false),
            })
            .await
    }

    async fn take_slot(&self, id: ThreadId) -> Result<Option<Slot>, Error> {
        self.writer
            .submit(move |db| {
                let Some(mut slot) = slot(db, id, None)? else {
                    return Ok(None);
                };
                let now = Timestamp::now();
                // A run that is fenced off must not stay `running` for ever.
                runs::end_running(db, &slot, now)?;
                slot.epoch = raise_epoch(db, slot.tree, slot.branch)?;
                Ok(Some(slot))
            })
            .await
    }

    async fn slot(&self, id: ThreadId) -> Result<Option<Slot>, Error> {
        self.readers.read(move |db| slot(db, id, None)).await
    }

    async fn record_outcome(
        &self,
        slot: Slot,
        outcome: Outcome,
        error: Option<Value>,
    ) -> Result<(), Error> {
        self.writer
            .submit(move |db| {
                if !is_head(db, &slot)? {
                    return Err(Error::Fenced);
                }
                record_outcome(db, &slot, outcome, error.as_ref(), Timestamp::now())
            })
            .await
    }

    async fn level(&self, id: ThreadId, principal: Arc<str>) -> Result<Option<Level>, Error> {
        self.readers
            .read(move |db| trees::level(db, id, &principal))
            .await
    }

    async fn search(&self, page: tree::search::ThreadPage) -> Result<Vec<Thread>, Error> {
        self.readers.read(move |db| search::search(db, &page)).await
    }

    async fn count(&self, filter: tree::search::ThreadFilter) -> Result<u64, Error> {
        self.readers
            .read(move |db| search::count(db, &filter))
            .await
    }

    async fn reader(&self) -> Result<Box<dyn tree::Read>, Error> {
        Ok(Box::new(self.rows()))
    }

    async fn begin(&self, _tree: TreeId) -> Result<Box<dyn tree::Tx>, Error> {
        Ok(Box::new(self.transaction().await?))
    }

    async fn delete_tree(&self, id: ThreadId) -> Result<Vec<ThreadId>, Error> {
        self.writer.submit(move |db| delete::tree(db, id)).await
    }

    async fn copy_thread(&self, from: ThreadId, copy: NewCopy) -> Result<Copied, Error> {
        self.writer
            .submit(move |db| copy::copy(db, from, &copy))
            .await
    }

    async fn prune_thread(&self, id: ThreadId) -> Result<Option<usize>, Error> {
        self.writer.submit(move |db| prune::prune(db, id)).await
    }
}

/// The tree of a living thread.
pub(super) fn tree_of(db: &Connection, id: ThreadId) -> Result<Option<TreeId>, Error> {
    Ok(db
        .prepare_cached("SELECT tree_id FROM threads WHERE thread_id = ?1 AND deleted_at IS NULL")?
        .query_row([id.0.as_bytes()], |row| super::columns::id(row, 0))
        .optional()?)
}

pub(super) const THREAD: &str = "SELECT t.thread_id, t.tree_id, t.metadata, t.config, t.created_at, t.updated_at, \
     (SELECT max(s.updated_at) FROM branches s \
        INDEXED BY sqlite_autoindex_branches_2 \
       WHERE s.tree_id = t.tree_id AND s.thread_id = t.thread_id), \
     b.branch_id, b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.outcome, \
     b.error, \
     EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id \
       AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running') \
       AND coalesce(r.branch_id, t.active_branch_id) = t.active_branch_id) \
    FROM threads t JOIN branches b \
      ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id \
    WHERE t.thread_id = ?1 AND t.deleted_at IS NULL";

/// Its branches are found by the index of the constraint that their names are unique: the key
/// would walk those of every fork.
pub(super) fn thread(db: &Connection, thread: ThreadId) -> Result<Option<Thread>, Error> {
    Ok(db
        .prepare_cached(THREAD)?
        .query_row([thread.0.as_bytes()], read_thread)
        .optional()?)
}

pub(super) fn read_thread(row: &Row<'_>) -> rusqlite::Result<Thread> {
    let updated: i64 = row.get(5)?;
    let state_updated: i64 = row.get(6)?;
    Ok(Thread {
        id: id(row, 0)?,
        tree: id(row, 1)?,
        metadata: json_map(row, 2)?,
        config: json_map(row, 3)?,
        created_at: Timestamp(row.get(4)?),
        updated_at: Timestamp(updated.max(state_updated)),
        state_updated_at: Timestamp(state_updated),
        active_branch: id(row, 7)?,
        head: id_if(row, 8)?,
        head_depth: row.get(9)?,
        epoch: row.get(10)?,
        outcome: parsed(row, 11)?,
        error: json_if(row, 12)?,
        busy: row.get(13)?,
    })
}

/// The slot of a branch of a living thread; of the active one without a name.
pub(super) fn slot(
    db: &Connection,
    thread: ThreadId,
    branch: Option<BranchId>,
) -> Result<Option<Slot>, Error> {
    Ok(db
        .prepare_cached(
            "SELECT t.tree_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth \
             FROM threads t JOIN branches b \
               ON b.tree_id = t.tree_id AND b.thread_id = t.thread_id \
              AND b.branch_id = coalesce(?2, t.active_branch_id) \
             WHERE t.thread_id = ?1 AND t.deleted_at IS NULL",
        )?
        .query_row(
            params![
                thread.0.as_bytes(),
                branch.as_ref().map(|id| id.0.as_bytes())
            ],
            |row| {
                Ok(Slot {
                    tree: id(row, 0)?,
                    thread,
                    branch: id(row, 1)?,
                    epoch: row.get(2)?,
                    head: id_if(row, 3)?,
                    head_depth: row.get(4)?,
                })
            },
        )
        .optional()?)
}

/// Fences off whoever writes to the branch; answers the new epoch.
pub(super) fn raise_epoch(db: &Connection, tree: TreeId, branch: BranchId) -> Result<i64, Error> {
    Ok(db
        .prepare_cached(
            "UPDATE branches SET writer_epoch = writer_epoch + 1 \
             WHERE tree_id = ?1 AND branch_id = ?2 RETURNING writer_epoch",
        )?
        .query_row(params![tree.0.as_bytes(), branch.0.as_bytes()], |row| {
            row.get(0)
        })?)
}

/// Whether a slot still tells its branch's head.
fn is_head(db: &Connection, slot: &Slot) -> Result<bool, Error> {
    Ok(db
        .prepare_cached(
            "SELECT head_checkpoint_id IS ?3 FROM branches WHERE tree_id = ?1 AND branch_id = ?2",
        )?
        .query_row(
            params![
                slot.tree.0.as_bytes(),
                slot.branch.0.as_bytes(),
                slot.head.as_ref().map(|head| head.0.as_bytes()),
            ],
            |row| row.get(0),
        )
        .optional()?
        .unwrap_or(false))
}

/// Notes how a branch was left, if the epoch still holds.
pub(super) fn record_outcome(
    db: &Connection,
    slot: &Slot,
    outcome: Outcome,
    error: Option<&Value>,
    now: Timestamp,
) -> Result<(), Error> {
    let changed = db
        .prepare_cached(
            "UPDATE branches SET outcome = ?1, error = ?2, updated_at = ?3 \
             WHERE tree_id = ?4 AND branch_id = ?5 AND writer_epoch = ?6",
        )?
        .execute(params![
            outcome.as_str(),
            error.map(Value::to_json),
            now.0,
            slot.tree.0.as_bytes(),
            slot.branch.0.as_bytes(),
            slot.epoch,
        ])?;
    if changed == 1 {
        Ok(())
    } else {
        Err(Error::Fenced)
    }
}
