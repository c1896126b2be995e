//! What a request brings along for its run, checked before anything else happens.

use super::metadata::check_metadata;
use crate::{
    assistants::Resolved,
    runs::{
        Error, Service,
        request::{self, Ids},
    },
    value::Value,
};

impl Service {
    /// Checks the ids of messages and the metadata of a request.
    ///
    /// # Errors
    /// 422: an id that messages cannot have, or too much metadata. Or the storage failed.
    pub(super) async fn check_contents(
        &self,
        ids: &Ids,
        resolved: &Resolved,
        request: &request::Run,
    ) -> Result<(), Error> {
        self.check_message_ids(ids.thread, &resolved.registered.graph, request)
            .await?;
        if request.cron.is_none() {
            let of_config = resolved.config().get("metadata");
            let of_assistant = (&resolved.metadata, of_config.and_then(Value::as_map));
            check_metadata(request, of_assistant, self.shared.parts.metadata)?;
        }
        Ok(())
    }
}
