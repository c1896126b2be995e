//! The log of streams that can be resumed: what it stores and reads, and who writes it.

mod frames;
mod shares;
mod writer;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

pub use self::{frames::LogFrames, writer::LogWriter};
use crate::{
    checkpoint::Error,
    id::{CheckpointId, RunId, ThreadId, TreeId},
    value::Value,
};

/// Most frames of a chunk.
pub const CHUNK_FRAMES: i64 = 1024;
/// Most chunks that are read at once.
pub const READ_CHUNKS: i64 = 64;
/// Bytes after which no further chunk is read.
pub const READ_BYTES: i64 = 1 << 20;
/// What the row of a chunk and its entries in indexes take besides its frames, about.
const ROW_BYTES: i64 = 256;
/// How long the log of a run stays that has ended and gone with its thread.
pub const ENDED_AGE: Duration = Duration::from_secs(600);

/// Numbers of frames that each attempt of a run has to itself.
pub const ATTEMPT_FRAMES: u64 = 1_000_000_000;

/// A chunk of frames to store.
#[derive(Clone, Debug)]
pub struct NewChunk {
    /// The tree of the thread.
    pub tree: TreeId,
    /// The thread.
    pub thread: ThreadId,
    /// The run.
    pub run: RunId,
    /// The epoch of its writer, which must still execute the run; `None` for what comes with the end of the run or after
    /// it.
    pub epoch: Option<i64>,
    /// Number of the first frame.
    pub first: i64,
    /// Number of the last frame.
    pub last: i64,
    /// The checkpoint that the run had reached.
    pub checkpoint: Option<CheckpointId>,
    /// The frames: see [`LogFrames`].
    pub frames: Bytes,
    /// The run's thread is deleted with it.
    pub temporary: bool,
    /// On whose behalf the run executes; `None` while nobody authenticates.
    pub principal: Option<Arc<str>>,
}

impl NewChunk {
    /// The bytes by which it counts: those of its frames and of its row.
    pub fn bytes(&self) -> i64 {
        i64::try_from(self.frames.len()).unwrap_or(i64::MAX - ROW_BYTES) + ROW_BYTES
    }
}

/// A chunk of frames that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// The run.
    pub run: RunId,
    /// Number of the first frame.
    pub first: i64,
    /// Number of the last frame.
    pub last: i64,
    /// Position of the first frame in the log of the thread.
    pub position: i64,
    /// The frames: see [`LogFrames`].
    pub frames: Vec<u8>,
}

/// Whether there may be more behind chunks that were read at once.
pub fn is_full(chunks: &[LogChunk]) -> bool {
    let bytes: usize = chunks.iter().map(|chunk| chunk.frames.len()).sum();
    chunks.len() as i64 >= READ_CHUNKS || bytes as i64 >= READ_BYTES
}

/// What is stored of a run that has gone with its thread, as long as its log is.
#[derive(Clone, Debug, PartialEq)]
pub struct TemporaryRun {
    /// Its thread.
    pub thread: ThreadId,
    /// Who created it.
    pub principal: Option<Arc<str>>,
    /// `{"error", "message"}` of its failure.
    pub error: Option<Value>,
    /// What those get who wait for its end, if it was stored for them.
    pub result: Option<Value>,
}

/// Stores the frames of runs that can be resumed. Implemented by `storage::sqlite` and
/// `storage::postgres`.
#[async_trait]
pub trait Log: Send + Sync + 'static {
    /// Appends chunks in one transaction; the position of each in the log of its thread, or `None`
    /// when its writer does not execute the run any more. A chunk that is there already stays as it
    /// is.
    async fn append_chunks(&self, chunks: Vec<NewChunk>) -> Result<Vec<Option<i64>>, Error>;

    /// The next chunks of a run that have frames after a number.
    async fn chunks_of_run(&self, run: RunId, after: i64) -> Result<Vec<LogChunk>, Error>;

    /// The next chunks of a thread that have frames after a position.
    async fn chunks_of_thread(&self, thread: ThreadId, after: i64) -> Result<Vec<LogChunk>, Error>;

    /// A run that has gone with its thread and left its log.
    async fn ended_run(&self, run: RunId) -> Result<Option<TemporaryRun>, Error>;

    /// Number of the last frame of a run; 0 without any.
    async fn end_of_run(&self, run: RunId) -> Result<i64, Error>;

    /// The last position in the log of a thread; 0 without any.
    async fn thread_position(&self, thread: ThreadId) -> Result<i64, Error>;

    /// The position before the first one in the log of a thread, of what is gone by now too; 0 for a thread that
    /// never had any.
    async fn thread_start(&self, thread: ThreadId) -> Result<i64, Error>;

    /// Whether other processes write to it.
    fn is_shared(&self) -> bool;

    /// Removes the chunks of a run whose frames are all before a number.
    async fn trim_run(&self, run: RunId, before: i64) -> Result<(), Error>;

    /// Removes the oldest chunks of a principal beyond `most` bytes of them; how many they were, at most
    /// `limit`.
    async fn trim_principal(
        &self,
        principal: Arc<str>,
        most: i64,
        limit: usize,
    ) -> Result<u64, Error>;

    /// Removes chunks older than `age`, and those of runs that have gone with their threads ten
    /// minutes after the last one, with what is stored of those runs; how many they were, at most `limit` of each kind.
    async fn sweep_log(&self, age: Duration, limit: usize) -> Result<u64, Error>;
}
