//! Brings a database to the newest schema.

use tokio_postgres::{Client, NoTls};

use super::{
    Error,
    connection::{configure, connection_reason, unreachable_at},
};
use crate::{
    storage::migrations::{Applied, HISTORY, Migration, Unfit, migrations, missing},
    time::Timestamp,
};

/// All of them, in order. A test compares this list with the folder.
fn all() -> Vec<Migration> {
    migrations! {
        "postgres":
        "V001__foundation"
        "V002__message_index"
        "V003__projections"
        "V004__deleted_runs"
        "V005__store_items"
        "V006__tombstones"
        "V007__checks_of_hot_tables"
        "V008__short_projections"
        "V010__constant_events"
        "V011__losses"
        "V012__run_supersteps"
        "V013__unread_columns"
        "V014__keys_led_by_what_is_unique"
        "V015__lists_of_threads"
        "V016__principal_of_runs"
        "V018__ready_runs"
        "V021__owned_items"
        "V022__assistants"
        "V023__runs_of_workers"
        "V024__crons"
        "V025__webhooks"
        "V027__cancel_requests"
        "V028__stream_log"
        "V030__store_vectors"
        "V031__hosts_of_webhooks"
        "V032__due_crons"
        "V033__times_to_live_of_threads"
        "V034__row_counts"
        "V035__starts_of_logs"
        "V036__ended_runs"
        "V037__no_index_of_forks"
        "V038__children_of_messages"
        "V039__awaited_runs"
        "V040__pages_of_trees"
        "V041__log_of_principals"
        "V042__checkpoints_as_bytes"
        "V043__branches_that_wait"
        "V044__times_of_threads"
        "V045__orders_of_lists"
        "V046__labels_of_threads"
        "V047__shares_of_logs"
        "V048__users_of_threads"
        "V049__graphs_of_checkpoints"
        "V050__no_texts_of_messages"
        "V051__events_that_share_rows"
        "V052__results_in_checkpoints"
        "V055__labels_of_checkpoints"
        "V056__reparented_heads"
        "V057__no_indexes_of_metadata"
    }
}

/// Only one process migrates a database at a time; `backstit` in ASCII.
const LOCK: i64 = 0x6261_636b_7374_6974;

/// Applies the migrations that the database does not have yet. Any number of processes may do
/// so at once: they take turns.
///
/// Returns how many were applied.
///
/// # Errors
///
/// When the database cannot be reached, was migrated by a newer program, or a migration fails.
pub async fn migrate(url: &str) -> Result<usize, Error> {
    let config = configure(url, "-c statement_timeout=0")?;
    let (mut client, connection) = config
        .connect(NoTls)
        .await
        .map_err(|error| unreachable_at(&config, &connection_reason(&error)))?;
    let connection = tokio::spawn(connection);
    let result = apply(&mut client).await;
    // The lock ends with the session, so it is closed before this returns.
    drop(client);
    connection.await.ok();
    result
}

async fn apply(client: &mut Client) -> Result<usize, Error> {
    let failed = |error: tokio_postgres::Error| Error::Migration(connection_reason(&error));
    client
        .execute("SELECT pg_advisory_lock($1)", &[&LOCK])
        .await
        .map_err(failed)?;
    let applied = applied(client).await.map_err(failed)?;
    let missing = missing(all(), &applied).map_err(|unfit| match unfit {
        Unfit::Newer { found, known } => Error::Newer {
            database: found.into(),
            program: known.into(),
        },
        Unfit::Foreign(migration) => Error::Foreign(migration),
    })?;
    // The usual start writes nothing.
    for migration in &missing {
        apply_one(client, migration).await.map_err(|error| {
            Error::Migration(format!("{}: {}", migration.name, connection_reason(&error)))
        })?;
    }
    Ok(missing.len())
}

/// Applies a migration and lists it, in one transaction.
async fn apply_one(
    client: &mut Client,
    migration: &Migration,
) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    tx.batch_execute(migration.sql).await?;
    let insert = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
                  VALUES ($1, $2, $3, $4)";
    let now = Timestamp::now().to_string();
    let Migration { number, name, .. } = migration;
    tx.execute(insert, &[number, name, &now, &migration.checksum()])
        .await?;
    tx.commit().await
}

/// The migrations that were applied; none in a new database.
async fn applied(client: &Client) -> Result<Vec<Applied>, tokio_postgres::Error> {
    let table = "SELECT to_regclass('refinery_schema_history')::text";
    let table: Option<String> = client.query_one(table, &[]).await?.try_get(0)?;
    if table.is_none() {
        client.batch_execute(HISTORY).await?;
        return Ok(vec![]);
    }
    let history = "SELECT version, name, checksum FROM refinery_schema_history ORDER BY version";
    let rows = client.query(history, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(Applied {
                number: row.try_get(0)?,
                name: row.try_get(1)?,
                checksum: row.try_get(2)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
