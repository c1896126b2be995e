//! How many rows of a table an owner has.

use rusqlite::{Connection, params};

use crate::checkpoint::Result;

const COUNT: &str = "SELECT coalesce(sum(total), 0) FROM row_counts WHERE kind = ?1 AND owner = ?2";

/// Whether an owner has as many rows of a table as it may.
pub(super) fn is_full(db: &Connection, table: &str, owner: &str, most: usize) -> Result<bool> {
    let mut count = db.prepare_cached(COUNT)?;
    let total: i64 = count.query_row(params![table, owner], |row| row.get(0))?;
    Ok(usize::try_from(total).is_ok_and(|total| total >= most))
}
