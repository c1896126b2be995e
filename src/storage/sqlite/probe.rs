//! Finding out whether the database can still be written to.

use rusqlite::Connection;

use crate::checkpoint::Result;

const FILL: &str = "INSERT OR REPLACE INTO disk_probe (one, filler) VALUES (1, randomblob(262144))";

const EMPTY: &str = "DELETE FROM disk_probe";

/// Writes 256 KiB, which fails on a full disk.
pub(super) fn fill(db: &Connection) -> Result<()> {
    db.prepare_cached(FILL)?.execute([])?;
    Ok(())
}

/// Gives the pages back, in a transaction of its own: within one nothing would be written.
pub(super) fn empty(db: &Connection) -> Result<()> {
    db.prepare_cached(EMPTY)?.execute([])?;
    Ok(())
}
