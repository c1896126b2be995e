//! The run service behind the handlers: messages of threads.

use crate::{
    http::{Error, api::messages::Messages},
    id::ThreadId,
    runs::{
        Service,
        messages::{Answer, NewMessage, NewPost, Sent},
    },
    tree::messages::page::{MessagePage, PageRequest},
};

#[async_trait::async_trait]
impl Messages for Service {
    async fn post_messages(&self, thread: ThreadId, new: NewPost) -> Result<Answer, Error> {
        Ok(Service::post_messages(self, thread, new).await?)
    }

    async fn read_messages(
        &self,
        thread: ThreadId,
        request: PageRequest,
    ) -> Result<MessagePage, Error> {
        Ok(Service::read_messages(self, thread, &request).await?)
    }

    async fn send_message(&self, new: NewMessage) -> Result<Sent, Error> {
        Ok(Service::send_message(self, new).await?)
    }
}
