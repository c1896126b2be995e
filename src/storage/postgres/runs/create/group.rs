//! Group creation: new runs that wait at one time share a transaction, and so its round trip and its wait for
//! the disk.

use std::{collections::HashSet, sync::Arc};

use futures::future;
use tokio_postgres::Row;

use super::{
    created, is_inserted, many, outcome,
    queue::{Creation, Tried, Waiting},
};
use crate::{
    contention::groups::{Ended, Groups},
    fail_point,
    storage::postgres::connection::{Failure, Object, Pool, acquire},
};

/// Groups that take their connections from `pool`, one after the other: what comes meanwhile is the next one.
pub(super) fn begin(pool: &Pool) -> Groups<Waiting> {
    let pool = pool.clone();
    Groups::one_by_one(move |group| {
        let pool = pool.clone();
        Box::pin(async move { write(&pool, group).await })
    })
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
    let rows = match attempt(&client, &creations).await {
        Ok(rows) => rows,
        // One failing member fails them all; alone each gets its own result, after retries of its own.
        Err(failure) => {
            let error = failure.into_error();
            tracing::debug!(%error, runs = group.len(), "a group of new runs is divided");
            for one in group {
                let _ = one.reply.send(Tried::Unknown);
            }
            return Ended::Break(());
        }
    };
    let mut refused = Vec::new();
    for (one, row) in group.into_iter().zip(rows) {
        let tried = match row {
            None => Tried::NotWritten,
            Some(row) => match is_inserted(Some(&row)) {
                Ok(true) => Tried::Done(created(&row)),
                Ok(false) => {
                    refused.push((one, row));
                    continue;
                }
                Err(error) => Tried::Done(Err(error)),
            },
        };
        // A request may have stopped waiting; what was committed stays.
        let _ = one.reply.send(tried);
    }
    // In one round trip, for which those that are written do not wait.
    let reasons = refused.into_iter().map(|one| send_reason(&client, one));
    future::join_all(reasons).await;
    Ended::Continue(())
}

/// Rows of the runs of a group, none for those whose locks were not free.
async fn attempt(client: &Object, group: &[Arc<Creation>]) -> Result<Vec<Option<Row>>, Failure> {
    client.carries(group.iter().map(|one| one.kwargs.bytes.len()).sum());
    // One that is alone goes so too: it waits for nobody's lock, since others come meanwhile.
    let statements = many::Statements::on(client).await?;
    statements.send(client, group).await
}

/// Tells why a run was refused.
async fn send_reason(client: &Object, (one, row): (Waiting, Row)) {
    fail_point!(async "creations::refused");
    let tried = match outcome(client, &one.creation.new, Some(row)).await {
        Ok(reason) => Tried::Done(Ok(reason)),
        Err(Failure::Final(error)) => Tried::Done(Err(error)),
        // It is tried alone when the reason cannot be read.
        Err(Failure::Database(_)) => Tried::NotWritten,
    };
    let _ = one.reply.send(tried);
}
