//! PostgreSQL: every storage trait on any number of replicas that share one database.
//!
//! A superstep is one statement, prepared once per connection, and so one round trip and one
//! transaction. Who may write is decided by the epoch in the row of the branch.

/// Runs one operation of a store on a connection that nobody else uses meanwhile, and retries
/// it a few times when a failure is transient.
macro_rules! run {
    (store $store:ident, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {
        $module::$name($store, $($($by)? $arg),*).await
    };
    (critical $store:ident, $($call:tt)*) => {
        run!(@ retry &$store.pools.critical, $($call)*)
    };
    (critical_turn $store:ident, $module:ident::$name:ident, $thread:ident $($more:tt)*) => {{
        let _turn = $store.hot.thread($thread).await?;
        run!(critical $store, $module::$name, $thread $($more)*)
    }};
    (write_turn $store:ident, $module:ident::$name:ident, $thread:ident $($more:tt)*) => {{
        let _turn = $store.hot.thread($thread).await?;
        run!(write $store, $module::$name, $thread $($more)*)
    }};
    (critical_read $store:ident, $($call:tt)*) => {
        run!(@ retry &$store.pools.critical, $($call)*)
    };
    (log_read $store:ident, $($call:tt)*) => {{
        let _turn = $store.streams.turn().await?;
        run!(@ retry_in_share &$store.pools.reads, $($call)*)
    }};
    ($kind:ident $store:ident, $($call:tt)*) => {
        run!(@ retry &$store.pools.reads, $($call)*)
    };
    (@ $retry:ident $pool:expr, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {{
        $(let $arg = $($by)? $arg;)*
        connection::$retry($pool, move |mut client| async move {
            $module::$name(&mut client, $($arg),*).await
        })
        .await
    }};
}

#[macro_use]
mod weight;

mod assistants;
mod branches;
mod checkpoints;
mod columns;
mod connection;
mod counts;
mod crons;
mod database;
mod error;
mod events;
mod idempotency;
mod items;
mod link;
mod log;
mod migrate;
mod outbox;
mod probe;
mod projections;
mod runs;
#[cfg(test)]
mod tests;
mod threads;
mod tree;
mod usage;
mod vectors;

pub use connection::Options;
pub use database::Store;
pub use error::Error;
pub use migrate::migrate;

checkpoint_operations!(run for Store {
    fn format(&self) -> Format {
        self.format
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        self.commits.commit(commits).await
    }
});
run_operations!(run for Store {
    async fn create_run(&self, new: NewRun) -> Result<Created, Error> {
        runs::create_run(self, new).await
    }

    async fn finish_with(&self, commits: Vec<Commit>, finish: Finish) -> Result<Vec<i64>, Error> {
        if !finish.delete_thread {
            return self.commits.finish(commits, finish).await;
        }
        let (commits, finish) = (&commits, &finish);
        connection::retry(&self.pools.critical, |mut db| async move {
            runs::finish(&mut db, commits, finish).await
        })
        .await?;
        Ok(vec![])
    }

    async fn create_runs(&self, new: Vec<NewRun>) -> Result<CreatedBatch, Error> {
        runs::create_runs(self, &new).await
    }

    fn pools(&self) -> Vec<crate::runs::PoolState> {
        self.pools.states()
    }

    fn linker(&self) -> Option<Arc<dyn crate::runs::shared::hints::Linker>> {
        Some(self.linker.clone()?)
    }

    async fn probe(&self) -> Result<(), Error> {
        let probe = |mut client| async move { probe::probe(&mut client).await };
        connection::once(&self.pools.reads, probe).await
    }

    async fn begin(&self, tree: TreeId) -> Result<Box<dyn crate::runs::Tx>, Error> {
        self.transaction(tree).await
    }
});
thread_operations!(run for Store {
    async fn reader(&self) -> Result<Box<dyn crate::tree::Read>, Error> {
        Ok(self.rows())
    }

    async fn begin(&self, tree: TreeId) -> Result<Box<dyn crate::tree::Tx>, Error> {
        Ok(self.transaction(tree).await?)
    }
});
idempotency_operations!(run for Store);
item_operations!(run for Store {
    fn format(&self) -> Format {
        self.format
    }
});
assistant_operations!(run for Store);
cron_operations!(run for Store);
outbox_operations!(run for Store);
log_operations!(run for Store {
    fn is_shared(&self) -> bool {
        true
    }
});
projection_operations!(run for Store);

statements!(; assistants, branches, checkpoints, connection, counts, crons, events, idempotency, items, link, log, outbox, probe, projections, runs, threads, tree, usage, vectors);
