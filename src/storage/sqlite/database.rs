//! A database in a data directory: how it is opened, and what is closed with it.

use std::{fs::File, path::PathBuf};

use rusqlite::Connection;

use super::{
    connection::{
        DATABASE, configure, lock, measure, read_only,
        readers::{self, Readers},
        writer::Writer,
    },
    error::Error,
    migrate,
};
use crate::checkpoint::codec::Format;
use crate::contention::shares::Percent;

/// Where the data is and how durable it is.
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
    // Fields are dropped in this order: connections, lock, folder.
    pub(super) writer: Writer,
    pub(super) readers: Readers,
    _lock: File,
    pub(super) _private: Option<tempfile::TempDir>,
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

    /// Sets how long one read may take; it fails then, and the client is told that it is too much.
    #[must_use]
    pub fn with_read_limit(self, limit: std::time::Duration) -> Self {
        self.readers.set_limit(limit);
        self
    }

    /// Sets in which form values are written from now on; they are read in every form.
    #[must_use]
    pub(crate) fn with_format(mut self, format: Format) -> Self {
        self.writer.format = format;
        self
    }

    /// Sets how long a request may wait for the share that its principal has of what reads; then it is refused.
    #[must_use]
    pub fn with_request_wait(mut self, wait: std::time::Duration) -> Self {
        self.readers.set_wait(wait);
        self
    }

    /// Sets how many percent of what reads one principal may have at a time.
    #[must_use]
    pub fn with_share(mut self, share: Percent) -> Self {
        self.readers.set_share(share);
        self
    }

    /// A database of this process alone, in a temporary directory that goes with it (`--memory`).
    ///
    /// # Errors
    /// When no temporary directory can be made.
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
        measure(&mut writing).map_err(failed)?;
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
