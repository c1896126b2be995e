//! Group creation: new runs that wait at one time share a transaction, and so its round trip and its wait for
//! the disk.

use std::{collections::HashSet, sync::Arc};

use uuid::Uuid;

use super::{
    created, many, outcome,
    queue::{Creation, CreationQueue, Tried, Waiting},
};
use crate::{
    contention::groups::{Ended, Groups},
    fail_point,
    storage::postgres::{
        columns::column,
        connection::{Failure, Object, Pool, acquire},
    },
};

/// A queue whose groups take their connections from `pool`, one after the other: what comes meanwhile is the next
/// one.
pub(in super::super::super) fn queue(pool: &Pool) -> CreationQueue {
    let of_groups = pool.clone();
    CreationQueue {
        waiting: Groups::one_by_one(move |group| {
            let pool = of_groups.clone();
            Box::pin(async move { write(&pool, group).await })
        }),
        pool: pool.clone(),
    }
}

/// Creates what waits, in the order of threads: two groups that change some threads in different orders would
/// wait for each other. Those that wait are not to be tried when the database failed.
async fn write(pool: &Pool, mut all: Vec<Waiting>) -> Ended {
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
        return Ended::Break(());
    };
    fail_point!("creations::group");
    match attempt(&client, &creations).await {
        Ok(tried) => {
            for (one, tried) in group.into_iter().zip(tried) {
                // A request may have stopped waiting; what was committed stays.
                let _ = one.reply.send(tried);
            }
            Ended::Continue(())
        }
        // One failing member fails them all; alone each gets its own result, after retries of its own.
        Err(failure) => {
            let error = failure.into_error();
            tracing::debug!(%error, runs = group.len(), "a group of new runs is divided");
            for one in group {
                let _ = one.reply.send(Tried::Unknown);
            }
            Ended::Break(())
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
