//! New runs of many threads in one statement: each is checked by itself, and what one of them is refused does
//! not touch the others.

use std::sync::Arc;

use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use super::queue::{Creation, shares_tree};
use crate::{
    runs::request::codec as request_codec,
    storage::postgres::{
        columns::{Json, Params, column, name},
        connection::{Failure, Object, prepare},
    },
    tree::event::codes::event_code,
};

/// What [`LOCK`](super::LOCK) and [`SHARE_TREE`](super::SHARE_TREE) do for each run of `c`, without waiting: a run
/// whose branch, thread or tree somebody else has locked is left out. Whose locks are there is said to the next
/// statement of the transaction, which comes in the same round trip.
const LOCK_FREE_ONES: &str = "
WITH c AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bool[]) WITH ORDINALITY c(thread, branch, shares_tree, n)),
tr AS MATERIALIZED (
  SELECT c.n FROM c JOIN trees o ON o.tree_id = (SELECT t.tree_id FROM threads t WHERE t.thread_id = c.thread)
   WHERE c.shares_tree FOR SHARE OF o SKIP LOCKED),
b AS MATERIALIZED (
  SELECT c.n FROM c JOIN threads t ON t.thread_id = c.thread AND t.deleted_at IS NULL
    JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = COALESCE(c.branch, t.active_branch_id)
   WHERE NOT c.shares_tree OR EXISTS (SELECT 1 FROM tr WHERE tr.n = c.n) FOR NO KEY UPDATE OF b, t SKIP LOCKED)
SELECT set_config('backstitch.locked', (SELECT COALESCE(array_agg(b.n), '{}')::text FROM b), true)";

/// What [`CREATE`](super::CREATE) does, for each run of `c` whose locks are there. No thread stands in `c` twice.
const CREATE_MANY: &str = concat!(
    "
WITH c AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bool[], $6::jsonb[], $7::jsonb[], $8::bytea[], $9::float8[],
                       $10::uuid[], $11::jsonb[], $12::jsonb[], $13::uuid[], $14::text[], $15::text[], $16::text[], $17::bigint[], $18::text[], $19::bigint[], $20::text[], $21::bool[])
    WITH ORDINALITY c(run, thread, assistant, strategy, temporary, metadata, address, kwargs, after, worker, thread_metadata, thread_config, branch,
                      own, principal, levels, most, webhook, since, tag, inherits_user, n)
   WHERE c.n = ANY (NULLIF(current_setting('backstitch.locked', true), '')::bigint[])),
b AS (
  SELECT c.*, b.tree_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth, t.metadata - c.own::text[] AS inherited, q.queued,
         b.branch_id = t.active_branch_id AS is_active,
         q.queued > 0 OR EXISTS (SELECT 1 FROM runs r WHERE r.branch_id = b.branch_id AND r.thread_id = t.thread_id AND r.tree_id = t.tree_id
                    AND r.status = 'running') AS taken,
         (SELECT CASE WHEN o.owner = c.principal THEN 'owner' ELSE (SELECT m.level FROM tree_members m WHERE m.tree_id = o.tree_id AND m.principal = c.principal) END
            FROM trees o WHERE o.tree_id = t.tree_id AND c.principal IS NOT NULL) AS level,
         c.address IS NOT NULL AND NOT EXISTS (SELECT 1 FROM checkpoints k WHERE k.tree_id = t.tree_id AND k.checkpoint_ns = ''
                    AND k.checkpoint_id = (c.address->>'checkpoint_id')::uuid) AS gone,
         COALESCE(t.last_event_number <> c.since, false) AS changed,
         CASE WHEN c.inherits_user THEN NULLIF(NULLIF(t.config #> '{configurable,user_id}', to_jsonb(''::text)), 'null') END AS thread_user
    FROM c JOIN threads t ON t.thread_id = c.thread AND t.deleted_at IS NULL
    JOIN branches b ON b.tree_id = t.tree_id AND b.thread_id = t.thread_id AND b.branch_id = COALESCE(c.branch, t.active_branch_id)
    CROSS JOIN LATERAL (SELECT count(*) AS queued FROM (
      (SELECT 1 FROM runs r WHERE r.thread_id = t.thread_id AND r.branch_id = b.branch_id AND r.tree_id = t.tree_id AND r.status = 'pending' LIMIT c.most)
      UNION ALL
      (SELECT 1 FROM runs r WHERE r.thread_id = t.thread_id AND r.branch_id IS NULL AND r.tree_id = t.tree_id AND r.status = 'pending'
          AND b.branch_id = t.active_branch_id LIMIT c.most)) w) q),
n AS (SELECT b.*, NOT b.taken AND b.worker IS NOT NULL AND b.after <= 0 AS starts FROM b
       WHERE NOT (b.taken AND b.strategy = 'reject') AND NOT b.gone AND NOT b.changed AND b.queued < b.most
         AND (b.principal IS NULL OR b.level = ANY (b.levels::text[]))),
r AS (
  INSERT INTO runs (tree_id, run_id, thread_id, branch_id, assistant_id, status, strategy, temporary, metadata, address, type, kwargs,
         run_at, base_checkpoint_id, epoch, worker_id, attempt, principal, behind, webhook, started_at, thread_user)
  SELECT n.tree_id, n.run, n.thread, CASE WHEN n.starts THEN n.branch_id ELSE n.branch END, n.assistant, CASE WHEN n.starts THEN 'running' ELSE 'pending' END,
         n.strategy, n.temporary, ",
    stored_metadata!("n.metadata"),
    ", n.address, n.tag, n.kwargs,
         now() + make_interval(secs => n.after), CASE WHEN n.starts THEN n.head_checkpoint_id END, CASE WHEN n.starts THEN n.writer_epoch + 1 END,
         CASE WHEN n.starts THEN n.worker END, CASE WHEN n.starts THEN 1 ELSE 0 END, n.principal, n.taken,
         n.webhook, CASE WHEN n.starts THEN now() END, n.thread_user
    FROM n ON CONFLICT (run_id) DO NOTHING RETURNING *),
f AS (
  UPDATE branches x SET writer_epoch = x.writer_epoch + 1, updated_at = CASE WHEN n.is_active THEN clock_timestamp() ELSE x.updated_at END
    FROM r JOIN n ON n.thread = r.thread_id WHERE r.status = 'running' AND x.tree_id = r.tree_id AND x.branch_id = r.branch_id),
t AS (
  UPDATE threads x SET last_event_number = x.last_event_number + CASE WHEN r.temporary THEN 0 WHEN r.status = 'running' THEN 2 ELSE 1 END,
         metadata = CASE WHEN x.metadata @> n.thread_metadata THEN x.metadata ELSE x.metadata || n.thread_metadata END,
         config = CASE WHEN x.config @> n.thread_config THEN x.config
                       ELSE x.config || n.thread_config || CASE WHEN x.config->'configurable' <> '{}' AND n.thread_config ? 'configurable'
                                 THEN jsonb_build_object('configurable', (n.thread_config->'configurable') || (x.config->'configurable')) ELSE '{}' END END,
         updated_at = CASE WHEN r.status = 'running' AND n.is_active THEN x.updated_at ELSE clock_timestamp() END
    FROM r JOIN n ON n.thread = r.thread_id
   WHERE x.thread_id = r.thread_id AND NOT (r.temporary AND x.metadata @> n.thread_metadata AND x.config @> n.thread_config)
  RETURNING x.thread_id, x.last_event_number AS number),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, kind, branch_id, run_id)
  SELECT r.tree_id, r.thread_id, t.number, k.kind, r.branch_id, r.run_id
    FROM r JOIN t ON t.thread_id = r.thread_id JOIN (VALUES (true, ",
    event_code!(ENQUEUED_AND_STARTED),
    "), (false, ",
    event_code!(RUN_ENQUEUED),
    ")) k(starts, kind) ON k.starts = (r.status = 'running')
   WHERE NOT r.temporary)
SELECT b.n::int AS n, b.branch_id AS active_branch_id, b.gone, b.changed, b.level, b.queued >= b.most AS is_full, b.head_checkpoint_id, b.head_depth,
       r.epoch AS writer_epoch,",
    run_columns!(),
    "FROM b LEFT JOIN r ON r.thread_id = b.thread AND r.run_id = b.run"
);

/// The runs of a group as one array per column.
#[derive(Default)]
struct Columns<'a> {
    runs: Vec<Uuid>,
    threads: Vec<Uuid>,
    assistants: Vec<Uuid>,
    strategies: Vec<&'static str>,
    temporary: Vec<bool>,
    metadata: Vec<Json<'a>>,
    addresses: Vec<Option<Json<'a>>>,
    tags: Vec<&'a str>,
    kwargs: Vec<&'a [u8]>,
    delays: Vec<f64>,
    workers: Vec<Option<Uuid>>,
    thread_metadata: Vec<Json<'a>>,
    thread_configs: Vec<Json<'a>>,
    branches: Vec<Option<Uuid>>,
    own: Vec<Option<String>>,
    principals: Vec<Option<&'a str>>,
    levels: Vec<String>,
    most: Vec<i64>,
    webhooks: Vec<Option<String>>,
    since: Vec<Option<i64>>,
    inherit_users: Vec<bool>,
    share_trees: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn add(&mut self, creation: &'a Creation) {
        let new = &creation.new;
        let address = |id| Json::new(format!(r#"{{"checkpoint_id":"{id}"}}"#));
        let metadata = request_codec::own_metadata(&new.metadata, &new.kwargs);
        let own = new.own_metadata.as_ref();
        let names = own.map(|keys| array(keys.iter().map(|key| name(key))));
        self.runs.push(new.id.0);
        self.threads.push(new.thread.0);
        self.assistants.push(new.assistant.0);
        self.strategies.push(new.strategy.as_str());
        self.temporary.push(new.temporary);
        let bytes = creation.kwargs.bytes.len();
        let metadata = request_codec::stored_metadata(metadata, &new.kwargs, bytes);
        self.metadata.push(Json::of_value(&metadata));
        self.addresses.push(new.address.map(address));
        self.tags.push(&creation.kwargs.tag);
        self.kwargs.push(&creation.kwargs.bytes);
        self.delays.push(new.after.as_secs_f64());
        self.workers.push(new.claim.map(|worker| worker.0));
        self.thread_metadata
            .push(Json::of_map(&new.thread_metadata));
        self.thread_configs.push(Json::of_map(&new.thread_config));
        self.branches.push(new.branch.map(|branch| branch.0));
        self.own.push(names);
        self.principals
            .push(new.access.principal().map(|principal| &**principal));
        self.levels.push(array(new.access.needed().and_above()));
        self.most
            .push(i64::try_from(new.max_queued).unwrap_or(i64::MAX));
        self.webhooks.push(new.webhook());
        self.since.push(new.unchanged_since);
        self.inherit_users.push(new.inherits_user);
        self.share_trees.push(shares_tree(new));
    }
}

/// The text of an array of texts.
fn array(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted = |text: &str| {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    };
    let texts = texts.into_iter().map(|text| quoted(text.as_ref()));
    format!("{{{}}}", texts.collect::<Vec<_>>().join(","))
}

/// The statements of a group.
pub(super) struct Statements {
    lock: Statement,
    create: Statement,
}

impl Statements {
    pub(super) async fn on(client: &Object) -> Result<Self, Failure> {
        Ok(Self {
            lock: prepare(client, LOCK_FREE_ONES).await?,
            create: prepare(client, CREATE_MANY).await?,
        })
    }

    /// Creates the runs of a group in one transaction and one round trip: for each the row of
    /// [`CREATE`](super::CREATE), or `None` when its locks were not free or there is no such thread.
    pub(super) async fn send(
        &self,
        client: &Client,
        group: &[Arc<Creation>],
    ) -> Result<Vec<Option<Row>>, Failure> {
        let mut columns = Columns::default();
        for creation in group {
            columns.add(creation);
        }
        let slots: Params<'_, 3> = [&columns.threads, &columns.branches, &columns.share_trees];
        let runs: Params<'_, 21> = [
            &columns.runs,
            &columns.threads,
            &columns.assistants,
            &columns.strategies,
            &columns.temporary,
            &columns.metadata,
            &columns.addresses,
            &columns.kwargs,
            &columns.delays,
            &columns.workers,
            &columns.thread_metadata,
            &columns.thread_configs,
            &columns.branches,
            &columns.own,
            &columns.principals,
            &columns.levels,
            &columns.most,
            &columns.webhooks,
            &columns.since,
            &columns.tags,
            &columns.inherit_users,
        ];
        let (begin, locked, rows, end) = tokio::join!(
            biased;
            client.batch_execute("BEGIN"),
            client.query_opt(&self.lock, &slots),
            client.query(&self.create, &runs),
            client.batch_execute("COMMIT"),
        );
        begin?;
        locked?;
        let rows = rows?;
        end?;
        let mut found: Vec<Option<Row>> = group.iter().map(|_| None).collect();
        for row in rows {
            let number: i32 = column(&row, "n")?;
            let index = usize::try_from(number - 1).ok();
            if let Some(entry) = index.and_then(|index| found.get_mut(index)) {
                *entry = Some(row);
            }
        }
        Ok(found)
    }
}

statements!(LOCK_FREE_ONES, CREATE_MANY);
