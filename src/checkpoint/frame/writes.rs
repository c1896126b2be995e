//! Writes of tasks: one row of output per task, one row per control channel.

use std::{collections::HashMap, sync::Arc};

use super::Appended;
use crate::{
    checkpoint::{
        Error, Pending, Version, WriteRow,
        codec::{self, Format},
        earlier, results,
    },
    id::{BranchId, CheckpointId, RunId, TaskId},
    value::Value,
};

/// Encodes the writes of one task: one row of output, one row per control channel.
///
/// With `appended` a write of the items that a delta appended is stored as a reference to it.
pub fn encode_writes(
    ns: &Arc<str>,
    checkpoint: CheckpointId,
    branch: BranchId,
    writes: &[Pending],
    appended: Option<&HashMap<Arc<str>, Appended>>,
    format: Format,
) -> Vec<WriteRow> {
    let Some(first) = writes.first() else {
        return vec![];
    };
    let (task, path) = (first.task, first.path.clone());
    let control_only = writes.iter().all(|write| write.idx < 0);
    let row = |idx, channel, value: Value, upsert: bool| {
        let (tag, bytes) = codec::encode_weighed(&value, format);
        WriteRow {
            ns: ns.clone(),
            checkpoint,
            branch,
            task,
            idx,
            path: path.clone(),
            channel,
            tag,
            bytes,
            upsert,
        }
    };
    let mut rows: Vec<WriteRow> = vec![];
    let mut output = vec![];
    for write in writes {
        let entry = |value: Value| {
            Value::list(vec![
                Value::Int(write.idx.into()),
                Value::Str(write.channel.clone()),
                value,
            ])
        };
        if write.idx < 0 {
            // Of several writes to one control channel the last one counts; beside output the
            // first one counts, because such a row never replaces a stored one.
            if control_only {
                rows.retain(|row| row.idx != write.idx);
            } else if rows.iter().any(|row| row.idx == write.idx) {
                continue;
            }
            let list = Value::list(vec![entry(write.value.clone())]);
            let channel = Some(write.channel.clone());
            // What the last run found replaces what one before it had found.
            let replaces = control_only || write.idx == earlier::IDX;
            rows.push(row(write.idx, channel, list, replaces));
            continue;
        }
        let delta = appended
            .and_then(|appended| appended.get(&write.channel))
            .filter(|delta| write.value.as_list() == Some(&delta.items));
        output.push(match delta {
            Some(delta) => Value::list(vec![
                Value::Int(write.idx.into()),
                Value::Str(write.channel.clone()),
                Value::Null,
                delta.version.to_string().into(),
            ]),
            None => entry(write.value.clone()),
        });
    }
    if !output.is_empty() {
        // The client's own writes grow from command to command: each one stores all of them.
        rows.push(row(0, None, Value::list(output), task == TaskId::NULL));
    }
    rows
}

/// The values that a row of output, or of the output of several tasks, points to, by channel and version. A row that cannot be read
/// points to nothing, so that damage is no obstacle to a deletion.
pub fn references(tag: &str, bytes: &[u8]) -> Vec<(Arc<str>, Version)> {
    if results::is_joined(tag) {
        let all = results::split(bytes).unwrap_or_default();
        // None of them has several again, unless the row is damaged.
        let single = all.iter().filter(|one| !results::is_joined(&one.tag));
        let each = single.map(|one| references(&one.tag, &one.bytes));
        return each.flatten().collect();
    }
    let Ok(list) = codec::decode(tag, bytes) else {
        return vec![];
    };
    let reference = |entry: &Value| {
        let fields = entry.as_list()?;
        let channel = fields.get(1)?.as_str()?;
        let version = fields.get(3)?.as_str()?.parse().ok()?;
        Some((channel.into(), version))
    };
    let entries = list.as_list().unwrap_or_default();
    entries.iter().filter_map(reference).collect()
}

/// The writes of a row of a control channel, which refer to nothing.
///
/// # Errors
/// The row cannot be read.
pub fn decode_control(row: &WriteRow) -> Result<Vec<Pending>, Error> {
    let (writes, _) = decode_writes(std::slice::from_ref(row))?;
    Ok(writes.into_iter().map(|(_, write)| write).collect())
}

/// The rows that a run has found of a task, out of the row in which it stored them; `None` if another run did, or if they
/// cannot be read.
pub fn rows_found_by(run: RunId, row: &WriteRow) -> Option<Vec<WriteRow>> {
    let stored = decode_control(row).ok()?;
    let image = &stored.first()?.value;
    if !earlier::is_of(image, run) {
        return None;
    }
    let format = if codec::is_json(&row.tag) {
        Format::Json
    } else {
        Format::Bincode
    };
    let writes = earlier::writes(image, row.task, &row.path);
    let (ns, at) = (&row.ns, row.checkpoint);
    Some(encode_writes(ns, at, row.branch, &writes, None, format))
}

pub(super) type DecodedWrites = (Vec<(BranchId, Pending)>, Vec<(usize, Version)>);

/// Decodes rows of writes, ordered by path, task and index.
pub(super) fn decode_writes(rows: &[WriteRow]) -> Result<DecodedWrites, Error> {
    let (mut writes, mut references) = (vec![], vec![]);
    for row in rows {
        let corrupt = |what: &str| Error::Corrupt(format!("writes of task {}: {what}", row.task));
        let list =
            codec::decode(&row.tag, &row.bytes).map_err(|error| corrupt(&error.to_string()))?;
        let list = list.as_list().ok_or_else(|| corrupt("not a list"))?;
        for entry in list {
            let fields = entry
                .as_list()
                .ok_or_else(|| corrupt("an entry is no list"))?;
            let (Some(idx), Some(channel), Some(value)) = (
                fields.first().and_then(Value::as_i64),
                fields.get(1).and_then(Value::as_str),
                fields.get(2),
            ) else {
                return Err(corrupt("an entry lacks a field"));
            };
            if let Some(version) = fields.get(3).and_then(Value::as_str) {
                let version = version.parse().map_err(|_| corrupt("a bad reference"))?;
                references.push((writes.len(), version));
            }
            writes.push((
                row.branch,
                Pending {
                    task: row.task,
                    path: row.path.clone(),
                    idx: i32::try_from(idx).map_err(|_| corrupt("an index is out of range"))?,
                    channel: channel.into(),
                    value: value.clone(),
                },
            ));
        }
    }
    Ok((writes, references))
}
