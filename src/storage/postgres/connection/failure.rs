//! What a failed statement means: whether it may succeed in a moment, and the error of the caller.

use tokio_postgres::error::SqlState;

use crate::checkpoint;

/// Unique keys that only a race can violate: two new branches chose one name, or two claims one
/// branch. The next attempt sees the winner.
const RACES: [&str; 2] = [
    "branches_tree_id_thread_id_name_key",
    "one_running_per_branch",
];

/// A failed attempt.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database, the connection to it, or the pool.
    Database(tokio_postgres::Error),
    /// A retry would not help.
    Final(checkpoint::Error),
}

/// What an attempt returns.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<checkpoint::Error> for Failure {
    fn from(error: checkpoint::Error) -> Self {
        Self::Final(error)
    }
}

impl Failure {
    /// Whether the statement may succeed in a moment.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Database(error) => is_transient(error),
            Self::Final(_) => false,
        }
    }

    /// Whether another try is worth it: what ran into its time limit would do so again, and load the
    /// database once more.
    pub(crate) fn may_be_retried(&self) -> bool {
        self.is_transient() && !self.is_over_time()
    }

    /// Whether it concerns all that this connection does: the next statement would fail as well. Others
    /// stood in the way of that statement alone, or its own rows did.
    pub(crate) fn concerns_all(&self) -> bool {
        let of_one = ["40001", "40P01", "55P03", "57014"];
        match self {
            Self::Database(error) => {
                let code = error.code().map(SqlState::code);
                is_transient(error) && !code.is_some_and(|code| of_one.contains(&code))
            }
            Self::Final(_) => false,
        }
    }

    fn is_over_time(&self) -> bool {
        matches!(self, Self::Database(error) if error.code() == Some(&SqlState::QUERY_CANCELED))
    }

    /// Whether the connection is gone.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Database(error) => error.code().is_none() && is_transient(error),
            Self::Final(_) => false,
        }
    }

    pub(crate) fn into_error(self) -> checkpoint::Error {
        match self {
            Self::Final(error) => error,
            Self::Database(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                checkpoint::Error::TookTooLong
            }
            Self::Database(error) if is_transient(&error) => {
                checkpoint::Error::Unavailable(describe(&error))
            }
            Self::Database(error) => checkpoint::Error::Database(describe(&error)),
        }
    }
}

/// Connection lost, shutting down, read-only after a failover, out of room or of connections,
/// or in the way of another transaction.
fn is_transient(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else {
        // Without a code it is the connection that failed, unless our own parameters did.
        return error.is_closed() || is_io(error);
    };
    let code = code.code();
    if code == "23505" {
        let lost_race = |db: &tokio_postgres::error::DbError| {
            db.constraint().is_some_and(|name| RACES.contains(&name))
        };
        return error.as_db_error().is_some_and(lost_race);
    }
    ["08", "53", "57P"]
        .iter()
        .any(|class| code.starts_with(class))
        || ["25006", "40001", "40P01", "55P03", "57014"].contains(&code)
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<std::io::Error>() {
            return true;
        }
        source = cause.source();
    }
    error.to_string().contains("timeout waiting for server")
}

/// The server's message with its code, or the driver's message with its cause.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => match std::error::Error::source(error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    }
}
