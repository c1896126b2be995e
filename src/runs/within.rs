//! Creating a run in a transaction that has more in it: made ready before, let go after.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Created, Error, NewRun, Run, Service, create,
    execute::known_context,
    live::{Held, Live},
    request::{self, Ids, Kwargs},
};
use crate::{
    graph::Compiled,
    id::{RunId, ThreadId, WorkerId},
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
        let metadata = create::run_metadata(request, &ids, false);
        let known = known_context(&registered.graph);
        let kwargs = Kwargs::of(request, &ids, &metadata, known, false);
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
            claim: self.claims(),
            said: Some(create::said(request)),
            thread_metadata: create::thread_metadata(&ids),
            thread_config: create::thread_config(request),
        };
        self.expect(&ids, request, registered.graph.clone(), false);
        Ok(Prepared {
            id: ids.run,
            new,
            kwargs,
        })
    }

    /// Makes the stream of a run that is about to be written. The worker may take the run
    /// before the storage's answer is here. [`discard`](Self::discard) takes it back.
    pub(super) fn expect(
        &self,
        ids: &Ids,
        request: &request::Run,
        graph: Arc<Compiled>,
        temporary: bool,
    ) -> Live {
        let publisher = Publisher::new(stream::Options {
            modes: request.stream_mode.clone(),
            temporary,
            subgraphs: request.stream_subgraphs,
            resumable: request.stream_resumable,
            ..stream::Options::new(ids.run, ids.thread, graph)
        });
        let held = Held::new(publisher.clone());
        let live = held.live.clone();
        self.inner.hub.insert(publisher);
        self.inner.active.lock().waiting.insert(ids.run, held);
        live
    }

    /// Who executes a new run at once, if its slot is free: nobody while there is no room.
    pub(super) fn claims(&self) -> Option<WorkerId> {
        let running = self.inner.active.lock().running.len();
        (running < self.inner.options.slots).then_some(self.inner.worker)
    }

    /// Lets a run go that is durable now; one that was refused is forgotten.
    pub(super) async fn launch(
        &self,
        request: &request::Run,
        run: RunId,
        created: Created,
    ) -> Result<Run, Error> {
        let (row, slot) = match created {
            Created::Started(row, slot) => (*row, Some(slot)),
            Created::Queued(row) => (*row, None),
            refusal => {
                self.discard(run);
                return Err(refused(run, &refusal).unwrap_or(Error::Busy));
            }
        };
        self.supersede(request, &row).await;
        match slot {
            Some(slot) => self.execute(row.clone(), slot, false),
            None => {
                if let Some(held) = self.inner.active.lock().waiting.get_mut(&run) {
                    held.since = Some(Instant::now());
                }
                self.inner.wake.notify_one();
            }
        }
        Ok(row)
    }

    /// Forgets a run that was not written.
    pub(super) fn discard(&self, run: RunId) {
        self.inner.active.lock().waiting.remove(&run);
        self.inner.hub.remove(run);
    }
}

/// Why a run was not created; nothing of one that was.
pub(super) fn refused(run: RunId, created: &Created) -> Option<Error> {
    match created {
        Created::Busy => Some(Error::Busy),
        Created::NoThread => Some(Error::NoThreadOrAssistant),
        Created::Exists => Some(Error::RunExists(run)),
        Created::Started(..) | Created::Queued(_) => None,
    }
}

fn stored(kwargs: &Kwargs) -> Result<Value, Error> {
    kwargs
        .to_value()
        .map_err(|error| Error::Invalid(error.to_string()))
}
