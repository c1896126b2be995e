//! Listing the messages of a path.

use crate::{
    id::ThreadId,
    threads::{Result, Service},
    tree::messages::page::{self, MessagePage},
};

impl Service {
    /// Reads a page of messages.
    ///
    /// # Errors
    /// 400 `invalid_id` or `invalid_cursor`, 404, 409 `no_messages_channel`, or the storage
    /// failed.
    pub async fn read_messages(
        &self,
        id: ThreadId,
        request: &page::PageRequest,
    ) -> Result<MessagePage> {
        let (mut reader, thread) = self.reader(id).await?;
        let target = self.shared.message_graph(&thread, None)?;
        let values = self.conversation_in(&thread, target.channel);
        Ok(page::read_page(&mut *reader, &values, &thread, request).await?)
    }
}
