//! What is read of the stored requests of runs for a few of their fields: each request with memory, as long as
//! it is there.

use super::Shared;
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId},
    runs::{Run, request::Kwargs},
};

impl Shared {
    /// What `read` takes of the request of a run; nothing of the request may be retained that is large. `None` for a
    /// run that is not there, or whose request cannot be read.
    ///
    /// # Errors
    /// The storage failed.
    pub(crate) async fn of_request<T>(
        &self,
        thread: ThreadId,
        run: RunId,
        read: impl FnOnce(&Run, Kwargs) -> T + Send,
    ) -> Result<Option<T>, Error> {
        let runs = &self.parts.runs;
        let Some(weight) = runs.run_weight(thread, run).await? else {
            return Ok(None);
        };
        let _memory = self.states.for_request(weight).await;
        let row = runs.run(thread, run).await?;
        Ok(row.and_then(|row| {
            let kwargs = Kwargs::from_value(&row.kwargs).ok()?;
            Some(read(&row, kwargs))
        }))
    }
}
