//! SQLite in a data directory: one writer thread that commits in groups, a few readers.
//!
//! Without statistics the planner takes the first column of a key of a table `WITHOUT ROWID` for
//! cheaper than an index of two columns that does not cover, and that column is the tree: a
//! statement would walk all of it. So statements name their index (`INDEXED BY`) where the key is
//! not what they search by, and their order (`CROSS JOIN`) where a few rows lead to the others;
//! a test plans them.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, config::DbConfig};

mod branches;
mod commit;
mod error;
mod events;
mod items;
mod keys;
mod load;
mod migrate;
mod projections;
mod readers;
mod row;
mod runs;
mod saver;
mod session;
mod threads;
mod writer;

pub use error::Error;
use readers::Readers;
use writer::Writer;

/// The database file inside the data directory.
const DATABASE: &str = "backstitch.db";
/// The file whose lock says that a process uses the data directory.
const LOCK: &str = "lock";
/// Statements kept prepared per connection: more than there are in this room.
const PREPARED: usize = 128;

/// Where the data is and how hard it is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data directory; created when it does not exist. One process at a time uses it.
    pub path: PathBuf,
    /// Do not wait for the disk: fast, and a power cut may lose or damage the data. A killed
    /// process loses nothing.
    pub synchronous_off: bool,
}

/// A SQLite database with the schema of this version.
///
/// Dropping it ends its threads after the work that was already handed over.
#[derive(Debug)]
pub struct Store {
    // In the order in which they must go: connections, lock, folder.
    writer: Writer,
    readers: Readers,
    _lock: File,
    _private: Option<tempfile::TempDir>,
}

impl Store {
    /// Opens or creates the database in a data directory and brings it to this version's schema.
    ///
    /// # Errors
    /// When the directory cannot be used, another process uses it, or the database was written
    /// by a newer or a different version.
    pub fn open(options: Options) -> Result<Self, Error> {
        Self::start(&options, None)
    }

    /// A database of this process alone, in a temporary directory that goes with it (`--memory`).
    ///
    /// # Errors
    /// When there is no place for a temporary directory.
    pub fn private() -> Result<Self, Error> {
        let folder = tempfile::Builder::new()
            .prefix("backstitch-")
            .tempdir()
            .map_err(|source| Error::Folder {
                path: std::env::temp_dir(),
                source,
            })?;
        let options = Options {
            path: folder.path().to_owned(),
            synchronous_off: true,
        };
        Self::start(&options, Some(folder))
    }

    fn start(options: &Options, private: Option<tempfile::TempDir>) -> Result<Self, Error> {
        let lock = lock(&options.path)?;
        let file = options.path.join(DATABASE);
        let failed = |source| Error::Open {
            path: file.clone(),
            source,
        };
        let mut writing = Connection::open(&file).map_err(failed)?;
        configure(&writing, options.synchronous_off).map_err(failed)?;
        migrate::migrate(&mut writing, &file)?;
        let reading = (0..readers::COUNT)
            .map(|_| read_only(&file))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        Ok(Self {
            writer: Writer::start(writing).map_err(Error::Thread)?,
            readers: Readers::start(reading).map_err(Error::Thread)?,
            _lock: lock,
            _private: private,
        })
    }
}

/// Claims the data directory for this process; the lock goes when the file is closed.
fn lock(path: &Path) -> Result<File, Error> {
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

fn configure(db: &Connection, synchronous_off: bool) -> rusqlite::Result<()> {
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = if synchronous_off { "OFF" } else { "FULL" };
    db.pragma_update(None, "synchronous", synchronous)?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    // Pages until the log is copied back: fewer, larger copies than the default of 1000.
    db.pragma_update(None, "wal_autocheckpoint", 4000)?;
    // The log is cut back to this after a burst.
    db.pragma_update(None, "journal_size_limit", 64 << 20)?;
    // In KiB; used only as far as it is needed.
    db.pragma_update(None, "cache_size", -8192)?;
    prepare_once(db)
}

/// Statements stay prepared. Without the second line SQLite looks at bound values to see whether
/// a partial index may serve, and so prepares such a statement anew for each execution.
fn prepare_once(db: &Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(PREPARED);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn read_only(file: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(file)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.pragma_update(None, "query_only", true)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    prepare_once(&db)?;
    Ok(db)
}

#[cfg(test)]
mod tests;
