//! Writes the frames of all runs of a process that can be resumed into the log.

use std::{mem, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Log, NewChunk, shares::Shares};
use crate::{id::ThreadId, stream::publisher::Publisher};

/// Time between two writes, in which frames are gathered. The first ones after a pause are written at
/// once.
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes of frames and chunks of one write.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_CHUNKS: usize = 256;
/// Pauses between attempts while the storage fails.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(2);
/// Attempts when the storage refuses for a reason that may stay.
const TRIES: u32 = 8;

/// Publishers with frames that are not written yet, and the task that writes them.
pub struct LogWriter {
    log: Arc<dyn Log>,
    /// Bytes of one run.
    most: usize,
    shares: Shares,
    /// Learns which threads have new frames.
    written: Box<dyn Fn(ThreadId) + Send + Sync>,
    waiting: Mutex<Vec<Arc<Publisher>>>,
    wake: Notify,
}

/// A chunk on its way.
struct Pending {
    publisher: Arc<Publisher>,
    chunk: NewChunk,
}

impl LogWriter {
    /// A writer into `log`, which has at most about `most` bytes of one run, and `share` of the runs of
    /// one principal; see [`run`](Self::run).
    /// `written` is called with each thread that has new frames.
    pub fn new(
        log: Arc<dyn Log>,
        most: usize,
        share: usize,
        written: impl Fn(ThreadId) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            log,
            most,
            shares: Shares::new(share),
            written: Box::new(written),
            waiting: Mutex::default(),
            wake: Notify::new(),
        })
    }

    /// Bytes that the log may have of one run.
    pub(in crate::stream) fn most(&self) -> usize {
        self.most
    }

    /// Adds a publisher that has frames to write.
    pub(in crate::stream) fn push(&self, publisher: Option<Arc<Publisher>>) {
        self.waiting.lock().extend(publisher);
        self.wake.notify_one();
    }

    /// Writes what comes, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            if stop
                .run_until_cancelled(self.wake.notified())
                .await
                .is_none()
            {
                return;
            }
            let next = Instant::now() + PAUSE;
            let waiting = mem::take(&mut *self.waiting.lock());
            let mut batch = vec![];
            let mut bytes = 0;
            for publisher in waiting {
                for chunk in publisher.take_unlogged() {
                    bytes += chunk.frames.len();
                    let publisher = publisher.clone();
                    batch.push(Pending { publisher, chunk });
                    if bytes >= BATCH_BYTES || batch.len() >= BATCH_CHUNKS {
                        self.write(mem::take(&mut batch), &stop).await;
                        bytes = 0;
                    }
                }
            }
            if !batch.is_empty() {
                self.write(batch, &stop).await;
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Writes chunks, and lets their publishers show them. While the storage fails this tries on;
    /// chunks that it refuses for a reason that stays are shown without being stored.
    async fn write(&self, batch: Vec<Pending>, stop: &CancellationToken) {
        let (mut wait, mut refusals) = (FIRST_RETRY, 0);
        let positions = loop {
            let chunks = batch.iter().map(|pending| pending.chunk.clone());
            match self.log.append_chunks(chunks.collect()).await {
                Ok(positions) => break positions,
                Err(error) => {
                    tracing::warn!(%error, chunks = batch.len(), "frames could not be written to the log");
                    refusals += u32::from(!error.may_pass());
                }
            }
            if refusals == TRIES {
                for Pending { publisher, chunk } in batch {
                    publisher.logged(&chunk, None);
                    publisher.arrived();
                }
                return;
            }
            if stop
                .run_until_cancelled(tokio::time::sleep(wait))
                .await
                .is_none()
            {
                return;
            }
            wait = LAST_RETRY.min(wait * 2);
        };
        for (Pending { publisher, chunk }, position) in batch.into_iter().zip(positions) {
            match position {
                None => publisher.refused(&chunk),
                Some(position) => {
                    if let Some(before) = self.show(&publisher, &chunk, position) {
                        self.trim(&chunk, before).await;
                    }
                }
            }
            publisher.arrived();
        }
    }

    /// Shows a chunk that is stored. Returns the frame before which the log of the run is to be [trimmed](Self::trim), if
    /// it has too much.
    pub(in crate::stream) fn show(
        &self,
        publisher: &Publisher,
        chunk: &NewChunk,
        position: i64,
    ) -> Option<i64> {
        (self.written)(chunk.thread);
        self.shares.count(&self.log, chunk);
        publisher.logged(chunk, Some(position))
    }

    /// Removes the oldest chunks of a run that has too many.
    pub(in crate::stream) async fn trim(&self, of: &NewChunk, before: i64) {
        tracing::warn!(run = %of.run, "the log of a run is full: its oldest frames are removed");
        if let Err(error) = self.log.trim_run(of.run, before).await {
            tracing::warn!(%error, run = %of.run, "old frames of a run could not be removed");
        }
    }
}
