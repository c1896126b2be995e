//! SQLite in a data directory: one writer thread that commits in groups, a few readers.
//!
//! Without statistics the planner takes the first column of a key of a table `WITHOUT ROWID` for
//! cheaper than an index of two columns that does not cover, and that column is the tree: a
//! statement would walk all of it. So statements name their index (`INDEXED BY`) where the key is
//! not what they search by, and their order (`CROSS JOIN`) where a few rows lead to the others;
//! a test plans them.

use std::{fs::File, path::PathBuf};

use rusqlite::Connection;

/// Runs one operation of a store: a read on a reading thread, any other on the writing one.
macro_rules! run {
    (read $store:ident, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {
        $store.readers.read(move |db| $module::$name(db, $($($by)? $arg),*)).await
    };
    ($change:ident $store:ident, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {
        $store.writer.submit(move |db| $module::$name(db, $($($by)? $arg),*)).await
    };
}

mod branches;
mod checkpoints;
mod columns;
mod connection;
mod error;
mod events;
mod idempotency;
mod items;
mod migrate;
mod projections;
mod runs;
mod threads;
mod tree;

pub use error::Error;

use columns as row;
use connection::{
    DATABASE, configure, lock, read_only,
    readers::{self, Readers},
    writer::Writer,
};
use tree as session;

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

checkpoint_operations!(run for Store {
    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        self.commit_all(commits).await
    }
});
idempotency_operations!(run for Store);
item_operations!(run for Store);
projection_operations!(run for Store);

#[cfg(test)]
mod tests;
