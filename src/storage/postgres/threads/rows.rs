//! Living threads, out of their rows and those of their active branches.

use const_format::formatcp;
use tokio_postgres::Row;

use crate::{
    checkpoint::{Error, Slot, codec::JSON_TEXT},
    id::{BranchId, ThreadId, TreeId},
    storage::postgres::{
        Store,
        columns::{JsonText, Time, column, id_if, word},
        connection::{self, Pool, prepare},
    },
    tree::{Thread, search::Listed},
    value::Map,
};

/// The columns of a thread, of [`FROM`].
pub(super) const THREAD: &str = "t.thread_id, t.tree_id, t.metadata, t.config, t.created_at, GREATEST(t.updated_at, b.updated_at) AS updated_at,
       b.updated_at AS state_updated_at, b.branch_id, b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.outcome, b.error,
       EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running')
                  AND COALESCE(r.branch_id, t.active_branch_id) = t.active_branch_id) AS busy";

/// The level of the principal `$2` on a thread of [`FROM`].
pub(super) const LEVEL: &str = "(SELECT CASE WHEN o.owner = $2::text THEN 'owner' ELSE m.level END FROM trees o
          LEFT JOIN tree_members m ON m.tree_id = o.tree_id AND m.principal = $2::text WHERE o.tree_id = t.tree_id) AS level";

/// Threads with their active branches.
pub(super) const FROM: &str =
    "FROM threads t JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id";

pub(super) const SELECT: &str = formatcp!(
    "
SELECT {THREAD}
  {FROM}
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL"
);

/// A slot out of a row that names its columns as `branches` does.
pub(in super::super) fn slot_of(row: &Row) -> Result<Slot, Error> {
    Ok(Slot {
        tree: TreeId(column(row, "tree_id")?),
        thread: ThreadId(column(row, "thread_id")?),
        branch: BranchId(column(row, "branch_id")?),
        epoch: column(row, "writer_epoch")?,
        head: id_if(row, "head_checkpoint_id")?,
        head_depth: column(row, "head_depth")?,
    })
}

/// A thread, out of a row with the columns of [`THREAD`].
pub(super) fn thread_of(row: &Row) -> Result<Thread, Error> {
    Ok(Thread {
        metadata: column::<JsonText>(row, "metadata")?.map()?,
        config: column::<JsonText>(row, "config")?.map()?,
        ..without_json(row)?
    })
}

/// A thread of a list, out of the same columns and their size, where those that are too much at once are null.
pub(super) fn listed_of(row: &Row) -> Result<Listed, Error> {
    let text = |name| column::<Option<JsonText>>(row, name);
    let mut thread = without_json(row)?;
    let is_whole = match (text("metadata")?, text("config")?) {
        (Some(metadata), Some(config)) => {
            (thread.metadata, thread.config) = (metadata.map()?, config.map()?);
            true
        }
        _ => false,
    };
    let bytes: i32 = column(row, "bytes")?;
    Ok(Listed {
        thread,
        weight: JSON_TEXT * u64::from(bytes.unsigned_abs()),
        is_whole,
    })
}

fn without_json(row: &Row) -> Result<Thread, Error> {
    let slot = slot_of(row)?;
    Ok(Thread {
        id: slot.thread,
        tree: slot.tree,
        metadata: Map::new(),
        config: Map::new(),
        created_at: column::<Time>(row, "created_at")?.0,
        updated_at: column::<Time>(row, "updated_at")?.0,
        state_updated_at: column::<Time>(row, "state_updated_at")?.0,
        active_branch: slot.branch,
        head: slot.head,
        head_depth: slot.head_depth,
        epoch: slot.epoch,
        outcome: word(column(row, "outcome")?)?,
        error: column::<Option<JsonText>>(row, "error")?
            .map(|json| json.value())
            .transpose()?,
        busy: column(row, "busy")?,
    })
}

const TREE_OF: &str = "SELECT tree_id FROM threads WHERE thread_id = $1 AND deleted_at IS NULL";

/// The tree of a living thread.
pub(super) async fn tree_of(store: &Store, thread: ThreadId) -> Result<Option<TreeId>, Error> {
    tree_by(&store.pools.reads, thread).await
}

/// The tree in whose line something waits that will lock the tree's row on behalf of a thread. That of a thread which
/// is not there has its own id.
pub(in super::super) async fn line_of(
    store: &Store,
    pool: &Pool,
    thread: ThreadId,
) -> Result<TreeId, Error> {
    if let Some(tree) = store.hot.known_tree(thread) {
        return Ok(tree);
    }
    let found = tree_by(pool, thread).await?;
    if let Some(tree) = found {
        store.hot.remember(thread, tree);
    }
    Ok(found.unwrap_or(TreeId(thread.0)))
}

async fn tree_by(pool: &Pool, thread: ThreadId) -> Result<Option<TreeId>, Error> {
    let row = connection::retry(pool, |client| async move {
        let find = prepare(&client, TREE_OF).await?;
        Ok(client.query_opt(&find, &[&thread.0]).await?)
    })
    .await?;
    row.map(|row| Ok(TreeId(column(&row, "tree_id")?)))
        .transpose()
}

statements!(SELECT, TREE_OF);
