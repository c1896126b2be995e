//! SQLite in a data directory: one writer thread that commits in groups, a few readers.
//!
//! Without statistics the planner takes the first column of a key of a table `WITHOUT ROWID` for
//! cheaper than an index of two columns that does not cover, and that column is the tree: a
//! statement would walk all of it. So statements name their index (`INDEXED BY`) where the key is
//! not what they search by, and their order (`CROSS JOIN`) where a few rows lead to the others.
//! Statistics (`ANALYZE`) do not make this unnecessary: when most trees are small, a join may begin
//! with all rows of a tree, although one tree is large. A test plans the statements both ways.

/// Runs one operation of a store: a read on a reading thread, any other on the writing one.
macro_rules! run {
    (critical_read $store:ident, $($call:tt)*) => {
        run!(read $store, $($call)*)
    };
    (log_read $store:ident, $($call:tt)*) => {
        run!(read $store, $($call)*)
    };
    (read $store:ident, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {
        $store.readers.read(move |db| $module::$name(db, $($($by)? $arg),*)).await
    };
    ($change:ident $store:ident, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {
        $store.writer.submit(move |db| $module::$name(db, $($($by)? $arg),*)).await
    };
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
mod log;
mod migrate;
mod outbox;
mod probe;
mod projections;
mod runs;
mod threads;
mod tree;
mod usage;
mod vectors;

use crate::runs::request::codec;
pub use database::{Options, Store};
pub use error::Error;

checkpoint_operations!(run for Store {
    fn format(&self) -> Format {
        self.writer.format
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let count = commits.len();
        let results = self
            .writer
            .submit(move |db| checkpoints::commit_all(db, &commits))
            .await;
        results.unwrap_or_else(|error| vec![Err(error); count])
    }
});
run_operations!(run for Store {
    async fn create_run(&self, new: NewRun) -> Result<Created, Error> {
        let kwargs = codec::encode(&new.kwargs, new.columns(), self.writer.format);
        self.writer
            .submit(move |db| runs::create_or_nothing(db, new, &kwargs, Timestamp::now()))
            .await
    }

    async fn finish_with(&self, commits: Vec<Commit>, finish: Finish) -> Result<Vec<i64>, Error> {
        self.writer
            .submit(move |db| runs::finish(db, &commits, &finish))
            .await
    }

    async fn create_runs(&self, new: Vec<NewRun>) -> Result<CreatedBatch, Error> {
        let format = self.writer.format;
        let encoded = |new: NewRun| (codec::encode(&new.kwargs, new.columns(), format), new);
        let new: Vec<_> = new.into_iter().map(encoded).collect();
        self.writer
            .submit(move |db| runs::create_all(db, new, Timestamp::now()))
            .await
    }

    async fn probe(&self) -> Result<(), Error> {
        self.writer.submit(|db| probe::fill(db)).await?;
        self.writer.submit(|db| probe::empty(db)).await
    }

    async fn begin(&self, _tree: TreeId) -> Result<Box<dyn crate::runs::Tx>, Error> {
        Ok(Box::new(self.transaction().await?))
    }
});
thread_operations!(run for Store {
    async fn reader(&self) -> Result<Box<dyn crate::tree::Read>, Error> {
        Ok(Box::new(self.rows()))
    }

    async fn begin(&self, _tree: TreeId) -> Result<Box<dyn crate::tree::Tx>, Error> {
        Ok(Box::new(self.transaction().await?))
    }
});
idempotency_operations!(run for Store);
item_operations!(run for Store {
    fn format(&self) -> Format {
        self.writer.format
    }
});
assistant_operations!(run for Store);
outbox_operations!(run for Store);
log_operations!(run for Store {
    fn is_shared(&self) -> bool {
        false
    }
});
cron_operations!(run for Store);
projection_operations!(run for Store);

#[cfg(test)]
mod tests;
