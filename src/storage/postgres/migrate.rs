//! Brings a database to the newest schema.

use tokio_postgres::{Client, NoTls};

use super::{
    Error,
    connection::{configure, connection_reason, unreachable_at},
};

mod embedded {
    refinery::embed_migrations!("sql/postgres");
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
    let runner = embedded::migrations::runner();
    let program = runner
        .get_migrations()
        .iter()
        .map(|migration| i64::from(migration.version()))
        .max()
        .unwrap_or(0);
    let history: Option<String> = client
        .query_one("SELECT to_regclass('refinery_schema_history')::text", &[])
        .await
        .map_err(failed)?
        .get(0);
    if history.is_some() {
        let database: i64 = client
            .query_one(
                "SELECT COALESCE(max(version), 0)::bigint FROM refinery_schema_history",
                &[],
            )
            .await
            .map_err(failed)?
            .get(0);
        if database > program {
            return Err(Error::Newer { database, program });
        }
        // The usual start writes nothing.
        if database == program {
            return Ok(0);
        }
    }
    let report = runner
        .run_async(client)
        .await
        .map_err(|error| Error::Migration(error_chain(&error)))?;
    Ok(report.applied_migrations().len())
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
