//! Checkpoints: hands each call to the writing thread or a reading one.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Store, commit, load};
use crate::{
    checkpoint::{BlobRow, Commit, Error, Flush, List, Query, Saver, Stored, Version},
    id::TreeId,
};

#[async_trait]
impl Saver for Store {
    async fn load(&self, query: Query) -> Result<Option<Stored>, Error> {
        self.readers.read(move |db| load::load(db, &query)).await
    }

    async fn list(&self, list: List) -> Result<Vec<Stored>, Error> {
        self.readers.read(move |db| load::list(db, &list)).await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let count = commits.len();
        // All are queued before the first is waited for: they keep their order and share a
        // transaction.
        let queued: Vec<_> = commits
            .into_iter()
            .map(|commit| self.writer.submit(move |db| commit::commit(db, &commit)))
            .collect();
        let mut results = Vec::with_capacity(count);
        for result in queued {
            results.push(result.await);
        }
        results
    }

    async fn flush(&self, flush: Flush) -> Result<(), Error> {
        self.writer
            .submit(move |db| commit::flush(db, &flush))
            .await
    }

    async fn blobs(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        wanted: Vec<(Arc<str>, Version)>,
    ) -> Result<Vec<BlobRow>, Error> {
        self.readers
            .read(move |db| load::blobs(db, tree, &ns, &wanted))
            .await
    }
}
