//! What can go wrong when a database is opened, and what a failed statement means to a caller.

use std::{io, path::PathBuf};

use rusqlite::{ErrorCode, ffi};

use crate::checkpoint;

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be created or written.
    #[error(
        "the data directory {} cannot be used: {source}{}",
        path.display(),
        if path.is_file() {
            "; it is a file: name the folder that the database is to be in (BACKSTITCH_DATA, --data)"
        } else {
            "; choose another one (BACKSTITCH_DATA, --data)"
        }
    )]
    Folder {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process has it open.
    #[error(
        "the data directory {} is in use by another process; stop that one, or choose another \
         directory (BACKSTITCH_DATA)",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The file cannot be opened as a database.
    #[error("the database {} cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The database was written by a newer version.
    #[error(
        "the database {} has schema version {found}, this program knows versions up to {known}; \
         use a newer program, or another data directory",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: i64,
        /// The newest version this program has.
        known: i64,
    },
    /// The database has a version of the schema that this program never had.
    #[error(
        "the database {} was made by another build: migration {migration} is not the one of \
         this program; use the program that made it, or another data directory",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Which migration differs or is missing.
        migration: String,
    },
    /// A migration failed; nothing of it was applied.
    #[error(
        "the database {} could not be brought to this version: {migration}: {source}",
        path.display()
    )]
    Migration {
        /// The file.
        path: PathBuf,
        /// Which one.
        migration: &'static str,
        /// Why.
        source: rusqlite::Error,
    },
    /// The operating system refused a thread.
    #[error("no thread for the database: {0}")]
    Thread(io::Error),
}

/// Full disks, locks and unreadable files pass or can be repaired; the rest is a fault of the
/// data or of this program.
impl From<rusqlite::Error> for checkpoint::Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        match &error {
            E::SqliteFailure(ffi::Error { code, .. }, _) => match code {
                ErrorCode::DiskFull
                | ErrorCode::CannotOpen
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::FileLockingProtocolFailed => Self::Unavailable(error.to_string()),
                ErrorCode::OperationInterrupted => Self::TookTooLong,
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                    Self::Corrupt(error.to_string())
                }
                _ => Self::Database(error.to_string()),
            },
            E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::Utf8Error(..)
            | E::InvalidColumnType(..) => Self::Corrupt(error.to_string()),
            _ => Self::Database(error.to_string()),
        }
    }
}
