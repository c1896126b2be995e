//! Tables derived from events.

use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::columns::{id, unreadable};
use crate::{
    checkpoint::Result,
    id::{ThreadId, TreeId},
    tree::projection::{HeadRow, Progress, Projection, ProjectionStep},
};

pub(super) fn behind(
    db: &Connection,
    after: Option<ThreadId>,
    limit: usize,
) -> Result<(Vec<ThreadId>, Option<ThreadId>)> {
    let after = after.unwrap_or(ThreadId(Uuid::nil()));
    let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows: Vec<(ThreadId, bool)> = db
        .prepare_cached(
            "SELECT t.thread_id, t.deleted_at IS NULL AND t.last_event_number > 0 \
              AND (SELECT count(*) FROM projection_offsets o WHERE o.thread_id = t.thread_id \
                    AND o.last_event_number >= t.last_event_number) < ?3 \
             FROM threads t WHERE t.thread_id > ?1 ORDER BY t.thread_id LIMIT ?2",
        )?
        .query_map(
            params![after, limit_rows, Projection::ALL.len() as i64],
            |row| Ok((id(row, 0)?, row.get(1)?)),
        )?
        .collect::<Result<_, _>>()?;
    let last = if rows.len() < limit {
        None
    } else {
        rows.last().map(|(thread, _)| *thread)
    };
    let behind = rows.into_iter().filter(|(_, behind)| *behind);
    Ok((behind.map(|(thread, _)| thread).collect(), last))
}

pub(super) fn progress(db: &Connection, threads: &[ThreadId]) -> Result<Vec<Progress>> {
    let found = threads.iter().map(|thread| progress_of(db, *thread));
    found.filter_map(Result::transpose).collect()
}

fn progress_of(db: &Connection, thread: ThreadId) -> Result<Option<Progress>> {
    let row: Option<(TreeId, i64)> = db
        .prepare_cached(
            "SELECT tree_id, last_event_number FROM threads \
             WHERE thread_id = ?1 AND deleted_at IS NULL",
        )?
        .query_row([thread], |row| Ok((id(row, 0)?, row.get(1)?)))
        .optional()?;
    let Some((tree, last)) = row else {
        return Ok(None);
    };
    let mut offsets = [0; Projection::ALL.len()];
    let mut statement = db.prepare_cached(
        "SELECT projection, last_event_number FROM projection_offsets WHERE thread_id = ?1",
    )?;
    let mut rows = statement.query([thread])?;
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        let projection = Projection::named(name)
            .ok_or_else(|| unreadable(0, format!("`{name}` is not a projection")))?;
        offsets[projection.index()] = row.get(1)?;
    }
    let head = db
        .prepare_cached(
            "SELECT event_number, messages, branches, runs, last_message_id, last_role, \
             last_preview, updated_at FROM thread_heads WHERE tree_id = ?1 AND thread_id = ?2",
        )?
        .query_row(params![tree, thread], |row| {
            Ok(HeadRow {
                number: row.get(0)?,
                messages: row.get(1)?,
                branches: row.get(2)?,
                runs: row.get(3)?,
                last_message_id: row.get(4)?,
                last_role: row.get(5)?,
                last_preview: row.get(6)?,
                updated_at: row.get(7)?,
            })
        })
        .optional()?;
    Ok(Some(Progress {
        tree,
        thread,
        last,
        offsets,
        head,
    }))
}

pub(super) fn apply(db: &Connection, steps: &[ProjectionStep]) -> Result<()> {
    steps.iter().try_for_each(|step| apply_step(db, step))
}

/// Moves the offset and writes the rows; nothing when the offset is not that of the step.
fn apply_step(db: &Connection, step: &ProjectionStep) -> Result<()> {
    let (tree, thread) = (step.tree, step.thread);
    let name = Projection::Heads.as_str();
    let sql = match step.from {
        0 => {
            "INSERT INTO projection_offsets (projection, thread_id, tree_id, last_event_number) \
             SELECT ?1, thread_id, tree_id, ?3 FROM threads \
              WHERE thread_id = ?2 AND deleted_at IS NULL AND ?4 = 0 \
             ON CONFLICT (thread_id, projection) DO UPDATE \
             SET last_event_number = excluded.last_event_number \
             WHERE projection_offsets.last_event_number = 0"
        }
        _ => {
            "UPDATE projection_offsets SET last_event_number = ?3 \
             WHERE projection = ?1 AND thread_id = ?2 AND last_event_number = ?4"
        }
    };
    let moved = db
        .prepare_cached(sql)?
        .execute(params![name, thread, step.to, step.from])?;
    if moved == 0 {
        return Ok(());
    }
    let head = &step.head;
    db.prepare_cached(
        "INSERT OR REPLACE INTO thread_heads (tree_id, thread_id, event_number, messages, branches, \
         runs, last_message_id, last_role, last_preview, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        tree,
        thread,
        head.number,
        head.messages,
        head.branches,
        head.runs,
        head.last_message_id,
        head.last_role,
        head.last_preview,
        head.updated_at,
    ])?;
    Ok(())
}

pub(super) fn reset(
    db: &Connection,
    projection: Option<Projection>,
    thread: Option<ThreadId>,
) -> Result<()> {
    Projection::ALL
        .into_iter()
        .filter(|one| projection.is_none_or(|only| only == *one))
        .try_for_each(|one| reset_table(db, one, thread))
}

fn reset_table(db: &Connection, projection: Projection, thread: Option<ThreadId>) -> Result<()> {
    let at = projection.index();
    if let Some(thread) = thread {
        db.prepare_cached(DELETE_OFFSET)?
            .execute(params![projection.as_str(), thread])?;
        db.prepare_cached(DELETE_OF_THREAD[at])?.execute([thread])?;
    } else {
        db.prepare_cached(DELETE_OFFSETS)?
            .execute([projection.as_str()])?;
        db.prepare_cached(DELETE_ALL[at])?.execute([])?;
    }
    Ok(())
}

const DELETE_OFFSET: &str =
    "DELETE FROM projection_offsets WHERE projection = ?1 AND thread_id = ?2";

const DELETE_OFFSETS: &str = "DELETE FROM projection_offsets WHERE projection = ?1";

/// In the order of [`Projection::ALL`], as the next. The keys of the tables begin with the tree.
const DELETE_OF_THREAD: [&str; Projection::ALL.len()] =
    ["DELETE FROM thread_heads WHERE thread_id = ?1 \
     AND tree_id = (SELECT t.tree_id FROM threads t WHERE t.thread_id = ?1)"];

const DELETE_ALL: [&str; Projection::ALL.len()] = ["DELETE FROM thread_heads"];
