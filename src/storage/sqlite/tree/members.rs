//! Who a tree belongs to and who it is shared with.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use crate::{
    checkpoint::Result,
    id::{ThreadId, TreeId},
    runs::RunsOfPrincipal,
    storage::sqlite::columns::{all, id, parsed, parsed_if},
    tree::members::{Level, Member, Members},
};

pub(super) fn members(db: &Connection, tree: TreeId) -> Result<Members> {
    let owner: Option<String> = db
        .prepare_cached("SELECT owner FROM trees WHERE tree_id = ?1")?
        .query_row([tree], |row| row.get(0))
        .optional()?;
    let mut statement = db.prepare_cached(
        "SELECT principal, level FROM tree_members WHERE tree_id = ?1 ORDER BY principal",
    )?;
    let rows = statement.query_map([tree], |row| {
        Ok(Member {
            principal: row.get::<_, String>(0)?.into(),
            level: parsed(row, 1)?,
        })
    })?;
    Ok(Members {
        owner: owner.unwrap_or_default().into(),
        rows: rows.collect::<Result<_, _>>()?,
    })
}

pub(super) fn put_member(
    db: &Connection,
    tree: TreeId,
    principal: &str,
    level: Option<Level>,
) -> Result<()> {
    match level {
        Some(level) => db
            .prepare_cached(
                "INSERT INTO tree_members (tree_id, principal, level) VALUES (?1, ?2, ?3) \
                 ON CONFLICT DO UPDATE SET level = excluded.level",
            )?
            .execute(params![tree, principal, level.as_str()])?,
        None => db
            .prepare_cached("DELETE FROM tree_members WHERE tree_id = ?1 AND principal = ?2")?
            .execute(params![tree, principal])?,
    };
    Ok(())
}

const SET_OWNER: [&str; 2] = [
    "UPDATE trees SET owner = ?2 WHERE tree_id = ?1",
    "UPDATE threads SET owner = ?2 WHERE tree_id = ?1",
];

pub(super) fn set_owner(db: &Connection, tree: TreeId, principal: &str) -> Result<()> {
    // Lists of threads find them by their owner.
    for sql in SET_OWNER {
        db.prepare_cached(sql)?.execute(params![tree, principal])?;
    }
    Ok(())
}

pub(super) const LEVEL: &str = "SELECT o.owner = ?2, m.level FROM trees o \
    LEFT JOIN tree_members m ON m.tree_id = o.tree_id AND m.principal = ?2 WHERE o.tree_id = ?1";

/// The level of a principal on a tree.
pub(crate) fn level(db: &Connection, tree: TreeId, principal: &str) -> Result<Option<Level>> {
    level_by(db, LEVEL, tree.0, principal)
}

pub(super) const LEVEL_ON_THREAD: &str = "SELECT o.owner = ?2, m.level FROM threads t JOIN trees o ON o.tree_id = t.tree_id \
    LEFT JOIN tree_members m ON m.tree_id = t.tree_id AND m.principal = ?2 \
    WHERE t.thread_id = ?1 AND t.deleted_at IS NULL";

/// What somebody may do with a living thread.
pub(crate) fn level_on_thread(
    db: &Connection,
    thread: ThreadId,
    principal: &str,
) -> Result<Option<Level>> {
    level_by(db, LEVEL_ON_THREAD, thread.0, principal)
}

fn level_by(
    db: &Connection,
    text: &'static str,
    id: Uuid,
    principal: &str,
) -> Result<Option<Level>> {
    let found: Option<(bool, Option<Level>)> = db
        .prepare_cached(text)?
        .query_row(params![id.as_bytes(), principal], |row| {
            Ok((row.get(0)?, parsed_if(row, 1)?))
        })
        .optional()?;
    Ok(match found {
        Some((true, _)) => Some(Level::Owner),
        Some((false, level)) => level,
        None => None,
    })
}

const EXECUTED_FOR: &str = "SELECT thread_id, run_id FROM runs INDEXED BY one_running_per_branch \
    WHERE tree_id = ?1 AND status = 'running' AND principal = ?2 AND NOT temporary";

/// See [`runs::Tx::executed_for`](crate::runs::Tx::executed_for).
pub(super) fn executed_for(
    db: &Connection,
    tree: TreeId,
    principal: &str,
) -> Result<RunsOfPrincipal> {
    let run = |row: &Row<'_>| Ok((id(row, 0)?, id(row, 1)?));
    let executed = all(db, EXECUTED_FOR, params![tree, principal], run)?;
    // A claim comes before this transaction or after it.
    let waiting = vec![];
    Ok(RunsOfPrincipal { executed, waiting })
}

pub(super) const WITHDRAWN: &str = "SELECT 1 FROM threads t JOIN trees o ON o.tree_id = t.tree_id \
    WHERE t.thread_id = ?1 AND t.deleted_at IS NULL AND o.owner <> ?2 \
    AND NOT EXISTS (SELECT 1 FROM tree_members m WHERE m.tree_id = o.tree_id AND m.principal = ?2)";

/// See [`tree::Store::withdrawn`](crate::tree::Store::withdrawn).
pub(crate) fn withdrawn(
    db: &Connection,
    threads: &[ThreadId],
    principals: &[Arc<str>],
) -> Result<Vec<usize>> {
    let mut statement = db.prepare_cached(WITHDRAWN)?;
    let mut found = vec![];
    for (at, (thread, principal)) in threads.iter().zip(principals).enumerate() {
        if statement.exists(params![thread, &**principal])? {
            found.push(at);
        }
    }
    Ok(found)
}
