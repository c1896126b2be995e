//! A transaction that keeps the writing thread from call to call.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{Writing, commit, execute, roll_back};
use crate::{
    checkpoint::{Error, codec::Format},
    contention::shares::Blocking,
};

/// How long a transaction may be idle while everybody else waits for it.
const IDLE_LIMIT: Duration = Duration::from_secs(5);

/// What waits for its turn in the queue.
pub(crate) struct Opening {
    begun: oneshot::Sender<Result<(), Error>>,
    calls: mpsc::Receiver<Call>,
}

enum Call {
    Work(Box<dyn FnOnce(&Connection) + Send>),
    Commit(oneshot::Sender<Result<(), Error>>),
}

/// The caller's side. Dropping it rolls it back.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    calls: mpsc::Sender<Call>,
    format: Format,
    /// Whatever its caller reads meanwhile must not wait for the caller's other reads.
    _blocking: Blocking,
}

/// An opening to queue, and the transaction once its turn has come.
pub(crate) fn begin(
    format: Format,
) -> (
    Opening,
    impl Future<Output = Result<OpenTransaction, Error>>,
) {
    let (calls, received) = mpsc::channel();
    let (begun, turn) = oneshot::channel();
    let opening = Opening {
        begun,
        calls: received,
    };
    let open = async move {
        turn.await.unwrap_or_else(|_| {
            Err(Error::Unavailable(
                "the thread that writes to the database has ended".into(),
            ))
        })?;
        Ok(OpenTransaction {
            calls,
            format,
            _blocking: Blocking::in_this_name(),
        })
    };
    (opening, open)
}

impl OpenTransaction {
    /// Runs `work` inside the transaction. What a failing one wrote is rolled back.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Writing<'_>) -> Result<T, Error> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let format = self.format;
        let call = Call::Work(Box::new(move |db| {
            let _ = reply.send(alone(db, |db| work(&Writing { db, format })));
        }));
        // When nobody listens any more the call is dropped, and with it the reply.
        let _ = self.calls.send(call);
        result.await.unwrap_or_else(|_| Err(rolled_back()))
    }

    /// Makes everything durable.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        let (reply, result) = oneshot::channel();
        let _ = self.calls.send(Call::Commit(reply));
        result.await.unwrap_or_else(|_| Err(rolled_back()))
    }
}

fn rolled_back() -> Error {
    Error::Unavailable(format!(
        "the transaction was given up: it did nothing for {} s while others waited",
        IDLE_LIMIT.as_secs()
    ))
}

/// Serves one transaction until it is committed, dropped or idle for too long.
pub(crate) fn serve(db: &Connection, opening: Opening) {
    let begun = execute(db, "BEGIN IMMEDIATE").map_err(Error::from);
    let failed = begun.is_err();
    if opening.begun.send(begun).is_err() || failed {
        return roll_back(db);
    }
    loop {
        match opening.calls.recv_timeout(IDLE_LIMIT) {
            Ok(Call::Work(work)) => work(db),
            Ok(Call::Commit(reply)) => {
                let done = check(db).and_then(|()| Ok(commit(db)?));
                // After a failure nothing of it may stay, nor block those who wait.
                roll_back(db);
                let _ = reply.send(done);
                return;
            }
            Err(RecvTimeoutError::Disconnected) => return roll_back(db),
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("a transaction did nothing for too long and was rolled back");
                return roll_back(db);
            }
        }
    }
}

fn alone<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    check(db)?;
    execute(db, "SAVEPOINT call")?;
    let result = work(db);
    if !db.is_autocommit() {
        if result.is_err() {
            execute(db, "ROLLBACK TO call")?;
        }
        execute(db, "RELEASE call")?;
    }
    result
}

/// SQLite ends the whole transaction by itself when, for example, the disk is full: what follows
/// must not be written without it.
fn check(db: &Connection) -> Result<(), Error> {
    if db.is_autocommit() {
        Err(Error::Unavailable(
            "the database ended the transaction after a failure".into(),
        ))
    } else {
        Ok(())
    }
}
