//! Brings a database file to the newest schema.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::Error;
use crate::{
    storage::migrations::{Applied, HISTORY, Migration, Unfit, migrations, missing},
    time::Timestamp,
};

/// All of them, in order. A test compares this list with the folder.
fn all() -> Vec<Migration> {
    migrations! {
        "sqlite":
        "V001__foundation"
        "V002__message_index"
        "V003__projections"
        "V004__deleted_runs"
        "V005__store_items"
        "V006__tombstones"
        "V008__short_projections"
        "V010__constant_events"
        "V011__losses"
        "V012__run_supersteps"
        "V013__unread_columns"
        "V015__lists_of_threads"
        "V016__principal_of_runs"
        "V018__ready_runs"
        "V021__owned_items"
        "V022__assistants"
        "V024__crons"
        "V025__webhooks"
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
        "V052__results_in_checkpoints"
        "V053__large_values_beside_keys"
        "V054__requests_behind_columns"
        "V055__labels_of_checkpoints"
        "V056__reparented_heads"
    }
}

/// Brings the database to the newest schema, all missing migrations in one transaction.
pub(super) fn migrate(db: &mut Connection, file: &Path) -> Result<(), Error> {
    let open = |source| Error::Open {
        path: file.to_owned(),
        source,
    };
    let applied = applied(db).map_err(open)?;
    let missing = missing(all(), &applied).map_err(|unfit| match unfit {
        Unfit::Newer { found, known } => Error::Newer {
            path: file.to_owned(),
            found: found.into(),
            known: known.into(),
        },
        Unfit::Foreign(migration) => Error::Foreign {
            path: file.to_owned(),
            migration,
        },
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    // Indexes of large tables are sorted, and pages that become free in a transaction and are used again are kept: in a
    // file, since they may be more than fits into memory.
    db.pragma_update(None, "temp_store", "FILE").map_err(open)?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate);
    let tx = tx.map_err(open)?;
    for migration in missing {
        apply(&tx, &migration).map_err(|source| Error::Migration {
            path: file.to_owned(),
            migration: migration.name,
            source,
        })?;
    }
    tx.commit().map_err(open)?;
    db.pragma_update(None, "temp_store", "MEMORY").map_err(open)
}

fn apply(tx: &Transaction<'_>, migration: &Migration) -> rusqlite::Result<()> {
    tx.execute_batch(migration.sql)?;
    let insert = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
                  VALUES (?1, ?2, ?3, ?4)";
    let now = Timestamp::now().to_string();
    let Migration { number, name, .. } = migration;
    tx.execute(insert, params![number, name, now, migration.checksum()])?;
    Ok(())
}

/// The migrations that were applied; none in a new database.
fn applied(db: &Connection) -> rusqlite::Result<Vec<Applied>> {
    db.execute_batch(HISTORY)?;
    let history = "SELECT version, name, checksum FROM refinery_schema_history ORDER BY version";
    let mut statement = db.prepare(history)?;
    let rows = statement.query_map([], |row| {
        Ok(Applied {
            number: row.get(0)?,
            name: row.get(1)?,
            checksum: row.get(2)?,
        })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests;
