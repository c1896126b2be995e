//! Several stateless runs of one request, created in one transaction: all of them or none.

use super::{PreparedRun, refusal};
use crate::{
    id::{RunId, ThreadId},
    runs::{
        CreatedBatch, Error, Run, Service,
        request::{self, OnCompletion, Target, codec},
        shared::memory::ReadMemory,
    },
    tree::{self, ErrorKind, members::Level},
};

/// Bytes that the requests of one batch may be stored in. The config of an assistant is stored with
/// each run, so that a small body can become much.
const BYTES_MAX: usize = 32 << 20;

impl Service {
    /// Creates stateless runs in one transaction; all are durable when this returns. Requests that
    /// have ids create each run once: repeated, they get the rows that are there, which take this memory.
    ///
    /// # Errors
    /// One of them cannot be created: no such assistant, or a request makes no sense; together they
    /// are too large; the storage failed. Then there is none of them. Or there is no memory for those that are there.
    pub async fn create_batch(
        &self,
        mut requests: Vec<request::Run>,
        memory: &ReadMemory,
    ) -> Result<Vec<Run>, Error> {
        let repeated: Option<Vec<_>> = requests.iter().map(|request| request.id).collect();
        let refused = match self.create_together(&mut requests).await {
            Err(refused @ Error::RunExists(_)) => refused,
            created => return created,
        };
        match repeated {
            Some(ids) => self.rows_of(&ids, memory).await?.ok_or(refused),
            None => Err(refused),
        }
    }

    async fn create_together(&self, requests: &mut [request::Run]) -> Result<Vec<Run>, Error> {
        let prepared = self.prepare_batch(requests).await?;
        let (runs, registrations): (Vec<_>, Vec<_>) = prepared
            .into_iter()
            .map(|run| (run.new, run.registration))
            .unzip();
        match self.shared.parts.runs.create_runs(runs).await? {
            CreatedBatch::All(all) => {
                let mut rows = Vec::with_capacity(all.len());
                let own = requests.iter().zip(registrations);
                for ((request, registration), created) in own.zip(all) {
                    let row = self.launch(request, registration, created).await?;
                    if !row.temporary {
                        request
                            .requester
                            .access
                            .at(Level::Writer)
                            .record_grant(row.thread);
                    }
                    rows.push(row);
                }
                Ok(rows)
            }
            CreatedBatch::None(at, refused) => {
                let one = registrations.get(at);
                let refused = one.and_then(|one| refusal(one.run(), &refused));
                Err(refused.unwrap_or(Error::Busy))
            }
        }
    }

    /// Prepares all runs, or none.
    async fn prepare_batch(
        &self,
        requests: &mut [request::Run],
    ) -> Result<Vec<PreparedRun>, Error> {
        let mut resolved = Vec::with_capacity(requests.len());
        for request in requests.iter_mut() {
            let run = request.id.unwrap_or_else(RunId::mint);
            let thread = request.id.map_or_else(ThreadId::mint, ThreadId::of_run);
            resolved.push(self.ids(run, thread, request).await?);
            if let Some(command) = &request.command {
                request::Command::parse(command).map_err(Error::Invalid)?;
            }
        }
        let (mut prepared, mut bytes) = (Vec::<PreparedRun>::with_capacity(requests.len()), 0);
        for (at, (request, (ids, assistant))) in requests.iter().zip(&resolved).enumerate() {
            let temporary = request.on_completion == OnCompletion::Delete;
            self.check_contents(ids, assistant, request).await?;
            let mut run = self.build(ids, assistant, request, temporary)?;
            run.new.create_thread = self.new_thread(request, ids, None, temporary);
            let format = self.shared.parts.saver.format();
            let encoded = codec::encode(&run.new.kwargs, run.new.columns(), format);
            bytes += encoded.bytes.len();
            if bytes > BYTES_MAX {
                return Err(too_large(at));
            }
            prepared.push(run);
        }
        Ok(prepared)
    }

    /// The rows of runs that were created before; `None` when one is not there any more.
    async fn rows_of(&self, ids: &[RunId], memory: &ReadMemory) -> Result<Option<Vec<Run>>, Error> {
        let mut rows = Vec::with_capacity(ids.len());
        for id in ids {
            let run = Target {
                thread: ThreadId::of_run(*id),
                run: *id,
            };
            rows.extend(self.read_run(run, memory).await?);
        }
        Ok((rows.len() == ids.len()).then_some(rows))
    }
}

fn too_large(at: usize) -> Error {
    let detail = format!(
        "The first {} runs take more than {} MiB with the config of their assistants: send fewer \
         in one batch",
        at + 1,
        BYTES_MAX >> 20
    );
    tree::Error::refused(ErrorKind::TooLarge, "too_large", detail).into()
}
