//! A few threads with a connection each that read what is committed.

use std::{
    io,
    sync::{Arc, Weak, mpsc},
    thread::{self, JoinHandle},
};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::checkpoint::Error;

/// How many reads go on at once.
pub(crate) const COUNT: usize = 3;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// A handle on the reading threads.
#[derive(Debug)]
pub(crate) struct Readers {
    queue: Option<Arc<mpsc::Sender<Job>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(connections: Vec<Connection>) -> io::Result<Self> {
        let (queue, jobs) = mpsc::channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        let threads = connections
            .into_iter()
            .map(|db| {
                let jobs = Arc::clone(&jobs);
                thread::Builder::new()
                    .name("sqlite-reader".into())
                    .spawn(move || serve(&db, &jobs))
            })
            .collect::<io::Result<_>>()?;
        Ok(Self {
            queue: Some(Arc::new(queue)),
            threads,
        })
    }

    /// Runs `work` in one read transaction: all its statements read one snapshot.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        self.handle().run(work).await
    }

    /// To read with as long as the threads are there; it does not keep them.
    pub(crate) fn handle(&self) -> Handle {
        Handle(self.queue.as_ref().map(Arc::downgrade).unwrap_or_default())
    }
}

/// Reads through the threads of [`Readers`].
#[derive(Debug)]
pub(crate) struct Handle(Weak<mpsc::Sender<Job>>);

impl Handle {
    /// See [`Readers::read`].
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let job: Job = Box::new(move |db| {
            let _ = reply.send(in_snapshot(db, work));
        });
        if let Some(queue) = self.0.upgrade() {
            // Without a thread the job is dropped, and with it the reply.
            let _ = queue.send(job);
        } else {
            drop(job);
        }
        result.await.unwrap_or_else(|_| {
            Err(Error::Unavailable(
                "the threads that read the database have ended".into(),
            ))
        })
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(db: &Connection, jobs: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        // Whoever holds the lock waits for the queue, the others for the lock.
        let job = jobs.lock().recv();
        match job {
            Ok(job) => job(db),
            Err(_) => return,
        }
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
