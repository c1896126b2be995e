//! Several stateless runs of one request, created in one transaction: all of them or none.

use super::{PreparedRun, new_thread, refusal};
use crate::{
    id::{RunId, ThreadId},
    runs::{
        CreatedBatch, Error, Run, Service,
        request::{self, OnCompletion, Target, codec},
    },
    tree::{self, ErrorKind, members::Level},
};

/// Bytes that the requests of one batch may be stored in. The config of an assistant is stored with
/// each run, so that a small body can become much.
const BYTES_MAX: usize = 32 << 20;

impl Service {
    /// Creates stateless runs in one transaction; all are durable when this returns. Requests that
    /// have ids create each run once: repeated, they get the rows that are there.
    ///
    /// # Errors
    /// One of them cannot be created: no such assistant, or a request makes no sense; together they
    /// are too large; the storage failed. Then there is none of them.
    pub async fn create_batch(&self, mut requests: Vec<request::Run>) -> Result<Vec<Run>, Error> {
        let prepared = self.prepare_batch(&mut requests).await?;
        let ids: Vec<_> = prepared.iter().map(|run| run.id).collect();
        let runs: Vec<_> = prepared.into_iter().map(|run| run.new).collect();
        let targets: Vec<_> = runs
            .iter()
            .map(|new| Target {
                thread: new.thread,
                run: new.id,
            })
            .collect();
        let created = self.shared.parts.runs.create_runs(runs).await;
        let refused = match created {
            Ok(CreatedBatch::All(all)) => {
                let mut rows = Vec::with_capacity(all.len());
                for ((request, id), created) in requests.iter().zip(ids).zip(all) {
                    let row = self.launch(request, id, created).await?;
                    if !row.temporary {
                        request
                            .requester
                            .access
                            .at(Level::Writer)
                            .record_grant(row.thread);
                    }
                    rows.push(row);
                }
                return Ok(rows);
            }
            Ok(CreatedBatch::None(at, refused)) => {
                let refused = ids.get(at).and_then(|id| refusal(*id, &refused));
                refused.unwrap_or(Error::Busy)
            }
            Err(error) => error.into(),
        };
        for id in ids {
            self.discard(id);
        }
        match refused {
            Error::RunExists(_) if requests.iter().all(|request| request.id.is_some()) => {
                self.rows_of(&targets).await?.ok_or(refused)
            }
            refused => Err(refused),
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
            let built = self
                .build(ids, assistant, request, temporary)
                .and_then(|mut run| {
                    run.new.create_thread = new_thread(request, ids, None);
                    bytes += codec::encode(&run.new.kwargs, run.new.columns()).len();
                    prepared.push(run);
                    if bytes <= BYTES_MAX {
                        Ok(())
                    } else {
                        Err(too_large(at))
                    }
                });
            if let Err(error) = built {
                self.discard(ids.run);
                for run in &prepared {
                    self.discard(run.id);
                }
                return Err(error);
            }
        }
        Ok(prepared)
    }

    /// The rows of runs that were created before; `None` when one is not there any more.
    async fn rows_of(&self, targets: &[Target]) -> Result<Option<Vec<Run>>, Error> {
        let mut rows = Vec::with_capacity(targets.len());
        for target in targets {
            rows.extend(self.find_run(target.thread, target.run).await?);
        }
        Ok((rows.len() == targets.len()).then_some(rows))
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
