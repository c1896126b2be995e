//! Runs and their slots, out of the columns of a row.

use rusqlite::Row;

use crate::{
    checkpoint::Slot,
    runs::{
        Run,
        request::{
            codec::{self as request_codec, Columns},
            identity,
        },
    },
    storage::sqlite::columns::{id, id_if, json_if, parsed},
    time::Timestamp,
};

/// A run, out of the columns that `select!` begins with.
pub(super) fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let tag = row.get_ref(7)?.as_str()?;
    let columns = Columns {
        run: id(row, 0)?,
        thread: id(row, 2)?,
        assistant: id(row, 4)?,
    };
    let stored = row.get_ref(8)?.as_blob_or_null()?;
    let mut kwargs = request_codec::request_of(stored, tag, columns);
    if let Some(user) = json_if(row, 20)? {
        identity::inherit_user(&mut kwargs, user);
    }
    Ok(Run {
        id: columns.run,
        tree: id(row, 1)?,
        thread: columns.thread,
        branch: id_if(row, 3)?,
        assistant: columns.assistant,
        status: parsed(row, 5)?,
        metadata: request_codec::metadata(&json_if(row, 6)?.unwrap_or_default(), &mut kwargs),
        kwargs,
        address: id_if(row, 9)?,
        base: id_if(row, 18)?,
        strategy: parsed(row, 10)?,
        attempt: row.get(11)?,
        temporary: row.get(12)?,
        principal: row.get::<_, Option<String>>(19)?.map(Into::into),
        error: json_if(row, 13)?,
        last_checkpoint: id_if(row, 14)?,
        run_at: Timestamp(row.get(15)?),
        created_at: Timestamp(row.get(16)?),
        updated_at: Timestamp(row.get(17)?),
    })
}

/// The slot of a run, of the columns behind its own.
pub(super) fn slot_of(run: &Run, row: &Row<'_>) -> rusqlite::Result<Slot> {
    Ok(Slot {
        tree: run.tree,
        thread: run.thread,
        branch: id(row, 21)?,
        epoch: row.get(22)?,
        head: id_if(row, 23)?,
        head_depth: row.get(24)?,
    })
}
