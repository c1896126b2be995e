//! What can go wrong when a database is reached or migrated.

/// Why the database cannot be used. None of the texts contains a password.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection string cannot be read.
    #[error("the database URL is not valid: {0}; use postgres://user:password@host:port/database")]
    Url(String),
    /// The URL requires encryption, which this build lacks.
    #[error(
        "the database URL asks for TLS (sslmode={0}), which this build does not speak; \
         use sslmode=disable, or a TLS tunnel on the same host"
    )]
    Tls(&'static str),
    /// No server replied, or the login failed.
    #[error("no connection to the database `{database}` on {host}: {reason}")]
    Unreachable {
        /// `host:port`, several separated by commas.
        host: String,
        /// Name of the database.
        database: String,
        /// The reason that the driver reports.
        reason: String,
    },
    /// A newer program has migrated this database.
    #[error(
        "the database has schema version {database}, this program knows versions up to {program}; \
         start a newer program"
    )]
    Newer {
        /// Version of the database.
        database: i64,
        /// The greatest version this program knows.
        program: i64,
    },
    /// The database has a version of the schema that this program never had.
    #[error(
        "the database was made by another build: migration {0} is not the one of this program; \
         use the program that made it, or another database"
    )]
    Foreign(String),
    /// A migration failed; the database is as it was before that migration.
    #[error("the database could not be migrated: {0}")]
    Migration(String),
}
