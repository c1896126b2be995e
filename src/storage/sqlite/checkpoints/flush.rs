//! Task results ahead of their checkpoint.

use rusqlite::Connection;

use super::commit::{check_epoch, insert_writes};
use crate::{
    checkpoint::{Flush, Result},
    storage::sqlite::branches,
    time::Timestamp,
};

/// Task results ahead of their checkpoint.
pub(crate) fn flush(db: &Connection, flush: &Flush) -> Result<()> {
    if let Some(open) = &flush.open {
        branches::open(db, open, Timestamp::now())?;
    }
    check_epoch(db, &flush.slot)?;
    insert_writes(db, flush.slot.tree, flush.slot.branch, &flush.writes)
}
