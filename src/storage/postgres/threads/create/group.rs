//! Threads that are created at one time share a statement, and so its round trip and its wait for the disk.

use tokio::sync::oneshot;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::{
    checkpoint::Error,
    contention::groups::{Ended, Groups},
    fail_point,
    id::BranchId,
    storage::postgres::{
        columns::{Json, Params, column},
        connection::{Failure, Object, Pool, acquire, prepare},
    },
    tree::{NewThread, event::codes::event_code},
};

/// What [`CREATE`](super::CREATE) does for a thread by itself, for each of these: a row for each whose id was
/// free. In the order of ids, in which two groups with some ids in common wait for each other; nobody waits for whoever
/// changes a thread that is there.
const CREATE_MANY: &str = concat!(
    "
WITH c AS (
  SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::jsonb[], $5::float8[], $6::text[]) c(thread, branch, owner, metadata, minutes, strategy)),
t AS (
  INSERT INTO threads (thread_id, tree_id, active_branch_id, metadata, last_event_number, owner, ttl_minutes, ttl_strategy, expires_at)
  SELECT c.thread, c.thread, c.branch, c.metadata, 1, c.owner, c.minutes, c.strategy, now() + c.minutes * interval '1 minute'
    FROM c WHERE (SELECT 1 FROM threads x WHERE x.thread_id = c.thread) IS NULL ORDER BY c.thread
  ON CONFLICT (thread_id) DO NOTHING RETURNING *),
tr AS (INSERT INTO trees (tree_id, owner) SELECT t.thread_id, t.owner FROM t ON CONFLICT DO NOTHING),
b AS (
  INSERT INTO branches (tree_id, branch_id, thread_id, name, origin)
  SELECT t.thread_id, t.active_branch_id, t.thread_id, 'main', 'root' FROM t RETURNING *),
ev AS (INSERT INTO events (tree_id, thread_id, event_number, kind) SELECT t.thread_id, t.thread_id, 1, ",
    event_code!(THREAD_CREATED),
    " FROM t)
SELECT t.thread_id, t.tree_id, t.metadata, t.config, t.created_at, t.updated_at, b.updated_at AS state_updated_at, b.branch_id,
       b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.outcome, b.error, false AS busy
  FROM t JOIN b ON b.tree_id = t.tree_id"
);

/// A thread to create, and where its row goes.
struct Waiting {
    new: NewThread,
    branch: BranchId,
    reply: oneshot::Sender<Row>,
}

/// Threads that wait to be created.
#[derive(Clone)]
pub(crate) struct ThreadQueue {
    waiting: Groups<Waiting>,
    pool: Pool,
}

impl ThreadQueue {
    /// A queue whose groups take their connections from `pool`.
    pub(crate) fn new(pool: &Pool) -> Self {
        let of_groups = pool.clone();
        Self {
            waiting: Groups::new(move |group| {
                let pool = of_groups.clone();
                Box::pin(async move { create(&pool, group).await })
            }),
            pool: pool.clone(),
        }
    }

    /// The row of a new thread with this branch. `None` when its id is taken, or its group failed: then the thread may
    /// be there all the same. Meanwhile it counts for the share that its principal has of the connections.
    ///
    /// # Errors
    /// The principal has its share.
    pub(super) async fn create(
        &self,
        new: &NewThread,
        branch: BranchId,
    ) -> Result<Option<Row>, Error> {
        let _share = self.pool.share().await.map_err(Failure::into_error)?;
        let (reply, row) = oneshot::channel();
        self.waiting.add(Waiting {
            new: new.clone(),
            branch,
            reply,
        });
        Ok(row.await.ok())
    }
}

/// Those that wait are not to be tried together when the database is away: alone each gets its own error soon.
async fn create(pool: &Pool, mut group: Vec<Waiting>) -> Ended {
    fail_point!("new_threads::group");
    let Ok(client) = acquire(pool).await else {
        return Ended::Break(());
    };
    let rows = match send(&client, &group).await {
        Ok(rows) => rows,
        Err(failure) => {
            let is_away = failure.concerns_all();
            let error = failure.into_error();
            tracing::debug!(%error, "threads that were to be created together are created one by one");
            return if is_away {
                Ended::Break(())
            } else {
                Ended::Continue(())
            };
        }
    };
    for row in rows {
        let branch = column::<Uuid>(&row, "branch_id").map(BranchId);
        let at = branch.map(|branch| group.iter().position(|one| one.branch == branch));
        if let Ok(Some(at)) = at {
            // Who asked may have gone.
            let _ = group.swap_remove(at).reply.send(row);
        }
    }
    Ended::Continue(())
}

async fn send(client: &Object, group: &[Waiting]) -> Result<Vec<Row>, Failure> {
    let statement = prepare(client, CREATE_MANY).await?;
    let threads: Vec<Uuid> = group.iter().map(|one| one.new.id.0).collect();
    let branches: Vec<Uuid> = group.iter().map(|one| one.branch.0).collect();
    let owners: Vec<&str> = group.iter().map(|one| &*one.new.owner).collect();
    let metadata: Vec<_> = group
        .iter()
        .map(|one| Json::of_map(&one.new.metadata))
        .collect();
    let lives = group.iter().map(|one| one.new.ttl);
    let minutes: Vec<Option<f64>> = lives.clone().map(|ttl| Some(ttl?.minutes)).collect();
    let strategies: Vec<Option<&str>> = lives.map(|ttl| Some(ttl?.strategy.as_str())).collect();
    let params: Params<'_, 6> = [
        &threads,
        &branches,
        &owners,
        &metadata,
        &minutes,
        &strategies,
    ];
    Ok(client.query(&statement, &params).await?)
}

statements!(CREATE_MANY);
