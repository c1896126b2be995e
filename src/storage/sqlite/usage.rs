//! How much is stored of a thread.

use std::{collections::HashSet, sync::Arc};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::id;
use crate::{
    checkpoint::{Result, frame},
    id::{CheckpointId, ThreadId, TreeId},
    tree::usage::{Amount, Usage},
};

pub(super) const CHECKPOINTS: &str = "SELECT checkpoint_ns, checkpoint_id, blob_versions, \
     octet_length(checkpoint) + octet_length(metadata) \
     FROM checkpoints INDEXED BY checkpoints_thread WHERE tree_id = ?1 AND thread_id = ?2";

// Reads the tables, not the view of both: through the view SQLite would read each result to measure it.
pub(super) const WRITES: &str = "SELECT sum(amount), sum(bytes) FROM ( \
     SELECT count(*) AS amount, coalesce(sum(octet_length(writes)), 0) AS bytes FROM checkpoint_writes \
     WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3 \
     UNION ALL SELECT count(*), coalesce(sum(octet_length(result)), 0) FROM checkpoints \
     WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3 AND result_task IS NOT NULL)";

pub(super) const BLOB: &str = "SELECT length(blob), base_version FROM checkpoint_blobs \
     WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND channel = ?3 AND version = ?4";

/// A number that is never negative.
fn size(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(index)?).unwrap_or(0))
}

/// See [`tree::Store::usage`](crate::tree::Store::usage).
pub(super) fn usage(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<Usage> {
    let mut usage = Usage::default();
    let mut counted: HashSet<(Arc<str>, Arc<str>, Arc<str>)> = HashSet::new();
    let mut writes = db.prepare_cached(WRITES)?;
    let mut blob = db.prepare_cached(BLOB)?;
    let mut checkpoints = db.prepare_cached(CHECKPOINTS)?;
    let mut rows = checkpoints.query(params![tree, thread])?;
    while let Some(row) = rows.next()? {
        let ns: Arc<str> = row.get::<_, String>(0)?.into();
        let checkpoint: CheckpointId = id(row, 1)?;
        let versions = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
        let others = size(row, 3)?;
        usage.checkpoints.add(versions.len() as u64 + others);
        let key = params![tree, ns, checkpoint];
        let of_tasks = writes.query_row(key, |row| {
            Ok(Amount {
                rows: size(row, 0)?,
                bytes: size(row, 1)?,
            })
        })?;
        usage.writes.rows += of_tasks.rows;
        usage.writes.bytes += of_tasks.bytes;
        for (channel, version) in frame::versions_of(versions)? {
            let mut next = Some(Arc::<str>::from(version.to_string()));
            // Down the chain of deltas, as far as it is not counted yet.
            while let Some(version) = next {
                if !counted.insert((ns.clone(), channel.clone(), version.clone())) {
                    break;
                }
                let key = params![tree, ns, channel, version];
                let found: Option<(u64, Option<String>)> = blob
                    .query_row(key, |row| Ok((size(row, 0)?, row.get(1)?)))
                    .optional()?;
                let Some((bytes, base)) = found else { break };
                usage
                    .channels
                    .entry(channel.clone())
                    .or_default()
                    .add(bytes);
                next = base.map(Into::into);
            }
        }
    }
    Ok(usage)
}
