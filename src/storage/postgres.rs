//! PostgreSQL: every storage trait on any number of replicas that share one database.
//!
//! A superstep is one statement, prepared once per connection, and so one round trip and one
//! transaction. Who may write is decided by the epoch in the row of the branch.

use std::fmt;

mod commit;
mod events;
mod flush;
mod group;
mod index;
mod items;
mod keys;
mod many;
mod migrate;
mod open;
mod params;
mod pool;
mod projections;
mod read;
mod runs;
mod saver;
mod session;
mod threads;

pub use migrate::migrate;

use pool::Pools;

/// How to reach the database.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?...` or a `key=value` connection string.
    pub url: String,
    /// Connections kept for claims, commits, leases and the ends of runs.
    pub critical: usize,
    /// Connections for everything else. They never starve the critical ones.
    pub reads: usize,
    /// Connections for operations on trees, which hold theirs for several round trips; further
    /// ones wait for their turn.
    pub trees: usize,
}

impl Options {
    /// The usual pool sizes: 8, 8 and 4.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            critical: 8,
            reads: 8,
            trees: 4,
        }
    }
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("critical", &self.critical)
            .field("reads", &self.reads)
            .field("trees", &self.trees)
            .finish_non_exhaustive()
    }
}

/// Why the database cannot be used. None of the texts holds a password.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection string cannot be read.
    #[error("the database URL is not valid: {0}; use postgres://user:password@host:port/database")]
    Url(String),
    /// Encryption was asked for and is not there.
    #[error(
        "the database URL asks for TLS (sslmode={0}), which this build does not speak; \
         use sslmode=disable, or a TLS tunnel on the same host"
    )]
    Tls(&'static str),
    /// Nobody answered, or the login failed.
    #[error("no connection to the database `{database}` on {host}: {reason}")]
    Unreachable {
        /// `host:port`, several separated by commas.
        host: String,
        /// Name of the database.
        database: String,
        /// What the driver says.
        reason: String,
    },
    /// A newer program has migrated this database.
    #[error(
        "the database has schema version {database}, this program knows versions up to {program}; \
         start a newer program"
    )]
    Newer {
        /// Version of the database.
        database: i64,
        /// The greatest version this program knows.
        program: i64,
    },
    /// A migration failed; the database is as it was before that migration.
    #[error("the database could not be migrated: {0}")]
    Migration(String),
}

/// Everything that is stored, in one Postgres database. Cloning shares the connections.
#[derive(Clone)]
pub struct Store {
    pools: Pools,
    groups: group::Queue,
    turns: session::Turns,
}

impl Store {
    /// Connects, without changing the schema: see [`migrate`].
    ///
    /// # Errors
    ///
    /// Within a few seconds, when the database does not answer or the URL cannot be used.
    pub async fn connect(options: Options) -> Result<Self, Error> {
        let pools = Pools::connect(&options).await?;
        Ok(Self {
            groups: group::Queue::start(&pools.critical),
            turns: session::Turns::new(pools.trees.clone()),
            pools,
        })
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
