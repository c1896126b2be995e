//! What the handlers ask: messages of threads.

use crate::{
    http::Error,
    id::ThreadId,
    runs::messages::{Answer, NewMessage, NewPost, Sent},
    tree::messages::page::{MessagePage, PageRequest},
};

/// Messages of threads.
#[async_trait::async_trait]
pub trait Messages: Send + Sync + 'static {
    /// Stores messages, with a run that answers them when it is asked for.
    async fn post_messages(&self, _thread: ThreadId, _new: NewPost) -> Result<Answer, Error> {
        Err(Error::unsupported())
    }
    /// A page of the messages of a path.
    async fn read_messages(
        &self,
        _thread: ThreadId,
        _request: PageRequest,
    ) -> Result<MessagePage, Error> {
        Err(Error::unsupported())
    }
    /// Sends a message of the user to be answered later.
    async fn send_message(&self, _new: NewMessage) -> Result<Sent, Error> {
        Err(Error::unsupported())
    }
}
