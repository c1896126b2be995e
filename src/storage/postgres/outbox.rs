//! The outbox of webhooks. Triggers of the table of runs insert its rows and drop them with their runs.

use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    columns::{Params, all, column, execute},
    connection::{Object, Result, prepare},
};
use crate::{
    checkpoint::Error,
    id::{RunId, TreeId},
    webhooks::outbox::{Delivery, Due, DueByHost, FailedTry, HostPage, Key},
};

const DUE: &str = "
SELECT run_id, tree_id, host, principal FROM outbox WHERE dead_at IS NULL AND next_at <= now() ORDER BY next_at LIMIT $1";

/// Goes from host to host by the index.
const DUE_BY_HOST: &str = "
WITH RECURSIVE h AS (
  (SELECT o.host, 1 AS n FROM outbox o WHERE o.dead_at IS NULL AND o.host > $1 ORDER BY o.host LIMIT 1)
  UNION ALL
  SELECT (SELECT o.host FROM outbox o WHERE o.dead_at IS NULL AND o.host > h.host ORDER BY o.host LIMIT 1), h.n + 1
    FROM h WHERE h.host IS NOT NULL AND h.n < $2::int)
SELECT h.host, x.run_id, x.tree_id, x.principal FROM h LEFT JOIN LATERAL (
  SELECT o.run_id, o.tree_id, o.principal, o.next_at FROM outbox o
   WHERE o.dead_at IS NULL AND o.host = h.host AND o.next_at <= now() ORDER BY o.next_at LIMIT $3) x ON true
 WHERE h.host IS NOT NULL ORDER BY h.host, x.next_at";

/// A delivery that another process takes at this moment is left to it.
const TAKE: &str = "
UPDATE outbox SET attempts = attempts + 1, next_at = now() + make_interval(secs => $2) WHERE run_id = ANY (ARRAY(
  SELECT run_id FROM outbox WHERE run_id = ANY ($1::uuid[]) AND CASE WHEN dead_at IS NULL THEN next_at <= now() END FOR UPDATE SKIP LOCKED))
RETURNING run_id, tree_id, url, attempts";

const DELIVERED: &str = "DELETE FROM outbox WHERE run_id = $1 AND tree_id = $2";

const FAILED: &str = "
UPDATE outbox SET last_error = $4, next_at = CASE WHEN $5::float8 IS NULL THEN next_at ELSE now() + make_interval(secs => $5) END,
       dead_at = CASE WHEN $5 IS NULL THEN now() END
 WHERE run_id = $1 AND tree_id = $2 AND CASE WHEN dead_at IS NULL THEN attempts = $3 END";

const RELEASE: &str = "
UPDATE outbox SET attempts = attempts - 1, next_at = now()
 WHERE run_id = ANY ($1::uuid[]) AND CASE WHEN dead_at IS NULL THEN attempts = ($2::int[])[array_position($1, run_id)] END";

const SWEEP: &str = "
DELETE FROM outbox WHERE run_id = ANY (ARRAY(
  SELECT run_id FROM outbox WHERE dead_at < now() - make_interval(secs => $1) LIMIT $2 FOR UPDATE SKIP LOCKED))";

pub(super) async fn due_deliveries(db: &Object, limit: usize) -> Result<Vec<Due>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    all(db, DUE, &[&limit], due_of).await
}

pub(super) async fn due_by_host(db: &Object, page: &HostPage) -> Result<DueByHost> {
    let hosts = i32::try_from(page.hosts).unwrap_or(i32::MAX);
    let per_host = i64::try_from(page.per_host).unwrap_or(i64::MAX);
    let statement = prepare(db, DUE_BY_HOST).await?;
    let rows = db
        .query(&statement, &[&&*page.after, &hosts, &per_host])
        .await?;
    let mut found = DueByHost::default();
    let (mut last, mut count) = (None, 0);
    for row in &rows {
        let host: &str = column(row, "host")?;
        if last != Some(host) {
            last = Some(host);
            count += 1;
        }
        if column::<Option<Uuid>>(row, "run_id")?.is_some() {
            found.due.push(due_of(row)?);
        }
    }
    found.last = last.filter(|_| count >= page.hosts).map(Into::into);
    Ok(found)
}

pub(super) async fn take_deliveries(
    db: &Object,
    keys: &[Key],
    lease: Duration,
) -> Result<Vec<Delivery>> {
    let runs: Vec<Uuid> = keys.iter().map(|key| key.run.0).collect();
    all(db, TAKE, &[&runs, &lease.as_secs_f64()], |row| {
        Ok(Delivery {
            key: key_of(row)?,
            url: column::<&str>(row, "url")?.into(),
            attempt: column(row, "attempts")?,
        })
    })
    .await
}

pub(super) async fn delivered(db: &Object, key: Key) -> Result<()> {
    execute(db, DELIVERED, &[&key.run.0, &key.tree.0]).await?;
    Ok(())
}

pub(super) async fn delivery_failed(db: &Object, failed: &FailedTry) -> Result<()> {
    let pause = failed.pause.map(|pause| pause.as_secs_f64());
    let (run, tree) = (failed.key.run.0, failed.key.tree.0);
    let error = failed.error.replace('\0', " ");
    let params: Params<'_, 5> = [&run, &tree, &failed.attempt, &error, &pause];
    execute(db, FAILED, &params).await?;
    Ok(())
}

pub(super) async fn release_deliveries(db: &Object, taken: &[(Key, i32)]) -> Result<()> {
    let (runs, attempts): (Vec<Uuid>, Vec<i32>) = taken
        .iter()
        .map(|(key, attempt)| (key.run.0, *attempt))
        .unzip();
    execute(db, RELEASE, &[&runs, &attempts]).await?;
    Ok(())
}

pub(super) async fn sweep_deliveries(db: &Object, age: Duration, limit: usize) -> Result<u64> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    execute(db, SWEEP, &[&age.as_secs_f64(), &limit]).await
}

fn key_of(row: &Row) -> Result<Key, Error> {
    Ok(Key {
        tree: TreeId(column(row, "tree_id")?),
        run: RunId(column(row, "run_id")?),
    })
}

fn due_of(row: &Row) -> Result<Due, Error> {
    Ok(Due {
        key: key_of(row)?,
        host: column::<&str>(row, "host")?.into(),
        principal: column::<&str>(row, "principal")?.into(),
    })
}

statements!(DUE, DUE_BY_HOST, TAKE, DELIVERED, FAILED, RELEASE, SWEEP);
