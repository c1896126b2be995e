//! On whose behalf an operation is carried out, and the level on the tree that it takes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;

use super::Level;
use crate::{
    id::ThreadId,
    tree::{
        error::{Error, ErrorKind, Result},
        resolve,
        store::{Read, ThreadRow},
    },
};

/// On whose behalf an operation is carried out. It travels with the operation to the transaction
/// that acts and is checked there, under a lock that a change of rights takes too: the level may
/// change between the head of a request and its last byte, and while an operation waits.
#[derive(Clone, Debug, Default)]
pub struct Access {
    client: Option<Arc<Client>>,
    /// The level that the operation takes; every level without one.
    needed: Option<Level>,
}

/// A client that has a name.
#[derive(Debug)]
struct Client {
    principal: Arc<str>,
    /// The id of its request, for the log.
    request: Arc<str>,
    outcomes: Mutex<Outcomes>,
}

/// What the checks of one request have found.
#[derive(Debug, Default)]
struct Outcomes {
    /// Threads whose level was high enough, with the level that was needed.
    granted: HashMap<ThreadId, Level>,
    /// Threads that were read since the levels on them were confirmed.
    shown: HashSet<ThreadId>,
    refused: bool,
}

/// The principal has no level on the thread, or too low a one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    thread: ThreadId,
    needed: Level,
    level: Option<Level>,
}

impl Denied {
    /// The thread, if the principal may not even know that there is one.
    pub fn foreign(&self) -> Option<ThreadId> {
        match self.level {
            None => Some(self.thread),
            Some(_) => None,
        }
    }
}

impl From<Denied> for Error {
    /// 404 as for a thread that does not exist, or 403.
    fn from(denied: Denied) -> Self {
        let Some(level) = denied.level else {
            return resolve::thread_not_found(denied.thread);
        };
        let needed = denied.needed;
        let detail = format!("This takes the level {needed} on the thread, yours is {level}");
        Self::refused(ErrorKind::Forbidden, "forbidden", detail)
    }
}

impl Access {
    /// That of the server itself, and of every client while nobody authenticates: it may do
    /// everything.
    pub fn unrestricted() -> Self {
        Self::default()
    }

    /// That of a principal, for an operation that takes this level.
    pub fn of(principal: Arc<str>, request: Arc<str>, needed: Level) -> Self {
        Self {
            client: Some(Arc::new(Client {
                principal,
                request,
                outcomes: Mutex::default(),
            })),
            needed: Some(needed),
        }
    }

    /// That of the same client, for an operation that takes this level.
    pub fn at(&self, needed: Level) -> Self {
        Self {
            client: self.client.clone(),
            needed: Some(needed),
        }
    }

    /// Whose rights decide; `None` when everything is allowed.
    pub fn principal(&self) -> Option<&Arc<str>> {
        self.client.as_ref().map(|client| &client.principal)
    }

    /// The id of the client's request, for the log.
    pub fn request(&self) -> &str {
        self.client.as_ref().map_or("", |client| &client.request)
    }

    /// The level that the operation takes.
    pub fn needed(&self) -> Level {
        self.needed.unwrap_or(Level::Owner)
    }

    /// Records that the principal had the level on a thread, where a storage has checked it itself.
    pub fn record_grant(&self, thread: ThreadId) {
        if let Some(client) = &self.client {
            let mut outcomes = client.outcomes.lock();
            let highest = outcomes.granted.entry(thread).or_insert(self.needed());
            *highest = self.needed().max(*highest);
        }
    }

    /// Threads on which the request acted or which it has shown, with the levels that this took: who
    /// repeats it must have them still.
    pub fn granted(&self) -> Vec<(ThreadId, Level)> {
        let Some(client) = &self.client else {
            return vec![];
        };
        let outcomes = client.outcomes.lock();
        let granted = outcomes.granted.iter();
        granted.map(|(thread, level)| (*thread, *level)).collect()
    }

    /// Records that something was read of a thread which the principal may read.
    pub fn record_shown(&self, thread: ThreadId) {
        if let Some(client) = &self.client {
            client.outcomes.lock().shown.insert(thread);
        }
    }

    /// Threads that were read since this was last called. A level that was checked before a read
    /// may be withdrawn by its end: nothing is shown before these were checked after it.
    pub fn take_shown(&self) -> Vec<ThreadId> {
        let Some(client) = &self.client else {
            return vec![];
        };
        client.outcomes.lock().shown.drain().collect()
    }

    /// Whether a check of the request has failed.
    pub fn was_refused(&self) -> bool {
        let client = self.client.as_ref();
        client.is_some_and(|client| client.outcomes.lock().refused)
    }

    /// Checks the level that the principal has on a thread, and logs a refusal.
    ///
    /// # Errors
    /// It is none, or too low.
    pub fn check(&self, thread: ThreadId, level: Option<Level>) -> Result<(), Denied> {
        self.check_with_read(thread, level)?;
        self.record_shown(thread);
        Ok(())
    }

    /// The same where the level is as of the moment of all that was read: that need not be confirmed. Whoever
    /// reads more of the thread records it as shown.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_with_read(&self, thread: ThreadId, level: Option<Level>) -> Result<(), Denied> {
        let Some(client) = &self.client else {
            return Ok(());
        };
        let needed = self.needed();
        if level >= Some(needed) {
            self.record_grant(thread);
            return Ok(());
        }
        client.outcomes.lock().refused = true;
        tracing::info!(
            principal = %client.principal,
            request_id = %client.request,
            %thread,
            %needed,
            level = level.map(Level::as_str),
            "access was refused"
        );
        Err(Denied {
            thread,
            needed,
            level,
        })
    }

    /// Checks the level that the principal has on a thread now, and returns it; `None` when
    /// everything is allowed.
    ///
    /// # Errors
    /// 404 without a level, 403 with too low a one; or the storage failed.
    pub async fn check_in(&self, read: &mut dyn Read, thread: &ThreadRow) -> Result<Option<Level>> {
        let Some(principal) = self.principal() else {
            return Ok(None);
        };
        let level = read.level(thread.tree, principal.clone()).await?;
        self.check(thread.id, level)?;
        Ok(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_needs_the_level_and_the_server_needs_none() {
        let thread = ThreadId::mint();
        let bob = Access::of("bob".into(), "r".into(), Level::Writer);
        assert!(bob.check(thread, Some(Level::Writer)).is_ok());
        assert!(bob.check(thread, Some(Level::Owner)).is_ok());
        let low = bob.check(thread, Some(Level::Reader)).unwrap_err();
        assert_eq!(low.foreign(), None);
        let none = bob.check(thread, None).unwrap_err();
        assert_eq!(none.foreign(), Some(thread));
        assert!(
            bob.at(Level::Reader)
                .check(thread, Some(Level::Reader))
                .is_ok()
        );
        assert!(Access::unrestricted().check(thread, None).is_ok());
    }
}
