//! Finishing runs: writes the final row of a run that ended by itself.

use std::sync::atomic::Ordering;

use super::super::{
    checkpoints::commit::{self, Kind, end},
    connection::{Failure, Object, prepare},
    threads::delete,
};
use crate::{
    checkpoint::{Commit, Error},
    fail_point,
    id::RunId,
    runs::Finish,
    storage::postgres::columns::Params,
};

/// Has the result of a run outlive it.
const LEAVE: &str = "
INSERT INTO ended_runs (run_id, tree_id, thread_id, principal, error, result)
SELECT r.run_id, r.tree_id, r.thread_id, r.principal, r.error, $3 FROM runs r WHERE r.tree_id = $1 AND r.run_id = $2
ON CONFLICT DO NOTHING";

const AWAIT: &str = "
UPDATE runs SET awaited = true WHERE run_id = $1 AND temporary AND NOT awaited AND status IN ('pending', 'running')";

/// A row as long as the run is there, whoever has ended it.
const EXISTS: &str = "SELECT 1 FROM runs WHERE tree_id = $1 AND run_id = $2";

/// See [`runs::Store::finish_with`](crate::runs::Store::finish_with), for runs whose thread goes with them;
/// the others end in the group of their last supersteps. A commit whose reply was lost is known by the missing run.
pub(in super::super) async fn finish(
    db: &mut Object,
    commits: &[Commit],
    finish: &Finish,
) -> Result<(), Failure> {
    let has_ended = delete_thread(db, commits, finish).await?
        || end::was_written(db, finish).await?
        || finish.committing.load(Ordering::Relaxed) && is_gone(db, finish).await?;
    if has_ended {
        Ok(())
    } else {
        Err(Error::Fenced.into())
    }
}

async fn is_gone(db: &Object, finish: &Finish) -> Result<bool, Failure> {
    let statement = prepare(db, EXISTS).await?;
    let run: Params<'_, 2> = [&finish.slot.tree.0, &finish.run.0];
    Ok(db.query_opt(&statement, &run).await?.is_none())
}

/// False when the fence refused it.
async fn delete_thread(
    db: &mut Object,
    commits: &[Commit],
    finish: &Finish,
) -> Result<bool, Failure> {
    let statement = prepare(db, end::FINISH).await?;
    let mut statements = Vec::with_capacity(commits.len());
    for commit in commits {
        let kind = Kind::of(commit);
        statements.push((kind, prepare(db, kind.text()).await?));
    }
    db.carries(commits.iter().map(Commit::bytes).sum());
    let transaction = db.transaction().await?;
    delete::lock_tree(&transaction, finish.slot.tree.0).await?;
    for (commit, (kind, statement)) in commits.iter().zip(&statements) {
        let depth = commit::send(transaction.client(), statement, *kind, commit).await?;
        if depth.is_none() {
            return Ok(false);
        }
    }
    let ends = std::iter::once((finish, None));
    let ended = end::send(transaction.client(), &statement, ends).await?;
    let Some(ended) = ended.first() else {
        return Ok(false);
    };
    let slot = &finish.slot;
    let left = finish.left.as_ref();
    if let Some(left) = left.filter(|left| ended.is_awaited || left.is_foreign) {
        let leave = transaction.prepare_cached(LEAVE).await?;
        let result = left.body.to_json();
        transaction
            .execute(&leave, &[&slot.tree.0, &finish.run.0, &result])
            .await?;
    }
    delete::purge(&transaction, slot.tree.0, slot.thread.0).await?;
    finish.committing.store(true, Ordering::Relaxed);
    transaction.commit().await?;
    fail_point!(
        "runs::gone",
        Error::Unavailable("the reply is lost".into()).into()
    );
    Ok(true)
}

/// See [`runs::Store::await_end`](crate::runs::Store::await_end).
pub(in super::super) async fn await_end(db: &Object, run: RunId) -> Result<bool, Failure> {
    let statement = prepare(db, AWAIT).await?;
    Ok(db.execute(&statement, &[&run.0]).await? > 0)
}

statements!(LEAVE, AWAIT, EXISTS);
