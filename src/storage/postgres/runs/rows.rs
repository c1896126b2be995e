//! Runs, out of the columns of a row.

use tokio_postgres::Row;

use crate::{
    checkpoint::Error,
    id::{AssistantId, CheckpointId, RunId, ThreadId, TreeId},
    runs::{
        Run,
        request::{
            codec::{self as request_codec, Columns},
            identity,
        },
    },
    storage::postgres::columns::{JsonText, Time, column, id_if, word},
    value::Value,
};

/// A run, out of a row with its columns.
pub(super) fn run_of(row: &Row) -> Result<Run, Error> {
    let kwargs: Option<&[u8]> = column(row, "kwargs")?;
    let columns = Columns {
        run: RunId(column(row, "run_id")?),
        thread: ThreadId(column(row, "thread_id")?),
        assistant: AssistantId(column(row, "assistant_id")?),
    };
    let mut kwargs = request_codec::request_of(kwargs, column(row, "type")?, columns);
    let user: Option<JsonText> = column(row, "thread_user")?;
    if let Some(user) = user {
        identity::inherit_user(&mut kwargs, user.value()?);
    }
    let own = column::<JsonText>(row, "metadata")?.value()?;
    Ok(Run {
        id: columns.run,
        tree: TreeId(column(row, "tree_id")?),
        thread: columns.thread,
        branch: id_if(row, "branch_id")?,
        assistant: columns.assistant,
        status: word(column(row, "status")?)?,
        metadata: request_codec::metadata(&own, &mut kwargs),
        kwargs,
        address: column::<Option<JsonText>>(row, "address")?
            .map(|json| address(&json))
            .transpose()?
            .flatten(),
        base: id_if(row, "base_checkpoint_id")?,
        strategy: word(column(row, "strategy")?)?,
        attempt: column(row, "attempt")?,
        temporary: column(row, "temporary")?,
        principal: column::<Option<&str>>(row, "principal")?.map(Into::into),
        error: column::<Option<JsonText>>(row, "error")?
            .map(|json| json.value())
            .transpose()?,
        last_checkpoint: id_if(row, "last_checkpoint_id")?,
        run_at: column::<Time>(row, "run_at")?.0,
        created_at: column::<Time>(row, "created_at")?.0,
        updated_at: column::<Time>(row, "updated_at")?.0,
    })
}

fn address(json: &JsonText) -> Result<Option<CheckpointId>, Error> {
    match json.value()?.get("checkpoint_id").and_then(Value::as_str) {
        Some(text) => word(text).map(Some),
        None => Ok(None),
    }
}

/// The ids of runs.
pub(super) fn ids(rows: &[Row]) -> Result<Vec<RunId>, Error> {
    rows.iter()
        .map(|row| Ok(RunId(column(row, "run_id")?)))
        .collect()
}
