//! Several checkpoints, newest first.

use std::sync::Arc;

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::load::{read_checkpoint, stored};
use crate::{
    checkpoint::{Error, List, Stored},
    id::CheckpointId,
    storage::sqlite::columns::{id, id_if, json_map},
    value::{Map, Value, contains_map},
};

pub(crate) const LIST_OF_NAMESPACE: &str = select!(
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
pub(crate) fn list(db: &Connection, list: &List) -> Result<Vec<Stored>, Error> {
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
        found.push(stored(db, list.tree, read_checkpoint(row)?, true)?);
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
