//! The stream and the handle of a run that is being written: they are there before its row is.

use std::{fmt, sync::Arc};

use crate::{
    id::RunId,
    runs::{Error, RunHandle, Service, active::PendingRun},
    stream::Publisher,
};

/// Owns the stream and the handle of a new run until its row is written. Dropping it takes back what nobody else
/// has taken over, so that a creation which fails or panics leaves nothing.
pub(crate) struct Registration {
    service: Service,
    publisher: Arc<Publisher>,
    is_written: bool,
}

impl Service {
    /// Registers a run of this process that is about to be written.
    ///
    /// # Errors
    /// [`Error::RunExists`]: there is one with its id here, as when a request is repeated whose response was lost.
    pub(super) fn register(
        &self,
        publisher: &Arc<Publisher>,
        principal: Option<Arc<str>>,
    ) -> Result<(Registration, RunHandle), Error> {
        let run = publisher.run();
        let pending = PendingRun::new(publisher.clone(), principal, self.new_lead());
        let handle = pending.handle.clone();
        let mut active = self.inner.active.lock();
        if active.get(run).is_some() || !self.inner.hub.insert(publisher) {
            return Err(Error::RunExists(run));
        }
        active.pending.insert(run, pending);
        drop(active);
        let registration = Registration {
            service: self.clone(),
            publisher: publisher.clone(),
            is_written: false,
        };
        Ok((registration, handle))
    }
}

impl Registration {
    /// The id of the run.
    pub fn run(&self) -> RunId {
        self.publisher.run()
    }

    /// The row of the run is written: what is registered belongs to the run from now on.
    pub(super) fn keep(mut self) {
        self.is_written = true;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.is_written {
            return;
        }
        let (inner, run) = (&self.service.inner, self.run());
        // Also when somebody has ended the run meanwhile; one that has begun has given it back already.
        self.service.release_slot(run);
        let mut active = inner.active.lock();
        let pending = active.pending.get(&run);
        // A worker may have begun the run already, of which only the response was lost.
        let is_own = pending.is_some_and(|one| Arc::ptr_eq(&one.handle.publisher, &self.publisher));
        if !is_own {
            return;
        }
        active.pending.remove(&run);
        drop(active);
        inner.hub.remove(&self.publisher);
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.run()).finish()
    }
}
