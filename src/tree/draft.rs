//! A saver that keeps what is to be written, so that a state edit can become part of a
//! transaction with more in it.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{
    checkpoint::{BlobRow, Commit, Error, Flush, List, Query, Saver, Stored, Version},
    id::TreeId,
};

/// Reads from a saver and keeps commits to itself.
pub struct Draft {
    saver: Arc<dyn Saver>,
    commits: Mutex<Vec<Commit>>,
}

impl Draft {
    /// A draft over what `saver` holds.
    pub fn new(saver: Arc<dyn Saver>) -> Arc<Self> {
        Arc::new(Self {
            saver,
            commits: Mutex::default(),
        })
    }

    /// What was to be written, in order.
    pub fn take(&self) -> Vec<Commit> {
        std::mem::take(&mut *self.commits.lock())
    }
}

#[async_trait]
impl Saver for Draft {
    async fn load(&self, query: Query) -> Result<Option<Stored>, Error> {
        self.saver.load(query).await
    }

    async fn list(&self, list: List) -> Result<Vec<Stored>, Error> {
        self.saver.list(list).await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let depths = commits
            .iter()
            .map(|commit| Ok(commit.checkpoint.depth))
            .collect();
        self.commits.lock().extend(commits);
        depths
    }

    /// Edits write whole supersteps only.
    async fn flush(&self, _flush: Flush) -> Result<(), Error> {
        Err(Error::Database("a draft takes no pending writes".into()))
    }

    async fn blobs(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        wanted: Vec<(Arc<str>, Version)>,
    ) -> Result<Vec<BlobRow>, Error> {
        self.saver.blobs(tree, ns, wanted).await
    }
}
