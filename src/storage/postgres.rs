//! PostgreSQL: every storage trait on any number of replicas that share one database.
//!
//! A superstep is one statement, prepared once per connection, and so one round trip and one
//! transaction. Who may write is decided by the epoch in the row of the branch.

use std::fmt;

/// Runs one operation of a store on a connection that nobody else uses meanwhile; again, a few
/// times, when what failed will pass.
macro_rules! run {
    (critical $store:ident, $($call:tt)*) => {
        run!(@ &$store.pools.critical, $($call)*)
    };
    ($kind:ident $store:ident, $($call:tt)*) => {
        run!(@ &$store.pools.reads, $($call)*)
    };
    (@ $pool:expr, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {{
        $(let $arg = $($by)? $arg;)*
        connection::retry($pool, move |mut client| async move {
            $module::$name(&mut client, $($arg),*).await
        })
        .await
    }};
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
pub use migrate::migrate;

use checkpoints::commit::queue::Queue;
use columns as params;
use connection::{self as pool, Pools, transaction::Turns};

/// Statements as they were named before; goes with its last user.
mod commit {
    pub(super) use super::connection::prepare;
}

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

/// Everything that is stored, in one Postgres database. Cloning shares the connections.
#[derive(Clone)]
pub struct Store {
    pools: Pools,
    groups: Queue,
    turns: Turns,
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
            groups: Queue::start(&pools.critical),
            turns: Turns::new(pools.trees.clone()),
            pools,
        })
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
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
