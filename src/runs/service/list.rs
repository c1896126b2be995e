//! Lists of a thread's runs, of whose requests no more is read than is shown.

use super::Service;
use crate::{
    id::{RunId, ThreadId},
    runs::{Error, Listing, Run, Status},
    tree::{load::AT_ONCE, members::Access},
};

/// What a thread's runs weigh at most that are read at once.
const RUNS_AT_ONCE: u64 = 4 * AT_ONCE;

/// What of the requests of runs is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPart {
    /// Nothing: `kwargs` is null, and there is no metadata.
    Nothing,
    /// The metadata. The request is read with it only where that is small.
    Metadata,
    /// All of it.
    Whole,
}

impl Service {
    /// Runs of a thread, newest first, with this part of their requests.
    ///
    /// # Errors
    /// No such thread, or none of the client's; or the storage failed.
    pub async fn list(
        &self,
        access: &Access,
        thread: ThreadId,
        status: Option<Status>,
        (limit, offset): (usize, usize),
        part: RequestPart,
    ) -> Result<Listing<Run, Error>, Error> {
        self.authorize(access, thread).await?;
        self.shared.thread(thread).await?;
        let runs = &self.shared.parts.runs;
        let weights = match part {
            RequestPart::Nothing => {
                let found = runs.runs_without_requests(thread, status, limit, offset);
                return Ok(Listing::of(found.await?, 0));
            }
            RequestPart::Metadata => runs.metadata_weights(thread, status, limit, offset).await?,
            RequestPart::Whole => runs.run_weights(thread, status, limit, offset).await?,
        };
        let total = weights.iter().map(|(_, weight)| weight).sum();
        let largest = weights.iter().map(|(_, weight)| *weight).max().unwrap_or(0);
        let (service, access) = (self.clone(), access.clone());
        if total <= RUNS_AT_ONCE {
            // Once there is memory for them.
            let items = async_stream::try_stream! {
                for run in service.page(thread, status, (limit, offset), part).await? {
                    access.record_shown(thread);
                    yield run;
                }
            };
            return Ok(Listing {
                largest,
                at_once: total,
                items: Box::pin(items),
            });
        }
        let items = async_stream::try_stream! {
            for (id, _) in weights {
                // One that was deleted meanwhile is left out.
                if let Some(run) = service.part_of(thread, id, part).await? {
                    access.record_shown(thread);
                    yield run;
                }
            }
        };
        Ok(Listing {
            largest,
            at_once: largest,
            items: Box::pin(items),
        })
    }

    async fn page(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        (limit, offset): (usize, usize),
        part: RequestPart,
    ) -> Result<Vec<Run>, Error> {
        let runs = &self.shared.parts.runs;
        Ok(match part {
            RequestPart::Nothing => {
                runs.runs_without_requests(thread, status, limit, offset)
                    .await?
            }
            RequestPart::Metadata => {
                runs.runs_with_metadata(thread, status, limit, offset)
                    .await?
            }
            RequestPart::Whole => runs.runs(thread, status, limit, offset).await?,
        })
    }

    async fn part_of(
        &self,
        thread: ThreadId,
        run: RunId,
        part: RequestPart,
    ) -> Result<Option<Run>, Error> {
        let runs = &self.shared.parts.runs;
        Ok(match part {
            RequestPart::Nothing => runs.run_without_request(thread, run).await?,
            RequestPart::Metadata => runs.run_with_metadata(thread, run).await?,
            RequestPart::Whole => runs.run(thread, run).await?,
        })
    }
}
