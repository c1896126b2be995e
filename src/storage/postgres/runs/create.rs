//! New runs: inserted, and started when their slot is free, in one transaction.

pub(super) mod batch;
mod group;
mod many;
mod pipeline;
pub(in super::super) mod queue;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use self::{
    pipeline::pipeline,
    queue::{Creation, Tried, shares_tree},
};
use super::{
    super::{
        Store,
        columns::{Json, JsonText, column, name, word},
        connection::{self, Failure, Object, prepare},
        threads::{
            create::{CREATE as CREATE_THREAD, make_room, send_create},
            rows::{line_of, slot_of},
        },
    },
    cancel::{END_OTHERS, is_unchanged, may_create},
    rows::run_of,
    undo::{RolledBack, roll_back},
};
use crate::{
    checkpoint::Error,
    id::{BranchId, TreeId},
    runs::{
        Created, NewRun, Strategy,
        request::{
            codec::{self as request_codec, Encoded},
            identity,
        },
    },
    tree::event::codes::event_code,
};

/// Makes those who create runs in one slot take turns. The statements after it see what the
/// winner wrote, which a single statement would not.
pub(in super::super) const LOCK: &str = "
SELECT b.branch_id FROM threads t JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = COALESCE($2::uuid, t.active_branch_id)
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL FOR NO KEY UPDATE OF b";

/// Keeps deletions out until the run's row keeps the checkpoint it starts from, and changes of rights
/// until the run is there.
pub(super) const SHARE_TREE: &str = "
SELECT 1 FROM trees WHERE tree_id = (SELECT tree_id FROM threads WHERE thread_id = $1) FOR SHARE";

pub(super) const LOCK_TREE: &str = "
SELECT 1 FROM trees WHERE tree_id = (SELECT tree_id FROM threads WHERE thread_id = $1) FOR UPDATE";

/// One row when the thread exists; without a run's columns when none was inserted. The log records
/// its creation and start, unless the thread goes with the run.
///
/// A run that starts on the active branch moves the time of that branch, and not the thread's, for which lists
/// have indexes: they show a thread as changed when either of both was, and look at the branches of threads
/// with running runs. The end of the run moves the thread's.
const CREATE: &str = concat!(
    "
WITH b AS (
  SELECT b.tree_id, b.thread_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth, t.metadata - $16::text[] AS inherited, q.queued, b.branch_id = t.active_branch_id AS is_active,
         q.queued > 0 OR EXISTS (SELECT 1 FROM runs r WHERE r.branch_id = b.branch_id AND r.thread_id = t.thread_id AND r.tree_id = t.tree_id
                    AND r.status = 'running') AS taken,
         (SELECT CASE WHEN o.owner = $17::text THEN 'owner' ELSE (SELECT m.level FROM tree_members m WHERE m.tree_id = o.tree_id AND m.principal = $17) END
            FROM trees o WHERE o.tree_id = t.tree_id AND $17 IS NOT NULL) AS level,
         $7::jsonb IS NOT NULL AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.tree_id = t.tree_id AND c.checkpoint_ns = ''
                    AND c.checkpoint_id = ($7::jsonb->>'checkpoint_id')::uuid) AS gone,
         COALESCE(t.last_event_number <> $21::bigint, false) AS changed,
         CASE WHEN $22 THEN NULLIF(NULLIF(t.config #> '{configurable,user_id}', to_jsonb(''::text)), 'null') END AS thread_user
    FROM threads t JOIN branches b ON b.tree_id = t.tree_id AND b.thread_id = t.thread_id
     AND b.branch_id = COALESCE($15::uuid, t.active_branch_id)
    CROSS JOIN LATERAL (SELECT count(*) AS queued FROM (
      (SELECT 1 FROM runs r WHERE r.thread_id = t.thread_id AND r.branch_id = b.branch_id AND r.tree_id = t.tree_id AND r.status = 'pending' LIMIT $19)
      UNION ALL
      (SELECT 1 FROM runs r WHERE r.thread_id = t.thread_id AND r.branch_id IS NULL AND r.tree_id = t.tree_id AND r.status = 'pending'
          AND b.branch_id = t.active_branch_id LIMIT $19)) w) q
   WHERE t.thread_id = $2 AND t.deleted_at IS NULL),
n AS (SELECT b.*, NOT b.taken AND $11::uuid IS NOT NULL AND $10::float8 <= 0 AS starts FROM b WHERE NOT (b.taken AND $12) AND NOT b.gone AND NOT b.changed AND b.queued < $19
       AND ($17 IS NULL OR b.level = ANY ($18::text[]))),
r AS (
  INSERT INTO runs (tree_id, run_id, thread_id, branch_id, assistant_id, status, strategy, temporary, metadata, address, type, kwargs,
         run_at, base_checkpoint_id, epoch, worker_id, attempt, principal, behind, webhook, started_at, thread_user)
  SELECT n.tree_id, $1, n.thread_id, CASE WHEN n.starts THEN n.branch_id ELSE $15::uuid END, $3, CASE WHEN n.starts THEN 'running' ELSE 'pending' END,
         $4, $5, ",
    stored_metadata!("$6::jsonb"),
    ", $7, $8, $9, now() + make_interval(secs => $10),
         CASE WHEN n.starts THEN n.head_checkpoint_id END, CASE WHEN n.starts THEN n.writer_epoch + 1 END,
         CASE WHEN n.starts THEN $11::uuid END, CASE WHEN n.starts THEN 1 ELSE 0 END, $17, n.taken,
         $20, CASE WHEN n.starts THEN now() END, n.thread_user
    FROM n ON CONFLICT (run_id) DO NOTHING RETURNING *),
f AS (
  UPDATE branches x SET writer_epoch = x.writer_epoch + 1, updated_at = CASE WHEN n.is_active THEN clock_timestamp() ELSE x.updated_at END
    FROM r CROSS JOIN n WHERE r.status = 'running' AND x.tree_id = r.tree_id AND x.branch_id = r.branch_id),
t AS (
  UPDATE threads x SET last_event_number = x.last_event_number + CASE WHEN r.temporary THEN 0 WHEN r.status = 'running' THEN 2 ELSE 1 END,
         metadata = CASE WHEN x.metadata @> $13 THEN x.metadata ELSE x.metadata || $13 END,
         config = CASE WHEN x.config @> $14 THEN x.config
                       ELSE x.config || $14 || CASE WHEN x.config->'configurable' <> '{}' AND $14 ? 'configurable'
                                 THEN jsonb_build_object('configurable', ($14->'configurable') || (x.config->'configurable')) ELSE '{}' END END,
         updated_at = CASE WHEN r.status = 'running' AND n.is_active THEN x.updated_at ELSE clock_timestamp() END
    FROM r CROSS JOIN n WHERE x.thread_id = r.thread_id AND NOT (r.temporary AND x.metadata @> $13 AND x.config @> $14) RETURNING x.last_event_number AS n),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, kind, branch_id, run_id)
  SELECT r.tree_id, r.thread_id, t.n, k.kind, r.branch_id, r.run_id
    FROM r CROSS JOIN t JOIN (VALUES (true, ",
    event_code!(ENQUEUED_AND_STARTED),
    "), (false, ",
    event_code!(RUN_ENQUEUED),
    ")) k(starts, kind) ON k.starts = (r.status = 'running')
   WHERE NOT r.temporary)
SELECT b.branch_id AS active_branch_id, b.gone, b.changed, b.level, b.queued >= $19 AS is_full, b.head_checkpoint_id, b.head_depth, r.epoch AS writer_epoch,",
    run_columns!(),
    "FROM b LEFT JOIN r ON true"
);

/// The run with this id, wherever it is: after a lost reply it is our own.
const EXISTING: &str = concat!(
    "SELECT b.branch_id AS active_branch_id, b.head_checkpoint_id, b.head_depth, r.epoch AS writer_epoch,
       b.writer_epoch AS present_epoch, r.worker_id,",
    run_columns!(),
    "FROM runs r LEFT JOIN threads t ON t.thread_id = r.thread_id
       LEFT JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = COALESCE(r.branch_id, t.active_branch_id)
      WHERE r.run_id = $1"
);

const DELETE_RUN: &str = "DELETE FROM runs WHERE tree_id = $1 AND run_id = $2";

/// See [`runs::Store::create_run`](crate::runs::Store::create_run).
pub(in super::super) async fn create_run(store: &Store, new: NewRun) -> Result<Created, Error> {
    let kwargs = request_codec::encode(&new.kwargs, new.columns(), store.format);
    let branch = BranchId::mint();
    let creation = Arc::new(Creation {
        new,
        kwargs,
        branch,
    });
    let created = create_once(store, &creation).await?;
    if let Created::Started(run, _) | Created::Queued(run) = &created {
        store.hot.remember_fork(run.thread, run.tree);
    }
    // The id may be that of a tombstone.
    let new = &creation.new;
    if matches!(created, Created::NoThread)
        && new.create_thread.is_some()
        && make_room(store, new.thread).await?
    {
        return create_once(store, &creation).await;
    }
    Ok(created)
}

async fn create_once(store: &Store, creation: &Arc<Creation>) -> Result<Created, Error> {
    let new = &creation.new;
    let turn = store.hot.thread(new.thread).await?;
    let critical = &store.pools.critical;
    let may_be_written = match store.creations.create(creation, group::begin).await? {
        Tried::Done(result) => return result,
        Tried::NotWritten => false,
        Tried::Unknown => true,
    };
    // What waits for the row of the tree from here on has a connection in hand.
    let _turn = if new.strategy == Strategy::Rollback || shares_tree(new) {
        let tree = match &new.create_thread {
            Some(_) => store.hot.known_tree(new.thread),
            None => Some(line_of(store, critical, new.thread).await?),
        };
        let tree = tree.unwrap_or(TreeId(new.thread.0));
        store.hot.with_tree(turn, tree).await?
    } else {
        turn
    };
    let attempts = AtomicU32::new(may_be_written.into());
    let (creation, attempts) = (&**creation, &attempts);
    connection::retry(critical, |mut client| async move {
        let client = &mut client;
        let new = &creation.new;
        client.carries(creation.kwargs.bytes.len());
        let is_retry = attempts.fetch_add(1, Ordering::Relaxed) > 0;
        if is_retry && let Some(created) = written_before(client, new).await? {
            return Ok(created);
        }
        let row = match new.strategy {
            Strategy::Reject | Strategy::Enqueue => pipeline(client, creation).await?,
            Strategy::Interrupt | Strategy::Rollback => after_others(client, creation).await?,
        };
        // An earlier attempt may have been written while this one waited for it.
        if is_retry
            && !is_inserted(row.as_ref())?
            && let Some(created) = written_before(client, new).await?
        {
            return Ok(created);
        }
        outcome(client, new, row).await
    })
    .await
}

fn is_inserted(row: Option<&Row>) -> Result<bool, Error> {
    let run = row.map(|row| column::<Option<Uuid>>(row, "run_id"));
    Ok(run.transpose()?.flatten().is_some())
}

fn created(row: &Row) -> Result<Created, Error> {
    let run = Box::new(run_of(row)?);
    Ok(if column::<&str>(row, "status")? == "running" {
        Created::Started(run, slot_of(row)?)
    } else {
        Created::Queued(run)
    })
}

/// The run as an earlier attempt has written it whose response was lost, if it has.
async fn written_before(client: &Object, new: &NewRun) -> Result<Option<Created>, Failure> {
    let statement = prepare(client, EXISTING).await?;
    let Some(row) = client.query_opt(&statement, &[&new.id.0]).await? else {
        return Ok(None);
    };
    let run = run_of(&row)?;
    let mut request = new.kwargs.clone();
    let own = column::<JsonText>(&row, "metadata")?.value()?;
    request_codec::metadata(&own, &mut request);
    if let Some(user) = column::<Option<JsonText>>(&row, "thread_user")? {
        identity::inherit_user(&mut request, user.value()?);
    }
    let is_this_one = run.thread == new.thread && run.kwargs == request;
    let worker: Option<Uuid> = column(&row, "worker_id")?;
    Ok(Some(match worker {
        _ if !is_this_one => Created::Exists,
        None => Created::Queued(Box::new(run)),
        // Claimed when it was written, not from the queue since then, and the branch's epoch is still the run's.
        Some(worker)
            if new.claim.is_some_and(|own| own.0 == worker)
                && run.created_at == run.updated_at
                && column::<Option<i64>>(&row, "present_epoch")?
                    == column::<Option<i64>>(&row, "writer_epoch")? =>
        {
            Created::Started(Box::new(run), slot_of(&row)?)
        }
        // Another worker took it from the queue.
        Some(_) => Created::Queued(Box::new(run)),
    }))
}

/// The statements of a run that clears its slot first.
struct Prepared {
    lock: Statement,
    create: Statement,
    end_others: Statement,
    create_thread: Statement,
}

impl Prepared {
    async fn on(client: &Object) -> Result<Self, Failure> {
        Ok(Self {
            lock: prepare(client, LOCK).await?,
            create: prepare(client, CREATE).await?,
            end_others: prepare(client, END_OTHERS).await?,
            create_thread: prepare(client, CREATE_THREAD).await?,
        })
    }
}

/// Clears the slot, then inserts and commits.
async fn after_others(client: &mut Object, creation: &Creation) -> Result<Option<Row>, Failure> {
    let Creation {
        new,
        kwargs,
        branch,
    } = creation;
    let prepared = Prepared::on(client).await?;
    let transaction = client.transaction().await?;
    let row = clear_and_insert(transaction.client(), &prepared, new, kwargs, *branch).await?;
    // A run that exists already must not have ended others.
    if is_inserted(row.as_ref())? {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(row)
}

/// In the caller's transaction, which the caller rolls back unless the run was inserted.
async fn clear_and_insert(
    connection: &Client,
    prepared: &Prepared,
    new: &NewRun,
    kwargs: &Encoded,
    branch: BranchId,
) -> Result<Option<Row>, Failure> {
    if let Some(thread) = &new.create_thread {
        let create = &prepared.create_thread;
        send_create(
            connection,
            create,
            thread,
            branch,
            Some((new.id.0, new.temporary)),
        )
        .await?;
    }
    // The rows of a rollback pin nothing new while they go, and none of theirs may be pinned.
    if new.strategy == Strategy::Rollback {
        connection.query(LOCK_TREE, &[&new.thread.0]).await?;
    } else if shares_tree(new) {
        connection.query(SHARE_TREE, &[&new.thread.0]).await?;
    }
    if ends_others(new) && !may_create(connection, new).await? {
        // It ends nobody's runs; what inserts none says why.
        return Ok(insert(connection, &prepared.create, new, kwargs, None).await?);
    }
    let keep = new.strategy != Strategy::Rollback;
    // Rolling a run back may make another branch active, and so mean another slot.
    let pinned = new.branch.map(|branch| branch.0);
    let mut unchanged_since = new.unchanged_since;
    loop {
        connection
            .query_opt(&prepared.lock, &[&new.thread.0, &pinned])
            .await?;
        if !ends_others(new) {
            break;
        }
        // The ends of the others will change the thread.
        if let Some(number) = unchanged_since.take()
            && !is_unchanged(connection, new.thread, number).await?
        {
            return Ok(insert(connection, &prepared.create, new, kwargs, Some(number)).await?);
        }
        let ended = connection
            .query(&prepared.end_others, &[&new.thread.0, &pinned, &keep])
            .await?;
        if new.strategy != Strategy::Rollback || ended.is_empty() {
            break;
        }
        for row in &ended {
            let (tree, run): (Uuid, Uuid) = (column(row, "tree_id")?, column(row, "run_id")?);
            if column::<&str>(row, "status")? == "running" {
                roll_back(connection, run, &RolledBack::of(row, new.thread)?).await?;
            }
            connection.execute(DELETE_RUN, &[&tree, &run]).await?;
        }
    }
    Ok(insert(connection, &prepared.create, new, kwargs, unchanged_since).await?)
}

fn ends_others(new: &NewRun) -> bool {
    matches!(new.strategy, Strategy::Interrupt | Strategy::Rollback)
}

/// Creates a run in the caller's transaction, which the caller rolls back to where it was when the run is
/// neither started nor queued.
pub(in super::super) async fn within(client: &Object, new: &NewRun) -> Result<Created, Failure> {
    let kwargs = request_codec::encode(&new.kwargs, new.columns(), client.format);
    let prepared = Prepared::on(client).await?;
    let row = clear_and_insert(client, &prepared, new, &kwargs, BranchId::mint()).await?;
    outcome(client, new, row).await
}

async fn outcome(client: &Object, new: &NewRun, row: Option<Row>) -> Result<Created, Failure> {
    if let Some(row) = &row
        && is_inserted(Some(row))?
    {
        return Ok(created(row)?);
    }
    let existing = prepare(client, EXISTING).await?;
    let Some(row) = row else {
        // A run that is there already gets no thread, and so no row that tells.
        let exists = new.create_thread.is_some()
            && (client.query_opt(&existing, &[&new.id.0]).await?).is_some();
        return Ok(if exists {
            Created::Exists
        } else {
            Created::NoThread
        });
    };
    if new.access.principal().is_some() {
        let level = column::<Option<&str>>(&row, "level")?;
        let level = level.map(word).transpose()?;
        if let Err(denied) = new.access.check(new.thread, level) {
            return Ok(Created::Denied(denied));
        }
    }
    let exists = client.query_opt(&existing, &[&new.id.0]).await?;
    match (exists, new.address) {
        (Some(_), _) => Ok(Created::Exists),
        _ if column(&row, "changed")? => Ok(Created::Changed),
        (None, Some(id)) if column(&row, "gone")? => Err(Error::Pruned(id).into()),
        _ if new.strategy != Strategy::Reject && column(&row, "is_full")? => {
            Ok(Created::QueueFull(new.max_queued))
        }
        _ => Ok(Created::Busy),
    }
}

async fn insert(
    client: &Client,
    statement: &Statement,
    new: &NewRun,
    kwargs: &Encoded,
    unchanged_since: Option<i64>,
) -> Result<Option<Row>, tokio_postgres::Error> {
    let address = new
        .address
        .map(|id| Json::new(format!(r#"{{"checkpoint_id":"{id}"}}"#)));
    let worker = new.claim.map(|worker| worker.0);
    let reject = new.strategy == Strategy::Reject;
    let metadata = request_codec::own_metadata(&new.metadata, &new.kwargs);
    let metadata = request_codec::stored_metadata(metadata, &new.kwargs, kwargs.bytes.len());
    let metadata = Json::of_value(&metadata);
    let own = new.own_metadata.as_ref();
    let own: Option<Vec<_>> = own.map(|keys| keys.iter().map(|key| name(key)).collect());
    let principal = new.access.principal().map(|principal| &**principal);
    let max_queued = i64::try_from(new.max_queued).unwrap_or(i64::MAX);
    let levels = new.access.needed().and_above();
    let thread_metadata = Json::of_map(&new.thread_metadata);
    let thread_config = Json::of_map(&new.thread_config);
    client
        .query_opt(
            statement,
            &[
                &new.id.0,
                &new.thread.0,
                &new.assistant.0,
                &new.strategy.as_str(),
                &new.temporary,
                &metadata,
                &address,
                &&*kwargs.tag,
                &kwargs.bytes,
                &new.after.as_secs_f64(),
                &worker,
                &reject,
                &thread_metadata,
                &thread_config,
                &new.branch.map(|branch| branch.0),
                &own,
                &principal,
                &levels,
                &max_queued,
                &new.webhook(),
                &unchanged_since,
                &new.inherits_user,
            ],
        )
        .await
}

statements!(LOCK, SHARE_TREE, LOCK_TREE, CREATE, EXISTING, DELETE_RUN; many);
