//! What the handlers ask: branches, tags, rewinding and the like.

use std::sync::Arc;

use crate::{
    http::Error,
    id::ThreadId,
    runs::branches::{self, Branched, NewBranch},
    tree::{Address, branch::SwitchPolicy, store::rows::Tag, tag},
};

/// Branches, tags, rewinding and the like.
#[async_trait::async_trait]
pub trait Branches: Send + Sync + 'static {
    /// Branches, leaves and forks of a thread.
    async fn branches(&self, _thread: ThreadId) -> Result<branches::Branches, Error> {
        Err(Error::unsupported())
    }
    /// Makes a branch.
    async fn make_branch(&self, _thread: ThreadId, _new: NewBranch) -> Result<Branched, Error> {
        Err(Error::unsupported())
    }
    /// Makes a branch the active one.
    async fn activate_branch(
        &self,
        _thread: ThreadId,
        _name: Arc<str>,
        _how: SwitchPolicy,
    ) -> Result<Branched, Error> {
        Err(Error::unsupported())
    }
    /// Gives a branch another name.
    async fn rename_branch(
        &self,
        _thread: ThreadId,
        _name: Arc<str>,
        _to: Arc<str>,
    ) -> Result<Branched, Error> {
        Err(Error::unsupported())
    }
    /// Deletes the pointer of a branch.
    async fn delete_branch(&self, _thread: ThreadId, _name: Arc<str>) -> Result<(), Error> {
        Err(Error::unsupported())
    }
    /// Names a place.
    async fn set_tag(
        &self,
        _thread: ThreadId,
        _name: Arc<str>,
        _at: Address,
    ) -> Result<tag::TagChange, Error> {
        Err(Error::unsupported())
    }
    /// Tags by name.
    async fn tags(&self, _thread: ThreadId) -> Result<Vec<Tag>, Error> {
        Err(Error::unsupported())
    }
    /// One tag.
    async fn tag(&self, _thread: ThreadId, _name: Arc<str>) -> Result<Tag, Error> {
        Err(Error::unsupported())
    }
    /// Deletes a tag.
    async fn delete_tag(&self, _thread: ThreadId, _name: Arc<str>) -> Result<(), Error> {
        Err(Error::unsupported())
    }
}
