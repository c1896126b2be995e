//! The run service behind the handlers: the event log, heads, trees of messages, differences.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::{
    http::{Error, api::events::Events},
    id::ThreadId,
    runs::{
        Service,
        compare::Difference,
        keys::{Begun, Key},
        log::{Page, Range, Told},
        outline::{Head, Outline, Wanted},
    },
    tree::{Address, projection::Projection},
};

#[async_trait]
impl Events for Service {
    async fn begin_once(&self, key: Key, request: [u8; 16]) -> Result<Begun, Error> {
        Ok(Service::begin_once(self, key, request).await?)
    }

    fn told_of(&self, thread: ThreadId) {
        Service::told_of(self, thread);
    }

    async fn events(&self, thread: ThreadId, range: Range) -> Result<Page, Error> {
        Ok(Service::events(self, thread, range).await?)
    }

    async fn follow(
        &self,
        thread: ThreadId,
        after: i64,
        inherited: bool,
    ) -> Result<mpsc::Receiver<Told>, Error> {
        Ok(Service::follow(self, thread, after, inherited).await?)
    }

    async fn head(&self, thread: ThreadId, branch: Option<Arc<str>>) -> Result<Head, Error> {
        Ok(Service::head(self, thread, branch.as_deref()).await?)
    }

    async fn outline(&self, thread: ThreadId, wanted: Wanted) -> Result<Outline, Error> {
        Ok(Service::outline(self, thread, wanted).await?)
    }

    async fn compare(
        &self,
        thread: ThreadId,
        from: Address,
        to: Address,
    ) -> Result<Difference, Error> {
        Ok(Service::compare(self, thread, &from, &to).await?)
    }

    async fn rebuild(
        &self,
        projection: Option<Projection>,
        thread: Option<ThreadId>,
    ) -> Result<(), Error> {
        Ok(Service::rebuild(self, projection, thread).await?)
    }
}
