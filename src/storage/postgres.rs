//! PostgreSQL: every storage trait on any number of replicas that share one database.
//!
//! A superstep is one statement, prepared once per connection, and so one round trip and one
//! transaction. Who may write is decided by the epoch in the row of the branch.

/// Runs one operation of a store on a connection that nobody else uses meanwhile, and retries
/// it a few times when a failure is transient.
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
mod database;
mod error;
mod events;
mod idempotency;
mod items;
mod migrate;
mod projections;
mod runs;
mod threads;
mod tree;

pub use connection::Options;
pub use database::Store;
pub use error::Error;
pub use migrate::migrate;

checkpoint_operations!(run for Store {
    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        self.commits.commit(commits).await
    }
});
idempotency_operations!(run for Store);
item_operations!(run for Store);
projection_operations!(run for Store);
