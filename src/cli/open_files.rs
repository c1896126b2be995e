//! The limit of open files, which bounds how many connections the process may have.

/// Raises the soft limit to the hard one: many systems begin with 1,024, which is fewer than the
/// streams that a server may have.
#[cfg(unix)]
pub fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, limit = limit.current, "the limit of open files could not be raised");
    }
}

/// Other systems have none.
#[cfg(not(unix))]
pub fn raise_limit() {}
