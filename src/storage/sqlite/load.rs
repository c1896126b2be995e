//! Reading checkpoints with their values and pending writes.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, named_params, params};
use serde::Deserialize;
use uuid::Uuid;

use super::row::{id, id_if, json_map, parsed};
use crate::{
    checkpoint::{
        At, BlobRow, CheckpointRow, Error, List, Query, Source, Stored, Version, WriteRow,
    },
    id::{BranchId, CheckpointId, TreeId},
    value::{Map, Value, contains_map},
};

/// Steps that a walk may take before the data is taken for damaged.
const MAX_WALK: i64 = 100_000;

macro_rules! select {
    ($($rest:literal),+) => {
        concat!(
            "SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, \
             c.root_checkpoint_id, c.depth, c.thread_id, c.branch_id, c.run_id, c.source, c.step, \
             c.last_node_id, c.event_number, c.checkpoint, c.metadata, c.created_at ",
            $($rest),+
        )
    };
}

fn checkpoint(row: &Row<'_>) -> rusqlite::Result<CheckpointRow> {
    Ok(CheckpointRow {
        ns: row.get(0)?,
        id: id(row, 1)?,
        parent: id_if(row, 2)?,
        root: id_if(row, 3)?,
        depth: row.get(4)?,
        thread: id(row, 5)?,
        branch: id(row, 6)?,
        run: id_if(row, 7)?,
        source: parsed::<Source>(row, 8)?,
        step: row.get(9)?,
        last_node: id_if(row, 10)?,
        event_number: row.get(11)?,
        envelope: row.get(12)?,
        metadata: row.get(13)?,
        created_at: crate::time::Timestamp(row.get(14)?),
    })
}

/// One checkpoint with values and pending writes.
pub(super) fn load(db: &Connection, query: &Query) -> Result<Option<Stored>, Error> {
    let Some(row) = find(db, query)? else {
        return Ok(None);
    };
    stored(db, query.tree, row, query.values).map(Some)
}

fn stored(
    db: &Connection,
    tree: TreeId,
    row: CheckpointRow,
    values: bool,
) -> Result<Stored, Error> {
    let blobs = if values {
        values_of(db, tree, &row)?
    } else {
        Vec::new()
    };
    let writes = writes_at(db, tree, &row.ns, row.id)?;
    Ok(Stored { row, blobs, writes })
}

pub(super) const BY_ID: &str = select!(
    "FROM checkpoints c \
     WHERE c.tree_id = ?1 AND c.checkpoint_ns = ?2 AND c.checkpoint_id = ?3"
);

pub(super) const OF_HEAD: &str = select!(
    "FROM branches b JOIN checkpoints c ON c.tree_id = b.tree_id \
     AND c.checkpoint_ns = '' AND c.checkpoint_id = b.head_checkpoint_id \
     WHERE b.tree_id = ?1 AND b.branch_id = ?2"
);

pub(super) const OF_ACTIVE_HEAD: &str = select!(
    "FROM threads t JOIN branches b ON b.tree_id = t.tree_id \
     AND b.branch_id = t.active_branch_id \
     JOIN checkpoints c ON c.tree_id = b.tree_id \
     AND c.checkpoint_ns = '' AND c.checkpoint_id = b.head_checkpoint_id \
     WHERE t.thread_id = ?2 AND t.tree_id = ?1"
);

pub(super) const NEWEST: &str = select!(
    "FROM checkpoints c INDEXED BY checkpoints_thread \
     WHERE c.tree_id = ?1 AND c.thread_id = ?2 AND c.checkpoint_ns = ?3 \
     ORDER BY c.checkpoint_id DESC LIMIT 1"
);

fn find(db: &Connection, query: &Query) -> Result<Option<CheckpointRow>, Error> {
    let tree = query.tree.0.as_bytes();
    let thread = query.thread.0.as_bytes();
    let found = match &query.at {
        At::Id(checkpoint_id) => db.prepare_cached(BY_ID)?.query_row(
            params![tree, query.ns, checkpoint_id.0.as_bytes()],
            checkpoint,
        ),
        At::Head(branch) => db
            .prepare_cached(OF_HEAD)?
            .query_row(params![tree, branch.0.as_bytes()], checkpoint),
        At::ActiveHead => db
            .prepare_cached(OF_ACTIVE_HEAD)?
            .query_row(params![tree, thread], checkpoint),
        At::Newest => db
            .prepare_cached(NEWEST)?
            .query_row(params![tree, thread, query.ns], checkpoint),
        At::Subgraph {
            start,
            branch,
            before,
        } => return subgraph(db, query, *start, *branch, *before),
    };
    Ok(found.optional()?)
}

pub(super) const IN_SUBGRAPH: &str = select!(
    ", p.depth AS at FROM (WITH RECURSIVE path AS ( \
       SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth, c.branch_id, \
              :branch AS owner, 1 AS n \
         FROM checkpoints c WHERE c.tree_id = :tree AND c.checkpoint_ns = '' \
          AND c.checkpoint_id = :start \
       UNION ALL \
       SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth, c.branch_id, p.branch_id, \
              p.n + 1 \
         FROM path p JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
          AND c.checkpoint_id = p.parent_checkpoint_id WHERE p.n < :step) \
       SELECT * FROM path) p \
     CROSS JOIN checkpoints c INDEXED BY checkpoints_sub \
      ON c.tree_id = :tree AND c.root_checkpoint_id = p.checkpoint_id \
      AND c.checkpoint_ns = :ns AND c.checkpoint_ns <> '' \
     LEFT JOIN branches o ON o.tree_id = :tree AND o.branch_id = p.owner \
     WHERE (:before IS NULL OR c.checkpoint_id < :before) \
       AND (c.branch_id = p.owner \
            OR (c.branch_id = o.source_branch_id AND c.checkpoint_id < o.creation_id)) \
     ORDER BY p.depth DESC, c.checkpoint_id DESC LIMIT 1"
);

pub(super) const END_OF_STEP: &str = "WITH RECURSIVE path AS ( \
      SELECT parent_checkpoint_id, branch_id, 1 AS n FROM checkpoints \
       WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 \
      UNION ALL \
      SELECT c.parent_checkpoint_id, c.branch_id, p.n + 1 \
        FROM path p JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = p.parent_checkpoint_id WHERE p.n < ?3) \
    SELECT parent_checkpoint_id, branch_id FROM path WHERE n = ?3";

/// The newest checkpoint of a subgraph that belongs to the path of `start`.
///
/// Walks the path in steps; the owner of rows below a checkpoint is the branch of its child on
/// the path.
fn subgraph(
    db: &Connection,
    query: &Query,
    start: CheckpointId,
    branch: BranchId,
    before: Option<CheckpointId>,
) -> Result<Option<CheckpointRow>, Error> {
    const STEP: i64 = 256;
    let tree = query.tree.0.as_bytes();
    // Most namespaces name their task and were never written: no walk for those.
    let any = db
        .prepare_cached("SELECT 1 FROM checkpoints WHERE tree_id = ?1 AND checkpoint_ns = ?2")?
        .exists(params![tree, query.ns])?;
    if !any {
        return Ok(None);
    }
    let mut hit = db.prepare_cached(IN_SUBGRAPH)?;
    let mut walk = db.prepare_cached(END_OF_STEP)?;
    let (mut start, mut owner) = (start, branch);
    for _ in 0..MAX_WALK / STEP {
        let found = hit
            .query_row(
                named_params! {
                    ":tree": tree,
                    ":ns": query.ns,
                    ":start": start.0.as_bytes(),
                    ":branch": owner.0.as_bytes(),
                    ":before": before.as_ref().map(|id| id.0.as_bytes()),
                    ":step": STEP,
                },
                checkpoint,
            )
            .optional()?;
        if found.is_some() {
            return Ok(found);
        }
        let last = walk
            .query_row(params![tree, start.0.as_bytes(), STEP], |row| {
                Ok((id_if::<CheckpointId>(row, 0)?, id::<BranchId>(row, 1)?))
            })
            .optional()?;
        match last {
            Some((Some(parent), branch)) => (start, owner) = (parent, branch),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

pub(super) const LIST_OF_NAMESPACE: &str = select!(
    "FROM checkpoints c INDEXED BY checkpoints_thread \
     WHERE c.tree_id = ?1 AND c.thread_id = ?2 AND c.checkpoint_ns = ?3 AND c.checkpoint_id < ?4 \
     AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.tree_id = c.tree_id \
       AND d.run_id = c.run_id) \
     ORDER BY c.checkpoint_id DESC"
);

pub(super) const LIST_ALL: &str = select!(
    "FROM (SELECT checkpoint_ns, checkpoint_id FROM checkpoints \
     INDEXED BY checkpoints_thread \
     WHERE tree_id = ?1 AND thread_id = ?2 AND checkpoint_id < ?3 \
     AND NOT EXISTS (SELECT 1 FROM deleted_runs d \
       WHERE d.tree_id = checkpoints.tree_id AND d.run_id = checkpoints.run_id) \
     ORDER BY checkpoint_id DESC, checkpoint_ns LIMIT -1) k \
     CROSS JOIN checkpoints c ON c.tree_id = ?1 \
     AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id"
);

/// Several checkpoints, newest first.
pub(super) fn list(db: &Connection, list: &List) -> Result<Vec<Stored>, Error> {
    if list.limit == 0 {
        return Ok(Vec::new());
    }
    let filter = match &list.metadata {
        Some(wanted) => match Filter::new(wanted) {
            Some(filter) => Some(filter),
            None => return Ok(Vec::new()),
        },
        None => None,
    };
    let tree = list.tree.0.as_bytes();
    let thread = list.thread.0.as_bytes();
    // Beyond every id.
    let end = [0xff; 16];
    let before = list.before.as_ref().map_or(&end, |id| id.0.as_bytes());
    let mut all;
    let mut one;
    // The key would save a look-up per row, and walk past those of every relative.
    let mut rows = match &list.ns {
        Some(ns) => {
            one = db.prepare_cached(LIST_OF_NAMESPACE)?;
            one.query(params![tree, thread, ns, before])?
        }
        None => {
            // Sorts keys, not rows.
            all = db.prepare_cached(LIST_ALL)?;
            all.query(params![tree, thread, before])?
        }
    };
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(wanted) = list.id {
            let here: CheckpointId = id(row, 1)?;
            if here < wanted {
                break;
            }
            if here > wanted {
                continue;
            }
        }
        if let Some(filter) = &filter
            && !filter.accepts(row)?
        {
            continue;
        }
        found.push(stored(db, list.tree, checkpoint(row)?, true)?);
        if found.len() == list.limit {
            break;
        }
    }
    Ok(found)
}

/// A metadata filter, taken apart into what has a column and the rest.
struct Filter<'a> {
    source: Option<&'a str>,
    step: Option<i64>,
    run: Option<Uuid>,
    rest: Map,
}

impl<'a> Filter<'a> {
    /// `None` when no checkpoint can match.
    fn new(wanted: &'a Map) -> Option<Self> {
        let mut filter = Self {
            source: None,
            step: None,
            run: None,
            rest: Map::new(),
        };
        for (key, value) in wanted {
            match &**key {
                "source" => filter.source = Some(value.as_str()?),
                "step" => filter.step = Some(whole(value)?),
                "run_id" => filter.run = Some(Uuid::parse_str(value.as_str()?).ok()?),
                _ => {
                    filter.rest.insert(Arc::clone(key), value.clone());
                }
            }
        }
        Some(filter)
    }

    fn accepts(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        if let Some(source) = self.source
            && row.get_ref(8)?.as_str()? != source
        {
            return Ok(false);
        }
        if let Some(step) = self.step
            && row.get::<_, i64>(9)? != step
        {
            return Ok(false);
        }
        if let Some(run) = self.run
            && id_if::<Uuid>(row, 7)? != Some(run)
        {
            return Ok(false);
        }
        Ok(self.rest.is_empty() || contains_map(&json_map(row, 13)?, &self.rest))
    }
}

/// A number without a fraction.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 9e15 => Some(*float as i64),
        _ => value.as_i64(),
    }
}

/// The part of an envelope that says which values there are.
#[derive(Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    pub(super) channel_versions: BTreeMap<Arc<str>, String>,
}

impl Envelope {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text)
            .map_err(|why| Error::Corrupt(format!("the envelope of a checkpoint: {why}")))
    }
}

fn values_of(db: &Connection, tree: TreeId, row: &CheckpointRow) -> Result<Vec<BlobRow>, Error> {
    let versions = Envelope::parse(&row.envelope)?.channel_versions;
    let mut chains = Chains::new(db, tree, &row.ns)?;
    for (channel, version) in versions {
        chains.follow(&channel, version)?;
    }
    Ok(chains.found)
}

/// Blobs with what they build on.
pub(super) fn blobs(
    db: &Connection,
    tree: TreeId,
    ns: &Arc<str>,
    wanted: &[(Arc<str>, Version)],
) -> Result<Vec<BlobRow>, Error> {
    let mut chains = Chains::new(db, tree, ns)?;
    for (channel, version) in wanted {
        chains.follow(channel, version.to_string())?;
    }
    Ok(chains.found)
}

struct Chains<'a> {
    statement: CachedStatement<'a>,
    tree: TreeId,
    ns: &'a Arc<str>,
    found: Vec<BlobRow>,
    seen: HashSet<(Arc<str>, String)>,
}

impl<'a> Chains<'a> {
    fn new(db: &'a Connection, tree: TreeId, ns: &'a Arc<str>) -> Result<Self, Error> {
        Ok(Self {
            statement: db.prepare_cached(
                "SELECT base_version, chain_bytes, type, blob FROM checkpoint_blobs \
                 WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND channel = ?3 AND version = ?4",
            )?,
            tree,
            ns,
            found: Vec::new(),
            seen: HashSet::new(),
        })
    }

    /// Adds a value and, while it is a delta, what it builds on. A version without a row has its
    /// value in the envelope; a base without a row is damage.
    fn follow(&mut self, channel: &Arc<str>, version: String) -> Result<(), Error> {
        let mut next = Some(version);
        let mut is_base = false;
        for _ in 0..MAX_WALK {
            let Some(version) = next.take() else {
                return Ok(());
            };
            let key = (Arc::clone(channel), version);
            if self.seen.contains(&key) {
                return Ok(());
            }
            let found = self
                .statement
                .query_row(
                    params![self.tree.0.as_bytes(), self.ns, channel, key.1],
                    |row| {
                        let base: Option<String> = row.get(0)?;
                        let bytes = row.get_ref(3)?.as_blob()?.to_vec();
                        Ok((base, row.get(1)?, row.get(2)?, bytes))
                    },
                )
                .optional()?;
            let Some((base, chain_bytes, tag, bytes)) = found else {
                if is_base {
                    return Err(Error::Corrupt(format!(
                        "version {} of channel `{channel}` is missing, a later one builds on it",
                        key.1
                    )));
                }
                return Ok(());
            };
            self.found.push(BlobRow {
                ns: Arc::clone(self.ns),
                channel: Arc::clone(channel),
                version: version_of(&key.1)?,
                base: base.as_deref().map(version_of).transpose()?,
                chain_bytes,
                tag,
                bytes,
            });
            self.seen.insert(key);
            next = base;
            is_base = true;
        }
        Err(Error::Corrupt(format!(
            "the deltas of channel `{channel}` have no end"
        )))
    }
}

fn version_of(text: &str) -> Result<Version, Error> {
    text.parse()
        .map_err(|why: crate::checkpoint::BadVersion| Error::Corrupt(why.to_string()))
}

pub(super) const WRITES: &str = "SELECT branch_id, task_id, idx, task_path, channel, type, writes FROM checkpoint_writes \
    WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3 \
    ORDER BY task_path, task_id, idx, branch_id";

fn writes_at(
    db: &Connection,
    tree: TreeId,
    ns: &Arc<str>,
    checkpoint: CheckpointId,
) -> Result<Vec<WriteRow>, Error> {
    let mut statement = db.prepare_cached(WRITES)?;
    let rows = statement.query_map(
        params![tree.0.as_bytes(), ns, checkpoint.0.as_bytes()],
        |row| {
            let idx = row.get(2)?;
            Ok(WriteRow {
                ns: Arc::clone(ns),
                checkpoint,
                branch: id(row, 0)?,
                task: id(row, 1)?,
                idx,
                path: row.get(3)?,
                channel: row.get(4)?,
                tag: row.get(5)?,
                bytes: row.get(6)?,
                // How it would be written again: control rows are replaced.
                upsert: idx < 0,
            })
        },
    )?;
    rows.map(|row| row.map_err(Error::from)).collect()
}
