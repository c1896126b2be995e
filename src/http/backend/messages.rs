//! The run service behind the handlers: messages of threads.

use crate::{
    http::{Error, api::messages::Messages},
    id::ThreadId,
    runs::{
        Service,
        messages::{Answer, NewMessage, NewPost, Sent},
    },
    tree::messages::page::{Page, Request},
};

#[async_trait::async_trait]
impl Messages for Service {
    async fn post_messages(&self, thread: ThreadId, new: NewPost) -> Result<Answer, Error> {
        Ok(Service::post_messages(self, thread, new).await?)
    }

    async fn read_messages(&self, thread: ThreadId, request: Request) -> Result<Page, Error> {
        Ok(Service::read_messages(self, thread, &request).await?)
    }

    async fn send_message(&self, new: NewMessage) -> Result<Sent, Error> {
        Ok(Service::send_message(self, new).await?)
    }
}
