//! Several new runs, each with a thread of its own: inserted in one transaction.

use std::sync::atomic::{AtomicU32, Ordering};

use futures::future;

use super::{created, is_inserted, outcome, pipeline::Statements, written_before};
use crate::{
    checkpoint::Error,
    id::BranchId,
    runs::{Created, CreatedBatch, NewRun, request::codec as request_codec},
    storage::postgres::{
        Store,
        connection::{self, Failure, Object},
    },
};

/// Runs whose statements are on their way at once: nobody else knows of their threads, so that none
/// waits for another.
const AT_ONCE: usize = 25;

/// See [`runs::Store::create_runs`](crate::runs::Store::create_runs).
pub(in super::super::super) async fn create_runs(
    store: &Store,
    new: &[NewRun],
) -> Result<CreatedBatch, Error> {
    let encoded = |new: &NewRun| request_codec::encode(&new.kwargs, new.columns(), store.format);
    let kwargs: Vec<_> = new.iter().map(encoded).collect();
    let branches: Vec<_> = new.iter().map(|_| BranchId::mint()).collect();
    let attempts = AtomicU32::new(0);
    let (kwargs, branches, attempts) = (&kwargs, &branches, &attempts);
    connection::retry(&store.pools.critical, |mut client| async move {
        client.carries(kwargs.iter().map(|one| one.bytes.len()).sum());
        let is_retry = attempts.fetch_add(1, Ordering::Relaxed) > 0;
        if is_retry && let Some(written) = all_written_before(&client, new).await? {
            return Ok(written);
        }
        let Some(first) = new.first() else {
            return Ok(CreatedBatch::All(vec![]));
        };
        // One like the other: stateless, of one client.
        let statements = Statements::on(&client, first).await?;
        let transaction = client.transaction().await?;
        let mut rows = Vec::with_capacity(new.len());
        let all: Vec<_> = new.iter().zip(kwargs).zip(branches).collect();
        for some in all.chunks(AT_ONCE) {
            let inserts = some.iter().map(|((new, kwargs), branch)| {
                statements.send(transaction.client(), new, kwargs, **branch)
            });
            rows.extend(future::try_join_all(inserts).await?);
        }
        let mut refused = None;
        for (at, row) in rows.iter().enumerate() {
            if !is_inserted(row.as_ref())? {
                refused = Some(at);
                break;
            }
        }
        if let Some((at, run)) = refused.and_then(|at| Some((at, new.get(at)?))) {
            transaction.rollback().await?;
            // An earlier attempt may have been written while this one waited for it.
            if is_retry && let Some(written) = all_written_before(&client, new).await? {
                return Ok(written);
            }
            let reason = outcome(&client, run, rows.swap_remove(at)).await?;
            return Ok(CreatedBatch::None(at, reason));
        }
        transaction.commit().await?;
        let all = rows.iter().flatten().map(created);
        Ok(CreatedBatch::All(all.collect::<Result<_, _>>()?))
    })
    .await
}

/// The runs as an earlier attempt has written them whose response was lost, if it has: then all are
/// there.
async fn all_written_before(
    client: &Object,
    new: &[NewRun],
) -> Result<Option<CreatedBatch>, Failure> {
    let mut all = Vec::with_capacity(new.len());
    for (at, run) in new.iter().enumerate() {
        match written_before(client, run).await? {
            // It is another run that has this id.
            Some(Created::Exists) => return Ok(Some(CreatedBatch::None(at, Created::Exists))),
            Some(created) => all.push(created),
            None => return Ok(None),
        }
    }
    Ok(Some(CreatedBatch::All(all)))
}
