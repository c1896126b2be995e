//! Connections: one that writes, a few that read, and the lock of the data directory.

use std::{
    fs::{self, File, TryLockError},
    ops::Deref,
    path::Path,
};

use rusqlite::{Connection, config::DbConfig};

use super::error::Error;
use crate::{checkpoint::codec::Format, fail_point};

mod idle;
#[cfg(feature = "failpoints")]
mod measured;
pub(crate) mod readers;
pub(crate) mod transaction;
pub(crate) mod writer;

/// The database file inside the data directory.
pub(super) const DATABASE: &str = "backstitch.db";
/// The file that the process which uses the data directory has locked.
const LOCK: &str = "lock";
/// Statements that stay prepared per connection: more than there are in this room.
const PREPARED: usize = 128;

/// The connection that writes.
#[derive(Clone, Copy)]
pub(crate) struct Writing<'a> {
    db: &'a Connection,
    /// In which form values are written.
    pub(super) format: Format,
}

impl Deref for Writing<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.db
    }
}

/// Claims the data directory for this process; the lock goes when the file is closed.
pub(super) fn lock(path: &Path) -> Result<File, Error> {
    let failed = |source| Error::Folder {
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(path).map_err(failed)?;
    let lock = File::options()
        .create(true)
        .append(true)
        .open(path.join(LOCK))
        .map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::InUse {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Sets the writing connection up.
pub(super) fn configure(db: &Connection, synchronous_off: bool) -> rusqlite::Result<()> {
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = if synchronous_off { "OFF" } else { "FULL" };
    db.pragma_update(None, "synchronous", synchronous)?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    // Pages until the log is copied back: it stays at about 4 MB.
    db.pragma_update(None, "wal_autocheckpoint", 1000)?;
    // The log is cut back to this after a burst.
    db.pragma_update(None, "journal_size_limit", 8 << 20)?;
    // In KiB; used only as far as it is needed.
    db.pragma_update(None, "cache_size", -8192)?;
    prepare_once(db)
}

/// Statements stay prepared. Without the second line SQLite reads bound values to find out whether
/// a partial index may serve, and so prepares such a statement for each execution.
fn prepare_once(db: &Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(PREPARED);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Lets tests see what the statements of a connection take.
#[cfg(feature = "failpoints")]
pub(super) use measured::measure;

/// Lets tests see what the statements of a connection take, with the feature `failpoints`.
#[cfg(not(feature = "failpoints"))]
pub(super) fn measure(_: &mut Connection) -> rusqlite::Result<()> {
    Ok(())
}

/// Opens a connection that cannot write.
pub(super) fn read_only(file: &Path) -> rusqlite::Result<Connection> {
    let mut db = Connection::open(file)?;
    measure(&mut db)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.pragma_update(None, "query_only", true)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    prepare_once(&db)?;
    Ok(db)
}

/// Runs a statement that has no parameters and no rows.
fn execute(db: &Connection, sql: &'static str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}

/// Commits the open transaction.
fn commit(db: &Connection) -> rusqlite::Result<()> {
    fail_point!("sqlite::before_commit");
    execute(db, "COMMIT")
}

/// Ends an open transaction; nothing of it stays.
fn roll_back(db: &Connection) {
    if !db.is_autocommit()
        && let Err(error) = execute(db, "ROLLBACK")
    {
        tracing::error!(%error, "a transaction could not be rolled back");
    }
}
