//! Facts that the payloads of events take from other rows: before those rows are deleted or change
//! their parent the facts are stored beside the events, since a payload never changes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension, params};

use super::super::columns::{id, id_if, map_text};
use crate::{
    checkpoint::Result,
    id::{CheckpointId, ThreadId, TreeId},
    tree::event::{self, codes::event_code},
    value::{Map, Value},
};

/// Stores the facts of events about checkpoints, before these change; and, when their `messages` are
/// deleted too, about those.
pub(in super::super) fn store(
    db: &Connection,
    tree: TreeId,
    checkpoints: &[CheckpointId],
    messages: bool,
) -> Result<()> {
    if checkpoints.is_empty() {
        return Ok(());
    }
    let changing: HashSet<&CheckpointId> = checkpoints.iter().collect();
    let mut select = db.prepare_cached(ABOUT_CHECKPOINTS)?;
    let mut insert = db.prepare_cached(
        "INSERT OR IGNORE INTO event_facts (tree_id, thread_id, event_number, facts) \
         VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (thread, after) in logs(db, tree, checkpoints)? {
        let mut rows = select.query(params![tree, thread, after])?;
        while let Some(row) = rows.next()? {
            let checkpoint = id(row, 2)?;
            if !changing.contains(&checkpoint) {
                continue;
            }
            let code: i16 = row.get(1)?;
            let facts = match (code, messages) {
                (event_code!(CHECKPOINT_CREATED) | event_code!(CREATED_AND_FINISHED), _) => {
                    of_checkpoint(db, tree, checkpoint)?
                }
                (_, true) => of_response(db, tree, checkpoint, row.get(3)?)?,
                (_, false) => None,
            };
            if let Some(facts) = facts {
                // The row has the number of its last event.
                let last: i64 = row.get(0)?;
                let number = last - i64::from(code == event_code!(CREATED_AND_FINISHED));
                insert.execute(params![tree, thread, number, map_text(&facts)])?;
            }
        }
    }
    Ok(())
}

const ABOUT_CHECKPOINTS: &str = concat!(
    "SELECT event_number, kind, checkpoint_id, message_id FROM events \
     WHERE tree_id = ?1 AND thread_id = ?2 AND event_number > ?3 AND kind IN (",
    event_code!(LLM_RESPONSE_GENERATED),
    ", ",
    event_code!(CHECKPOINT_CREATED),
    ", ",
    event_code!(CREATED_AND_FINISHED),
    ") AND checkpoint_id IS NOT NULL",
);

const WRITTEN: &str = "SELECT c.thread_id, coalesce(p.event_number, 0) FROM checkpoints c \
      LEFT JOIN checkpoints p ON p.tree_id = ?1 AND p.checkpoint_ns = '' \
       AND p.checkpoint_id = c.parent_checkpoint_id \
     WHERE c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ?2";

/// The threads in whose logs the events about checkpoints are, each with the number after which they are: an event
/// about a checkpoint is in the log of the thread that wrote it, and newer than the newest event that the checkpoint
/// before knew of.
fn logs(
    db: &Connection,
    tree: TreeId,
    checkpoints: &[CheckpointId],
) -> Result<HashMap<ThreadId, i64>> {
    let mut select = db.prepare_cached(WRITTEN)?;
    let mut logs: HashMap<ThreadId, i64> = HashMap::new();
    for checkpoint in checkpoints {
        let mut rows = select.query(params![tree, checkpoint])?;
        while let Some(row) = rows.next()? {
            let (thread, after) = (id(row, 0)?, row.get(1)?);
            let first = logs.entry(thread).or_insert(after);
            *first = after.min(*first);
        }
    }
    Ok(logs)
}

const ADDED: &str = "WITH RECURSIVE c AS (SELECT last_node_id, run_id FROM checkpoints \
      WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2), \
    up AS (\
      SELECT m.parent_node_id, m.ordinal, m.message_id, m.role \
        FROM c CROSS JOIN message_nodes m ON m.tree_id = ?1 AND m.node_id = c.last_node_id \
       WHERE CASE WHEN c.run_id IS NULL THEN m.checkpoint_id = ?2 \
                  ELSE m.run_id IS c.run_id END \
      UNION ALL \
      SELECT m.parent_node_id, m.ordinal, m.message_id, m.role \
        FROM up u CROSS JOIN message_nodes m ON m.tree_id = ?1 \
          AND m.node_id = u.parent_node_id CROSS JOIN c \
       WHERE CASE WHEN c.run_id IS NULL THEN m.checkpoint_id = ?2 \
                  ELSE m.run_id IS c.run_id END) \
    SELECT message_id, role FROM up ORDER BY ordinal";

const POINT: &str = "SELECT parent_checkpoint_id, source, step FROM checkpoints \
    WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2";

/// Of `CheckpointCreated`: the checkpoint before, and what its run or edit added.
fn of_checkpoint(db: &Connection, tree: TreeId, checkpoint: CheckpointId) -> Result<Option<Map>> {
    let added: Vec<(Arc<str>, Option<Arc<str>>)> = db
        .prepare_cached(ADDED)?
        .query_map(params![tree, checkpoint], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<Result<_, _>>()?;
    let point = db
        .prepare_cached(POINT)?
        .query_row(params![tree, checkpoint], |row| {
            let source: String = row.get(1)?;
            let added = added.iter().map(|(id, role)| (id, role.as_deref()));
            Ok(event::checkpoint_facts(
                id_if(row, 0)?,
                &source,
                row.get(2)?,
                added,
            ))
        })
        .optional()?;
    Ok(point)
}

const USER_MESSAGE: &str = "WITH RECURSIVE up AS (\
      SELECT parent_node_id, NULL AS question \
        FROM message_nodes INDEXED BY message_nodes_checkpoint \
       WHERE tree_id = ?1 AND checkpoint_id = ?2 AND message_id = ?3 AND kind = 'add' \
      UNION ALL \
      SELECT m.parent_node_id, CASE m.role WHEN 'human' THEN m.message_id END \
        FROM up u CROSS JOIN message_nodes m ON m.tree_id = ?1 \
          AND m.node_id = u.parent_node_id WHERE u.question IS NULL) \
    SELECT question FROM up WHERE question IS NOT NULL";

/// Of `LLMResponseGenerated`: the message of the user above.
fn of_response(
    db: &Connection,
    tree: TreeId,
    checkpoint: CheckpointId,
    message: Option<String>,
) -> Result<Option<Map>> {
    let reply_to: Option<Arc<str>> = db
        .prepare_cached(USER_MESSAGE)?
        .query_row(params![tree, checkpoint, message], |row| row.get(0))
        .optional()?;
    Ok(reply_to.map(|id| Map::from([("reply_to", Value::Str(id))])))
}
