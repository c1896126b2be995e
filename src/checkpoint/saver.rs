//! The trait that a storage of checkpoints implements, and its requests and errors.

use std::sync::Arc;

use async_trait::async_trait;

use super::{BlobRow, CheckpointRow, Commit, Flush, Source, WriteRow, codec::Format};
use crate::{
    contention::{Crowded, shares},
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
};

/// Why a storage failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another writer claimed, cancelled, moved or deleted the branch: write nothing more.
    #[error("another writer took over the branch")]
    Fenced,
    /// The checkpoint to build on is gone: pruned, or rolled back with its run. Nothing was written.
    #[error("checkpoint {0} was pruned: nothing can be built on it any more")]
    Pruned(CheckpointId),
    /// The database cannot be reached, or refuses work for now. Nothing was written.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// A read or a search took longer than it may.
    #[error("it took longer than this server allows: ask for less at once")]
    TookTooLong,
    /// Too many wait to change the same thread. Nothing was written.
    #[error(transparent)]
    Crowded(#[from] Crowded),
    /// The principal uses all of its share of the connections, and did for as long as it may wait.
    #[error(transparent)]
    ShareUsed(#[from] shares::Full),
    /// A row that this version cannot read.
    #[error("stored data cannot be read: {0}")]
    Corrupt(String),
    /// Any other failure of the database.
    #[error("the database failed: {0}")]
    Database(String),
}

impl Error {
    /// Whether the same may succeed in a while.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_) | Self::TookTooLong | Self::ShareUsed(_)
        )
    }
}

/// A failure of the storage as nodes get it, who may show what they get to models and clients: without what the database
/// said. A run whose node returns it goes on when the storage is back.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the storage failed")]
pub(crate) struct Masked(pub Error);

/// What a storage returns.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Which checkpoint to load.
#[derive(Clone, Debug)]
pub enum At {
    /// This one, if it belongs to the tree and namespace.
    Id(CheckpointId),
    /// The head of a branch (root namespace).
    Head(BranchId),
    /// The head of the thread's active branch (root namespace).
    ActiveHead,
    /// The newest checkpoint of a subgraph's namespace that lies on the path of `start` and
    /// belongs to it: one that another branch stored below a shared checkpoint does not count.
    Subgraph {
        /// Root checkpoint where the walk begins.
        start: CheckpointId,
        /// The branch that owns rows under `start`.
        branch: BranchId,
        /// Only rows with a smaller id than this.
        before: Option<CheckpointId>,
    },
    /// The newest checkpoint of the thread in the namespace, on whatever branch.
    Newest,
}

/// A request for one checkpoint.
#[derive(Clone, Debug)]
pub struct Query {
    /// Tree.
    pub tree: TreeId,
    /// Thread, for `ActiveHead` and `Newest`.
    pub thread: ThreadId,
    /// Namespace; empty for the root graph.
    pub ns: Arc<str>,
    /// Which one.
    pub at: At,
    /// Load the channel values; false when the caller may have them cached.
    pub values: bool,
}

/// A request for several checkpoints, newest first.
#[derive(Clone, Debug)]
pub struct List {
    /// Tree.
    pub tree: TreeId,
    /// Thread.
    pub thread: ThreadId,
    /// Namespace; `None` for every namespace of the thread.
    pub ns: Option<Arc<str>>,
    /// Strictly older than this one.
    pub before: Option<CheckpointId>,
    /// Just this one.
    pub id: Option<CheckpointId>,
    /// Containment on metadata as clients see it: `source`, `step` and `run_id` are compared
    /// with their columns.
    pub metadata: Option<crate::value::Map>,
    /// At most so many.
    pub limit: usize,
}

/// A checkpoint as stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The row.
    pub row: CheckpointRow,
    /// Every blob its versions name, with the chains of deltas down to full values.
    pub blobs: Vec<BlobRow>,
    /// Pending writes at this checkpoint, of every branch, ordered by path, task, idx.
    pub writes: Vec<WriteRow>,
}

impl Stored {
    /// What everything weighs together.
    pub(crate) fn weight(&self) -> u64 {
        let writes = self.writes.iter().map(WriteRow::weight);
        let blobs = self.blobs.iter().map(BlobRow::weight);
        self.row.weight() + writes.chain(blobs).sum::<u64>()
    }
}

/// Several checkpoints of one namespace as stored. Values that they share are there once.
#[derive(Clone, Debug, Default)]
pub struct StoredRows {
    /// The rows in their order, each with its pending writes as in [`Stored::writes`].
    pub rows: Vec<(CheckpointRow, Vec<WriteRow>)>,
    /// Every blob that one of them names, with the chains of deltas down to full values.
    pub blobs: Vec<BlobRow>,
}

impl StoredRows {
    /// What everything weighs together.
    pub fn weight(&self) -> u64 {
        let rows = self.rows.iter().map(|(row, writes)| {
            let writes: u64 = writes.iter().map(WriteRow::weight).sum();
            row.weight() + writes
        });
        let blobs = self.blobs.iter().map(BlobRow::weight);
        rows.chain(blobs).sum()
    }
}

/// The size of a checkpoint, and what filters compare.
#[derive(Clone, Debug)]
pub struct SizedCheckpoint {
    /// Its id.
    pub id: CheckpointId,
    /// The run that wrote it.
    pub run: Option<RunId>,
    /// What wrote it.
    pub source: Source,
    /// Superstep number.
    pub step: i64,
    /// Its metadata as JSON text, if it was requested.
    pub metadata: Option<String>,
    /// What its row, its pending writes, and its values with all that they build on weigh.
    pub weight: u64,
}

/// What a page of checkpoints brings along.
#[derive(Clone, Copy, Debug)]
pub struct PageScope {
    /// The rows themselves if all of them together weigh at most as much.
    pub most: u64,
    /// Sizes come with metadata.
    pub metadata: bool,
}

/// A page of checkpoints: small ones as they are, of others the sizes. Measuring reads no values.
#[derive(Clone, Debug)]
pub enum Page {
    /// Everything that is stored.
    Rows(StoredRows),
    /// What is to be read in parts.
    Sizes(Vec<SizedCheckpoint>),
}

/// Blobs: small ones as they are, of others the size. Measuring reads no values.
#[derive(Clone, Debug)]
pub enum Blobs {
    /// The rows.
    Rows(Vec<BlobRow>),
    /// What they weigh together.
    Weight(u64),
}

/// A storage of checkpoints. Implemented by `storage::sqlite` and `storage::postgres`.
#[async_trait]
pub trait Saver: Send + Sync + 'static {
    /// In which form values are to be encoded that are written.
    fn format(&self) -> Format;

    /// One checkpoint with values and pending writes, in one round trip.
    async fn load(&self, query: Query) -> Result<Option<Stored>, Error>;

    /// Several checkpoints, newest id first.
    async fn list(&self, list: List) -> Result<Vec<Stored>, Error>;

    /// The checkpoints of one namespace that `list` selects, newest first.
    async fn page(&self, list: List, scope: PageScope) -> Result<Page, Error>;

    /// These checkpoints of a namespace in this order, without those that are not there.
    async fn page_of(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        ids: Vec<CheckpointId>,
        scope: PageScope,
    ) -> Result<Page, Error>;

    /// Writes supersteps: each one whole or not at all, in one round trip and one transaction.
    ///
    /// Commits of one branch are applied in order. The result has one entry per commit:
    /// the depth of the new checkpoint, or why it was refused. A lost reply is resolved by
    /// reading the branch: head = own id and epoch = own means success.
    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>>;

    /// Writes task results ahead of their checkpoint.
    async fn flush(&self, flush: Flush) -> Result<(), Error>;

    /// The blobs that references in writes point to, by channel and version, each as it is stored, without what it
    /// builds on: if all of them together weigh at most `most`, else what they weigh.
    async fn blobs(
        &self,
        tree: TreeId,
        ns: Arc<str>,
        versions: Vec<(Arc<str>, super::Version)>,
        most: u64,
    ) -> Result<Blobs, Error>;
}
