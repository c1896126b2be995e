//! A few threads with a connection each that read what is committed.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::{sync::oneshot, time::Instant};

use super::idle::{Queue, Worker};
use crate::{
    checkpoint::Error,
    contention::shares::{Percent, Shares},
};

/// How many reads go on at once. What a read decodes of its first 768 KiB is in no budget, so that each more of them
/// takes memory.
pub(crate) const COUNT: usize = 4;

/// How long a principal may wait for its share of the threads, unless a setting says otherwise.
const WAIT: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// Milliseconds that one read may take, unless a setting says otherwise.
const LIMIT: u64 = 5000;

/// Steps of SQLite's machine between two looks at the clock: less than a millisecond.
const STEPS: i32 = 10_000;

/// A handle on the reading threads.
#[derive(Debug)]
pub(crate) struct Readers {
    handle: Handle,
    threads: Vec<JoinHandle<()>>,
    /// Milliseconds that one read may take.
    limit: Arc<AtomicU64>,
}

impl Readers {
    pub(crate) fn start(connections: Vec<Connection>) -> io::Result<Self> {
        let queue = Queue::new();
        let limit = Arc::new(AtomicU64::new(LIMIT));
        let threads = connections
            .into_iter()
            .map(|mut db| {
                let (jobs, limit) = (Worker::of(&queue), Arc::clone(&limit));
                thread::Builder::new()
                    .name("sqlite-reader".into())
                    .spawn(move || serve(&mut db, &jobs, &limit))
            })
            .collect::<io::Result<Vec<_>>>();
        if threads.is_err() {
            // Those that were started would wait for ever.
            queue.close();
        }
        let threads = threads?;
        Ok(Self {
            handle: Handle {
                queue,
                shares: Shares::of_each(Percent::default().of(threads.len())),
                wait: WAIT,
            },
            threads,
            limit,
        })
    }

    /// Sets how long one read may take; it fails then.
    pub(crate) fn set_limit(&self, limit: Duration) {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Sets how much of the threads one principal may have.
    pub(crate) fn set_share(&mut self, share: Percent) {
        self.handle.shares = Shares::of_each(share.of(self.threads.len()));
    }

    /// Sets how long a principal may wait for its share.
    pub(crate) fn set_wait(&mut self, wait: Duration) {
        self.handle.wait = wait;
    }

    /// See [`Handle::run`].
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        self.handle.run(work).await
    }

    /// To read with as long as the threads are there; it does not keep them.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

/// Reads through the threads of [`Readers`].
#[derive(Clone)]
pub(crate) struct Handle {
    queue: Arc<Queue<Job>>,
    shares: Shares,
    /// How long a principal may wait for its share.
    wait: Duration,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    /// Runs `work` in one read transaction: all its statements read one snapshot.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        // Whoever has its share waits outside the queue, in which others are.
        let share = self.shares.wait(self.wait).await?;
        let (reply, result) = oneshot::channel();
        let job: Job = Box::new(move |db| {
            if reply.is_closed() {
                // Nobody waits for it any more.
                return;
            }
            let result = in_snapshot(db, work);
            // The thread was busy until now, also where the caller has stopped waiting. Before the reply, since the
            // caller may have more to read.
            drop(share);
            let _ = reply.send(result);
        });
        // Without a thread the job is dropped, and with it the reply.
        self.queue.push(job);
        result.await.unwrap_or_else(|_| {
            Err(Error::Unavailable(
                "the threads that read the database have ended".into(),
            ))
        })
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.handle.queue.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(db: &mut Connection, jobs: &Worker<Job>, limit: &AtomicU64) {
    let deadline = Arc::new(Mutex::new(None));
    let now = Arc::clone(&deadline);
    let is_over = move || now.lock().is_some_and(|at: Instant| at < Instant::now());
    if let Err(error) = db.progress_handler(STEPS, Some(is_over)) {
        tracing::warn!(%error, "reads have no time limit");
    }
    while let Some(job) = jobs.next() {
        let limit = Duration::from_millis(limit.load(Ordering::Relaxed));
        *deadline.lock() = Instant::now().checked_add(limit);
        job(&*db);
        *deadline.lock() = None;
    }
}

fn in_snapshot<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    db.prepare_cached("BEGIN")?.execute([])?;
    let result = work(db);
    if !db.is_autocommit() {
        db.prepare_cached("ROLLBACK")?.execute([])?;
    }
    result
}
