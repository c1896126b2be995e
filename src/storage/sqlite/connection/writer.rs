//! The one thread that writes: it takes whatever is queued, runs it in one transaction with a
//! savepoint per job, commits, and only then replies.

use std::{
    future::Future,
    io,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::Connection;
use tokio::{sync::oneshot, time::Instant};

use super::{
    Writing, commit, execute, roll_back,
    transaction::{self, OpenTransaction, Opening},
};
use crate::{
    checkpoint::{Error, codec::Format},
    contention::shares::begin,
};

/// Jobs that may share a transaction.
const GROUP: usize = 128;

/// A transaction that has worked for so long takes no further job: what is small does not wait for many that are large,
/// and what is not written to the file yet stays small.
const LONGEST: Duration = Duration::from_millis(50);

/// A handle on the writing thread.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Option<mpsc::Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    /// In which form values are written.
    pub(crate) format: Format,
}

/// What is queued.
enum Work {
    /// May share a transaction with others.
    Shared(Box<dyn Job>),
    /// A transaction of its own, which stays open from call to call.
    Exclusive(Opening),
}

/// Work that has not replied yet.
trait Job: Send {
    /// Does the work inside a transaction; false when it failed and must leave no trace.
    fn run(&mut self, db: &Connection) -> bool;
    /// Sends the caller the job's own result, or why the transaction it was in is lost.
    fn reply(self: Box<Self>, lost: Option<&str>);
}

struct Task<T, F> {
    work: Option<F>,
    format: Format,
    result: Option<Result<T, Error>>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: FnOnce(&Writing<'_>) -> Result<T, Error> + Send,
{
    fn run(&mut self, db: &Connection) -> bool {
        let format = self.format;
        self.result = self.work.take().map(|work| work(&Writing { db, format }));
        matches!(self.result, Some(Ok(_)))
    }

    fn reply(self: Box<Self>, lost: Option<&str>) {
        let result = match (lost, self.result) {
            // A refusal stands whatever became of the others.
            (_, Some(Err(error))) => Err(error),
            (None, Some(Ok(value))) => Ok(value),
            (lost, _) => Err(Error::Unavailable(
                lost.unwrap_or("the transaction was given up").to_owned(),
            )),
        };
        // The caller may have stopped waiting; what was committed stays.
        let _ = self.reply.send(result);
    }
}

impl Writer {
    pub(crate) fn start(db: Connection) -> io::Result<Self> {
        let (queue, jobs) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || serve(&db, &jobs))?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            format: Format::default(),
        })
    }

    /// Queues work at once, so that calls keep their order; the future waits for its commit.
    pub(crate) fn submit<T, F>(&self, work: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Writing<'_>) -> Result<T, Error> + Send + 'static,
    {
        begin();
        let (reply, result) = oneshot::channel();
        let job = Box::new(Task {
            work: Some(work),
            format: self.format,
            result: None,
            reply,
        });
        if let Some(queue) = &self.queue {
            // Without a thread the job is dropped, and with it the reply.
            let _ = queue.send(Work::Shared(job));
        }
        async move {
            result.await.unwrap_or_else(|_| {
                Err(Error::Unavailable(
                    "the thread that writes to the database has ended".into(),
                ))
            })
        }
    }
}

impl Writer {
    /// Waits for the turn of a transaction that keeps the thread to itself until its end.
    pub(crate) async fn transaction(&self) -> Result<OpenTransaction, Error> {
        let (opening, begun) = transaction::begin(self.format);
        if let Some(queue) = &self.queue {
            // Without a thread the opening is dropped, and with it the reply.
            let _ = queue.send(Work::Exclusive(opening));
        }
        begun.await
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(db: &Connection, jobs: &mpsc::Receiver<Work>) {
    let mut group: Vec<Box<dyn Job>> = Vec::with_capacity(GROUP);
    // A transaction of its own, which begins after the jobs that were queued before it.
    let mut alone = None;
    loop {
        if group.is_empty() {
            if let Some(opening) = alone.take() {
                transaction::serve(db, opening);
            }
            match jobs.recv() {
                Ok(Work::Shared(job)) => group.push(job),
                Ok(Work::Exclusive(opening)) => {
                    alone = Some(opening);
                    continue;
                }
                Err(_) => return,
            }
        }
        while alone.is_none() && group.len() < GROUP {
            match jobs.try_recv() {
                Ok(Work::Shared(job)) => group.push(job),
                Ok(Work::Exclusive(opening)) => alone = Some(opening),
                Err(_) => break,
            }
        }
        let (done, lost) = transact(db, &mut group);
        if let Err(error) = &lost {
            tracing::error!(%error, jobs = done, "a group of writes is lost");
            roll_back(db);
        }
        let lost = lost.err().map(|error| error.to_string());
        for job in group.drain(..done) {
            job.reply(lost.as_deref());
        }
    }
}

/// Runs the first jobs in one transaction, all of them unless that takes long, and says how many. An error means that
/// nothing of any of these was stored.
fn transact(db: &Connection, group: &mut [Box<dyn Job>]) -> (usize, rusqlite::Result<()>) {
    if let Err(error) = execute(db, "BEGIN IMMEDIATE") {
        return (group.len(), Err(error));
    }
    // Another process may have had the file until now.
    let begin = Instant::now();
    if let [only] = group {
        // The transaction is its savepoint.
        let result = if only.run(db) {
            commit(db)
        } else {
            roll_back(db);
            Ok(())
        };
        return (1, result);
    }
    let mut done = 0;
    for job in group {
        done += 1;
        if let Err(error) = run(db, job.as_mut()) {
            return (done, Err(error));
        }
        if begin.elapsed() >= LONGEST {
            break;
        }
    }
    (done, commit(db))
}

/// Runs a job that leaves no trace when it fails.
fn run(db: &Connection, job: &mut dyn Job) -> rusqlite::Result<()> {
    execute(db, "SAVEPOINT job")?;
    if !job.run(db) {
        // SQLite ends the whole transaction by itself when, for example, the disk is full:
        // then there is no savepoint to go back to and this fails.
        execute(db, "ROLLBACK TO job")?;
    }
    execute(db, "RELEASE job")
}

#[cfg(test)]
mod tests;
