//! Checkpoints that are looked up by what few of their thread have: a field of their metadata.

use rusqlite::{Connection, params};

use crate::checkpoint::{
    List, Result,
    filter::{COUNTED, MetadataFilter},
};

/// How many checkpoints of a thread have a label, of those that are counted.
const COUNT: &str = "SELECT count(*) FROM (SELECT 1 FROM checkpoint_labels \
    WHERE thread_id = ?1 AND label = ?2 AND tree_id = ?3 LIMIT ?4)";

/// The label by which the checkpoints of a list are looked up, if they may be.
pub(super) fn label_of(
    db: &Connection,
    list: &List,
    filter: &MetadataFilter,
) -> Result<Option<String>> {
    let mut labels = filter.labels(list.ns.as_deref());
    if labels.len() < 2 {
        return Ok(labels.pop());
    }
    let most = i64::try_from(COUNTED).unwrap_or(i64::MAX);
    let mut count = db.prepare_cached(COUNT)?;
    let mut rarest = None;
    for label in labels {
        let key = params![list.thread, label, list.tree, most];
        let total: i64 = count.query_row(key, |row| row.get(0))?;
        if rarest.as_ref().is_none_or(|(fewest, _)| total < *fewest) {
            rarest = Some((total, label));
        }
    }
    Ok(rarest.map(|(_, label)| label))
}
