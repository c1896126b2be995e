//! Creating a run in a transaction that has more in it: made ready before, let go after.

use std::sync::Arc;

use super::{
    Created, Error, NewRun, Service, create,
    live::Held,
    request::{self, Ids, Kwargs},
};
use crate::{
    id::{RunId, ThreadId},
    stream::{self, Publisher},
    value::Value,
};

/// A run that is not written yet. Its stream is there already, since the worker may take the run
/// before the storage's answer is here.
pub(super) struct Prepared {
    /// Its id.
    pub id: RunId,
    /// The row to write.
    pub new: NewRun,
    kwargs: Kwargs,
}

impl Prepared {
    /// Notes that the event of a message of the input is written already.
    pub fn announce(&mut self, message: &Arc<str>, number: i64) -> Result<(), Error> {
        let announced = self.kwargs.announced.get_or_insert_default();
        announced.insert(message.clone(), Value::Int(number));
        self.new.kwargs = stored(&self.kwargs)?;
        Ok(())
    }
}

impl Service {
    /// Makes a run ready. [`launch`](Self::launch) or [`discard`](Self::discard) must follow.
    pub(super) fn prepare(
        &self,
        thread: ThreadId,
        request: &request::Run,
    ) -> Result<Prepared, Error> {
        if self.inner.drain.is_cancelled() {
            return Err(Error::Draining);
        }
        let (assistant, registered) = self.registered(&request.assistant)?;
        let ids = Ids {
            run: RunId::mint(),
            thread,
            assistant,
            graph: registered.name.clone(),
        };
        let metadata = create::run_metadata(request, &ids);
        let kwargs = Kwargs::of(request, &ids, &metadata, false);
        let publisher = Publisher::new(stream::Options {
            run: ids.run,
            thread,
            attempt: 1,
            modes: request.stream_mode.clone(),
            subgraphs: request.stream_subgraphs,
            resumable: request.stream_resumable,
            graph: registered.graph.clone(),
            branch_in_metadata: None,
            after: 0,
            held: false,
            limits: stream::Limits::default(),
        });
        let new = NewRun {
            id: ids.run,
            thread,
            create_thread: None,
            assistant,
            metadata,
            kwargs: stored(&kwargs)?,
            address: None,
            branch: None,
            strategy: request.multitask_strategy,
            after: request.after,
            temporary: false,
            claim: Some(self.inner.worker),
            thread_metadata: create::thread_metadata(&ids),
            thread_config: create::thread_config(request),
        };
        let held = Held::new(publisher.clone());
        self.inner.hub.insert(publisher);
        self.inner.active.lock().waiting.insert(ids.run, held);
        Ok(Prepared {
            id: ids.run,
            new,
            kwargs,
        })
    }

    /// Lets a run go that is durable now.
    pub(super) async fn launch(
        &self,
        request: &request::Run,
        run: RunId,
        created: Created,
    ) -> Result<(), Error> {
        match created {
            Created::Started(row, slot) => {
                self.supersede(request, &row).await;
                self.execute(*row, slot, false);
                Ok(())
            }
            Created::Queued(row) => {
                self.supersede(request, &row).await;
                self.inner.wake.notify_one();
                Ok(())
            }
            other => {
                self.discard(run);
                refused(run, Some(&other))
            }
        }
    }

    /// Forgets a run that was not written.
    pub(super) fn discard(&self, run: RunId) {
        self.inner.active.lock().waiting.remove(&run);
        self.inner.hub.remove(run);
    }
}

/// Why a run was not created.
pub(super) fn refused(run: RunId, created: Option<&Created>) -> Result<(), Error> {
    match created {
        Some(Created::Busy) => Err(Error::Busy),
        Some(Created::NoThread) => Err(Error::NoThreadOrAssistant),
        Some(Created::Exists) => Err(Error::RunExists(run)),
        Some(Created::Started(..) | Created::Queued(_)) | None => Ok(()),
    }
}

fn stored(kwargs: &Kwargs) -> Result<Value, Error> {
    kwargs
        .to_value()
        .map_err(|error| Error::Invalid(error.to_string()))
}
