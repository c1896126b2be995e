//! A thread with the level of a principal on it, and no checkpoint, in one statement.

use std::sync::Arc;

use const_format::formatcp;

use super::rows::{FROM, LEVEL, THREAD, thread_of};
use crate::{
    checkpoint::Error,
    id::ThreadId,
    storage::postgres::{
        columns::{column, one, word},
        connection::{Object, Result},
    },
    tree::ThreadWithLevel,
};

/// Every look-up is one by primary key.
const WITH_LEVEL: &str = formatcp!(
    "
SELECT {THREAD},
       {LEVEL},
       COALESCE(b.reparented_checkpoint_id = b.head_checkpoint_id, false) AS is_reparented
  {FROM}
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL"
);

/// See [`tree::Store::thread_with_level`](crate::tree::Store::thread_with_level).
pub(in super::super) async fn thread_with_level(
    db: &Object,
    id: ThreadId,
    principal: &Option<Arc<str>>,
) -> Result<Option<ThreadWithLevel>> {
    one(db, WITH_LEVEL, &[&id.0, &principal.as_deref()], |row| {
        let level = column::<Option<&str>>(row, "level")?;
        Ok::<_, Error>(ThreadWithLevel {
            thread: thread_of(row)?,
            level: level.map(word).transpose()?,
            is_head_reparented: column(row, "is_reparented")?,
        })
    })
    .await
}

statements!(WITH_LEVEL);
