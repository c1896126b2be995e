//! The run service behind the handlers: forks, members, and the life of threads beyond one run.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    http::{
        Error,
        api::forks::{CreatedThread, Forks},
    },
    id::ThreadId,
    runs::{
        Service,
        forks::{Family, Forked, NewFork},
        request::threads::Create,
    },
    tree::{
        event,
        members::{Granted, Level, Member},
    },
};

#[async_trait]
impl Forks for Service {
    async fn command_thread(&self, create: Create) -> Result<CreatedThread, Error> {
        let view = crate::http::Api::create_thread(self, create).await;
        let id = view
            .map_err(|error| match error.status.as_u16() {
                // Errors of our own commands have codes.
                409 if error.code.is_none() => error.with_code("thread_exists"),
                _ => error,
            })?
            .row
            .id;
        let event_number = self.last_event(id).await?;
        Ok(CreatedThread {
            id,
            event: event::id(id, event_number),
            event_number,
        })
    }

    async fn fork(&self, new: NewFork) -> Result<Forked, Error> {
        Ok(Service::fork(self, new).await?)
    }

    async fn family(&self, thread: ThreadId) -> Result<Family, Error> {
        Ok(Service::family(self, thread).await?)
    }

    async fn delete_tree(&self, thread: ThreadId) -> Result<Vec<ThreadId>, Error> {
        Ok(Service::delete_family(self, thread).await?)
    }

    async fn relatives(&self, thread: ThreadId) -> Result<Vec<ThreadId>, Error> {
        Ok(Service::living_relatives(self, thread).await?)
    }

    async fn level(&self, thread: ThreadId, principal: Arc<str>) -> Result<Option<Level>, Error> {
        Ok(Service::level(self, thread, principal).await?)
    }

    async fn is_taken(&self, thread: ThreadId) -> Result<bool, Error> {
        Ok(Service::is_taken(self, thread).await?)
    }

    async fn members(&self, thread: ThreadId) -> Result<Vec<Member>, Error> {
        Ok(Service::members(self, thread).await?)
    }

    async fn grant(
        &self,
        thread: ThreadId,
        principal: Arc<str>,
        level: Level,
        by: Option<Level>,
    ) -> Result<(Granted, i64), Error> {
        Ok(Service::grant(self, thread, &principal, level, by).await?)
    }

    async fn revoke(
        &self,
        thread: ThreadId,
        principal: Arc<str>,
        by: Option<Level>,
    ) -> Result<(), Error> {
        Ok(Service::revoke(self, thread, &principal, by).await?)
    }
}
