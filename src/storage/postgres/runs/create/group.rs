//! Group creation: new runs that wait at one time share a transaction, and so its round trip and its wait for
//! the disk.

use std::{collections::HashSet, sync::Arc};

use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    created, many, outcome,
    queue::{Creation, Tried, Waiting},
};
use crate::storage::postgres::{
    columns::column,
    connection::{Failure, Object, Pool, acquire},
};

/// Most runs of one transaction.
const MOST: usize = 32;

/// Starts the task that creates groups, one after the other: what comes meanwhile is the next one. It takes its
/// connections from `pool`.
pub(super) fn start(pool: &Pool) -> mpsc::UnboundedSender<Waiting> {
    let (waiting, receiver) = mpsc::unbounded_channel();
    tokio::spawn(serve(pool.clone(), receiver));
    waiting
}

async fn serve(pool: Pool, mut queue: mpsc::UnboundedReceiver<Waiting>) {
    let mut group = Vec::with_capacity(MOST);
    while queue.recv_many(&mut group, MOST).await > 0 {
        if !write(&pool, std::mem::take(&mut group)).await {
            // The same may happen to those that wait: nobody waits for one group after the other to fail.
            while let Ok(one) = queue.try_recv() {
                let _ = one.reply.send(Tried::NotWritten);
            }
        }
    }
}

/// Creates what waits, in the order of threads: two groups that change some threads in different orders would
/// wait for each other. False when the database failed.
async fn write(pool: &Pool, mut all: Vec<Waiting>) -> bool {
    // Nobody waits for it any more.
    all.retain(|one| !one.reply.is_closed());
    all.sort_by_key(|one| one.creation.new.thread);
    let mut threads = HashSet::new();
    let (group, twice): (Vec<_>, Vec<_>) =
        (all.into_iter()).partition(|one| threads.insert(one.creation.new.thread));
    for one in twice {
        let _ = one.reply.send(Tried::NotWritten);
    }
    let creations: Vec<_> = group.iter().map(|one| one.creation.clone()).collect();
    let Ok(client) = acquire(pool).await else {
        for one in group {
            let _ = one.reply.send(Tried::NotWritten);
        }
        return false;
    };
    match attempt(&client, &creations).await {
        Ok(tried) => {
            for (one, tried) in group.into_iter().zip(tried) {
                // A request may have stopped waiting; what was committed stays.
                let _ = one.reply.send(tried);
            }
            true
        }
        // One failing member fails them all; alone each gets its own result, after retries of its own.
        Err(failure) => {
            let error = failure.into_error();
            tracing::debug!(%error, runs = group.len(), "a group of new runs is divided");
            for one in group {
                let _ = one.reply.send(Tried::Unknown);
            }
            false
        }
    }
}

async fn attempt(client: &Object, group: &[Arc<Creation>]) -> Result<Vec<Tried>, Failure> {
    client.carries(group.iter().map(|one| one.kwargs.len()).sum());
    // One that is alone goes so too: it waits for nobody's lock, since others come meanwhile.
    let statements = many::Statements::on(client).await?;
    let rows = statements.send(client, group).await?;
    let mut tried = Vec::with_capacity(rows.len());
    for (creation, row) in group.iter().zip(rows) {
        let Some(row) = row else {
            tried.push(Tried::NotWritten);
            continue;
        };
        let is_written = column::<Option<Uuid>>(&row, "run_id")?.is_some();
        let done = if is_written {
            Ok(created(&row))
        } else {
            match outcome(client, &creation.new, Some(row)).await {
                Ok(refused) => Ok(Ok(refused)),
                Err(Failure::Final(error)) => Ok(Err(error)),
                Err(failure) => Err(failure),
            }
        };
        // What was refused is tried alone when the reason cannot be read.
        tried.push(done.map_or(Tried::NotWritten, Tried::Done));
    }
    Ok(tried)
}
