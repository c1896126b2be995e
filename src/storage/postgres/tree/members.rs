//! Who a tree belongs to and who it is shared with.

use std::sync::Arc;

use tokio_postgres::{Row, types::ToSql};

use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId, TreeId},
    runs::RunsOfPrincipal,
    storage::postgres::{
        columns::{all, column, execute, one, word},
        connection::{Object, Result, prepare},
    },
    tree::members::{Level, Member, Members},
};

const OWNER: &str = "SELECT owner FROM trees WHERE tree_id = $1";

const MEMBERS: &str = "
SELECT principal, level FROM tree_members WHERE tree_id = $1 ORDER BY principal COLLATE \"C\"";

const PUT: &str = "
INSERT INTO tree_members (tree_id, principal, level) VALUES ($1, $2, $3)
ON CONFLICT (tree_id, principal) DO UPDATE SET level = EXCLUDED.level";

const DELETE: &str = "DELETE FROM tree_members WHERE tree_id = $1 AND principal = $2";

/// Lists of threads find them by their owner.
const SET_OWNER: &str = "
WITH t AS (UPDATE threads SET owner = $2 WHERE tree_id = $1)
UPDATE trees SET owner = $2 WHERE tree_id = $1";

const LEVEL: &str = "
SELECT CASE WHEN o.owner = $2 THEN 'owner' ELSE m.level END AS level
  FROM trees o LEFT JOIN tree_members m ON m.tree_id = o.tree_id AND m.principal = $2 WHERE o.tree_id = $1";

pub(in super::super) const LEVEL_ON_THREAD: &str = "
SELECT CASE WHEN o.owner = $2 THEN 'owner' ELSE m.level END AS level
  FROM threads t JOIN trees o ON o.tree_id = t.tree_id LEFT JOIN tree_members m ON m.tree_id = t.tree_id AND m.principal = $2
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL";

pub(super) async fn members(db: &Object, tree: TreeId) -> Result<Members> {
    let owner = |row: &Row| Ok(column::<&str>(row, "owner")?.into());
    let owner = one(db, OWNER, &[&tree.0], owner).await?;
    let member = |row: &Row| {
        Ok(Member {
            principal: column::<&str>(row, "principal")?.into(),
            level: word(column(row, "level")?)?,
        })
    };
    Ok(Members {
        owner: owner.unwrap_or_default(),
        rows: all(db, MEMBERS, &[&tree.0], member).await?,
    })
}

pub(super) async fn put_member(
    db: &Object,
    tree: TreeId,
    principal: &str,
    level: Option<Level>,
) -> Result<()> {
    match level {
        Some(level) => {
            execute(db, PUT, &[&tree.0, &principal, &level.as_str()]).await?;
        }
        None => {
            execute(db, DELETE, &[&tree.0, &principal]).await?;
        }
    }
    Ok(())
}

pub(super) async fn set_owner(db: &Object, tree: TreeId, principal: &str) -> Result<()> {
    execute(db, SET_OWNER, &[&tree.0, &principal]).await?;
    Ok(())
}

pub(super) async fn level(db: &Object, tree: TreeId, principal: &str) -> Result<Option<Level>> {
    level_in(db, LEVEL, &[&tree.0, &principal]).await
}

async fn level_in(
    db: &Object,
    text: &'static str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Option<Level>> {
    let read = |row: &Row| column::<Option<&str>>(row, "level")?.map(word).transpose();
    Ok(one(db, text, params, read).await?.flatten())
}

/// What somebody may do with a living thread.
pub(in super::super) async fn level_on_thread(
    db: &Object,
    thread: ThreadId,
    principal: &str,
) -> Result<Option<Level>> {
    level_in(db, LEVEL_ON_THREAD, &[&thread.0, &principal]).await
}

/// Claims that cannot see yet what this transaction changes leave these runs, and the next ones look at
/// them anew; a claim that has taken one of them is waited for.
const RECHECK: &str = "
UPDATE runs r SET behind = true
 WHERE r.thread_id = ANY (ARRAY(SELECT t.thread_id FROM threads t WHERE t.tree_id = $1)) AND r.status = 'pending'
   AND CASE WHEN r.tree_id = $1 THEN r.principal = $2 END RETURNING r.thread_id";

const EXECUTED_FOR: &str = "
SELECT thread_id, run_id FROM runs WHERE tree_id = $1 AND status = 'running' AND principal = $2 AND NOT temporary";

/// See [`runs::Tx::executed_for`](crate::runs::Tx::executed_for).
pub(super) async fn executed_for(
    db: &Object,
    tree: TreeId,
    principal: &str,
) -> Result<RunsOfPrincipal> {
    let thread = |row: &Row| Ok(ThreadId(column(row, "thread_id")?));
    let waiting = all(db, RECHECK, &[&tree.0, &principal], thread).await?;
    let run = |row: &Row| Ok((thread(row)?, RunId(column(row, "run_id")?)));
    let executed = all(db, EXECUTED_FOR, &[&tree.0, &principal], run).await?;
    Ok(RunsOfPrincipal { executed, waiting })
}

/// Each step is a look-up by key: LIMIT keeps the planner from beginning with all trees where those are few.
const WITHDRAWN: &str = "
SELECT x.n FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY x(thread_id, principal, n)
 CROSS JOIN LATERAL (SELECT t.tree_id FROM threads t WHERE t.thread_id = x.thread_id AND t.deleted_at IS NULL LIMIT 1) t
 CROSS JOIN LATERAL (SELECT o.owner FROM trees o WHERE o.tree_id = t.tree_id LIMIT 1) o
 WHERE o.owner <> x.principal AND (SELECT 1 FROM tree_members m WHERE m.tree_id = t.tree_id AND m.principal = x.principal) IS NULL";

/// See [`tree::Store::withdrawn`](crate::tree::Store::withdrawn).
pub(in super::super) async fn withdrawn(
    db: &Object,
    threads: &[ThreadId],
    principals: &[Arc<str>],
) -> Result<Vec<usize>> {
    let statement = prepare(db, WITHDRAWN).await?;
    let threads: Vec<_> = threads.iter().map(|thread| thread.0).collect();
    let principals: Vec<_> = principals.iter().map(|principal| &**principal).collect();
    let rows = db.query(&statement, &[&threads, &principals]).await?;
    let found = rows.iter().map(|row| {
        let n: i64 = column(row, "n")?;
        Ok(usize::try_from(n - 1).unwrap_or(usize::MAX))
    });
    Ok(found.collect::<Result<_, Error>>()?)
}

statements!(
    OWNER,
    MEMBERS,
    PUT,
    DELETE,
    SET_OWNER,
    LEVEL,
    LEVEL_ON_THREAD,
    RECHECK,
    EXECUTED_FOR,
    WITHDRAWN
);
