//! A saver that buffers commits, so that the caller can write them in a transaction of its own
//! together with other changes.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{
    Blobs, Commit, Error, Flush, List, Page, PageScope, Query, Saver, Stored, Version,
    codec::Format,
};
use crate::id::{CheckpointId, TreeId};

/// Reads from a saver and buffers commits instead of writing them.
pub struct BufferedSaver {
    saver: Arc<dyn Saver>,
    commits: Mutex<Vec<Commit>>,
}

impl BufferedSaver {
    /// A buffer in front of `saver`, from which checkpoints are read.
    pub fn new(saver: Arc<dyn Saver>) -> Arc<Self> {
        Arc::new(Self {
            saver,
            commits: Mutex::default(),
        })
    }

    /// Takes the buffered commits, in the order in which they were made.
    pub fn take(&self) -> Vec<Commit> {
        std::mem::take(&mut *self.commits.lock())
    }
}

#[async_trait]
impl Saver for BufferedSaver {
    fn format(&self) -> Format {
        self.saver.format()
    }

    async fn load(&self, query: Query) -> Result<Option<Stored>, Error> {
        self.saver.load(query).await
    }

    async fn list(&self, list: List) -> Result<Vec<Stored>, Error> {
        self.saver.list(list).await
    }

    async fn page(&self, list: List, scope: PageScope) -> Result<Page, Error> {
        self.saver.page(list, scope).await
    }

    async fn page_of(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        ids: Vec<CheckpointId>,
        scope: PageScope,
    ) -> Result<Page, Error> {
        self.saver.page_of(tree, ns, ids, scope).await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let depths = commits
            .iter()
            .map(|commit| Ok(commit.checkpoint.depth))
            .collect();
        self.commits.lock().extend(commits);
        depths
    }

    /// State updates commit whole supersteps and flush nothing.
    async fn flush(&self, _flush: Flush) -> Result<(), Error> {
        Err(Error::Database(
            "a buffered saver takes no pending writes".into(),
        ))
    }

    async fn blobs(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        wanted: Vec<(Arc<str>, Version)>,
        most: u64,
    ) -> Result<Blobs, Error> {
        self.saver.blobs(tree, ns, wanted, most).await
    }
}
