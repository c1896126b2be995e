//! The run service behind the handlers: branches, tags, rewinding and the like.

use std::sync::Arc;

use crate::{
    http::{Error, api::branches::Branches},
    id::ThreadId,
    runs::{
        Service,
        branches::{self, Branched, NewBranch},
    },
    tree::{Address, branch::SwitchPolicy, store::rows::Tag, tag},
};

#[async_trait::async_trait]
impl Branches for Service {
    async fn branches(&self, thread: ThreadId) -> Result<branches::Branches, Error> {
        Ok(Service::branches(self, thread).await?)
    }

    async fn make_branch(&self, thread: ThreadId, new: NewBranch) -> Result<Branched, Error> {
        Ok(Service::make_branch(self, thread, new).await?)
    }

    async fn activate_branch(
        &self,
        thread: ThreadId,
        name: Arc<str>,
        how: SwitchPolicy,
    ) -> Result<Branched, Error> {
        Ok(Service::activate_branch(self, thread, &name, how).await?)
    }

    async fn rename_branch(
        &self,
        thread: ThreadId,
        name: Arc<str>,
        to: Arc<str>,
    ) -> Result<Branched, Error> {
        Ok(Service::rename_branch(self, thread, &name, to).await?)
    }

    async fn delete_branch(&self, thread: ThreadId, name: Arc<str>) -> Result<(), Error> {
        Ok(Service::delete_branch(self, thread, &name).await?)
    }

    async fn set_tag(
        &self,
        thread: ThreadId,
        name: Arc<str>,
        at: Address,
    ) -> Result<tag::TagChange, Error> {
        Ok(Service::set_tag(self, thread, name, &at).await?)
    }

    async fn tags(&self, thread: ThreadId) -> Result<Vec<Tag>, Error> {
        Ok(Service::tags(self, thread).await?)
    }

    async fn tag(&self, thread: ThreadId, name: Arc<str>) -> Result<Tag, Error> {
        Ok(Service::tag(self, thread, &name).await?)
    }

    async fn delete_tag(&self, thread: ThreadId, name: Arc<str>) -> Result<(), Error> {
        Ok(Service::delete_tag(self, thread, &name).await?)
    }
}
