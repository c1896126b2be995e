//! Brings a database file to the newest schema.

use std::path::Path;

use refinery::error::Kind;
use rusqlite::{Connection, OptionalExtension};

use super::Error;

mod embedded {
    refinery::embed_migrations!("sql/sqlite");
}

/// Brings the database to the newest schema, all missing migrations in one transaction.
pub(super) fn migrate(db: &mut Connection, file: &Path) -> Result<(), Error> {
    // One transaction: refinery would otherwise record a migration after applying it.
    let runner = embedded::migrations::runner().set_grouped(true);
    let known = runner
        .get_migrations()
        .iter()
        .map(|migration| i64::from(migration.version()))
        .max()
        .unwrap_or(0);
    let found = applied(db).map_err(|source| Error::Open {
        path: file.to_owned(),
        source,
    })?;
    if found > known {
        return Err(Error::Newer {
            path: file.to_owned(),
            found,
            known,
        });
    }
    match runner.run(db) {
        Ok(_) => Ok(()),
        Err(source) => Err(match source.kind() {
            Kind::DivergentVersion(migration, _) | Kind::MissingVersion(migration) => {
                Error::Foreign {
                    path: file.to_owned(),
                    migration: migration.to_string(),
                }
            }
            _ => Error::Migration {
                path: file.to_owned(),
                source,
            },
        }),
    }
}

/// The version of the newest migration that was applied; 0 in a new database.
fn applied(db: &Connection) -> rusqlite::Result<i64> {
    let table = "SELECT 1 FROM sqlite_schema WHERE name = 'refinery_schema_history'";
    if db.query_row(table, [], |_| Ok(())).optional()?.is_none() {
        return Ok(0);
    }
    let newest = "SELECT coalesce(max(version), 0) FROM refinery_schema_history";
    db.query_row(newest, [], |row| row.get(0))
}
