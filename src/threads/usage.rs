//! How much is stored of a thread.

use super::{Result, Service};
use crate::{id::ThreadId, tree::usage::Usage};

impl Service {
    /// How much is stored of a thread.
    ///
    /// # Errors
    /// No such thread, or none of the client's; or the storage failed.
    pub async fn usage(&self, id: ThreadId) -> Result<Usage> {
        let thread = self.row(id).await?;
        Ok(self.shared.parts.tree.usage(thread.tree, id).await?)
    }
}
