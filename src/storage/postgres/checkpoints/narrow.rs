//! Checkpoints that are looked up by what few of their thread have: a field of their metadata.

use crate::{
    checkpoint::{
        List,
        filter::{COUNTED, MetadataFilter},
    },
    storage::postgres::connection::{Object, Result, prepare},
};

/// The label that the fewest checkpoints of a thread have, of those that are counted.
const RAREST: &str = "
SELECT x.label FROM unnest($3::text[]) WITH ORDINALITY x(label, i) CROSS JOIN LATERAL (
  SELECT count(*) AS total FROM (
    SELECT 1 FROM checkpoint_labels l WHERE l.thread_id = $2 AND l.label = x.label AND l.tree_id = $1 LIMIT $4) l) l
 ORDER BY l.total, x.i LIMIT 1";

/// The label by which the checkpoints of a list are looked up, if they may be.
pub(super) async fn label_of(
    db: &Object,
    list: &List,
    filter: &MetadataFilter,
) -> Result<Option<String>> {
    let mut labels = filter.labels(list.ns.as_deref());
    if labels.len() < 2 {
        return Ok(labels.pop());
    }
    let most = i64::try_from(COUNTED).unwrap_or(i64::MAX);
    let statement = prepare(db, RAREST).await?;
    let row = db
        .query_one(&statement, &[&list.tree.0, &list.thread.0, &labels, &most])
        .await?;
    Ok(Some(row.try_get(0)?))
}

statements!(RAREST);
