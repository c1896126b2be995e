//! The due time of a cron: its run is created and the cron moves on, in one transaction.

use std::time::Duration;

use futures::FutureExt;

use super::{
    super::{
        Store,
        columns::{Params, Time},
        connection::{Failure, Object, hot::ThreadTurn, prepare},
        threads::rows::line_of,
    },
    create::{LOCK_TREE, SHARE_TREE, within},
};
use crate::{
    checkpoint::Error,
    runs::{Created, Fired, Firing, NewRun, Strategy, transitions::firing::CronChange},
};

/// How long a due time waits for the others of its thread: it is served later, and those behind it now.
const PATIENCE: Duration = Duration::from_secs(1);
const IMPATIENT: &str = "SET LOCAL lock_timeout = '1s'";

/// Whoever finds the row locked is too late: the other process has this due time.
const CLAIM: &str = "
SELECT 1 FROM crons WHERE cron_id = $1 AND next_run_at = $2 AND updated_at = $3 AND enabled FOR UPDATE SKIP LOCKED";

const ADVANCE: &str = "
UPDATE crons SET next_run_at = $2, last_run_at = COALESCE($3, last_run_at) WHERE cron_id = $1";

const DISABLE: &str = "
UPDATE crons SET enabled = false, updated_at = greatest(now(), updated_at + interval '1 microsecond') WHERE cron_id = $1";

const FORGET: &str = "DELETE FROM crons WHERE cron_id = $1";

/// See [`runs::Store::fire`](crate::runs::Store::fire).
pub(in super::super) async fn fire(store: &Store, firing: &Firing) -> Result<Fired, Error> {
    let _turn = match &firing.run {
        Some(run) => {
            let turn = tokio::time::timeout(PATIENCE, turn_of(store, run));
            let crowded = |_| Error::Unavailable("others are changing the thread".to_owned());
            Some(turn.await.map_err(crowded)??)
        }
        None => None,
    };
    let mut transaction = store.turns.unlocked().await?;
    let owned = firing.clone();
    let fired = transaction
        .run(move |client| {
            let firing = owned.clone();
            async move { fire_within(client, &firing).await }.boxed()
        })
        .await?;
    if !matches!(fired, Fired::Lost) {
        transaction.commit().await?;
    }
    if let Fired::Past(Created::Started(run, _) | Created::Queued(run)) = &fired {
        store.hot.remember_fork(run.thread, run.tree);
    }
    Ok(fired)
}

/// The turn of a run, at its tree if that is there.
async fn turn_of(store: &Store, run: &NewRun) -> Result<ThreadTurn, Error> {
    if run.create_thread.is_some() {
        return store.hot.thread(run.thread).await;
    }
    let tree = line_of(store, &store.pools.reads, run.thread).await?;
    store.hot.thread_and_tree(run.thread, tree).await
}

async fn fire_within(client: &Object, firing: &Firing) -> Result<Fired, Failure> {
    client.batch_execute(IMPATIENT).await?;
    // The tree before the cron, as those lock them who delete a thread with its crons.
    if let Some(run) = firing
        .run
        .as_ref()
        .filter(|run| run.create_thread.is_none())
    {
        let lock = match run.strategy {
            Strategy::Rollback => LOCK_TREE,
            _ => SHARE_TREE,
        };
        let lock = prepare(client, lock).await?;
        client.query_opt(&lock, &[&run.thread.0]).await?;
    }
    let claim = prepare(client, CLAIM).await?;
    let (due, changed) = (Time(firing.due), Time(firing.updated_at));
    let row: Params<'_, 3> = [&firing.cron.0, &due, &changed];
    if client.query_opt(&claim, &row).await?.is_none() {
        return Ok(Fired::Lost);
    }
    let Some(run) = &firing.run else {
        change(client, firing, None).await?;
        return Ok(Fired::Skipped);
    };
    client.batch_execute("SAVEPOINT run").await?;
    let created = within(client, run).await?;
    if !matches!(created, Created::Started(..) | Created::Queued(_)) {
        client.batch_execute("ROLLBACK TO SAVEPOINT run").await?;
    }
    change(client, firing, Some(&created)).await?;
    Ok(Fired::Past(created))
}

/// Changes the cron by what became of its run.
async fn change(
    client: &Object,
    firing: &Firing,
    created: Option<&Created>,
) -> Result<(), Failure> {
    let cron = &firing.cron.0;
    match CronChange::after(created) {
        CronChange::Advance { has_run } => {
            let statement = prepare(client, ADVANCE).await?;
            let next = firing.next.map(Time);
            let last = has_run.then_some(Time(firing.now));
            let params: Params<'_, 3> = [cron, &next, &last];
            client.execute(&statement, &params).await?;
        }
        CronChange::Disable => {
            let statement = prepare(client, DISABLE).await?;
            client.execute(&statement, &[cron]).await?;
        }
        CronChange::Delete => {
            let statement = prepare(client, FORGET).await?;
            client.execute(&statement, &[cron]).await?;
        }
    }
    Ok(())
}

statements!(CLAIM, ADVANCE, DISABLE, FORGET);
