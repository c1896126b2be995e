//! What the handlers ask: the event log, heads, trees of messages, differences, and requests that
//! take effect once.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::{
    http::Error,
    id::ThreadId,
    runs::{
        compare::Difference,
        keys::{Begun, Key},
        log::{Page, Range, Told},
        outline::{Head, Outline, Wanted},
    },
    tree::{Address, projection::Projection},
};

/// The event log, heads, trees of messages, differences, and requests that take effect once.
#[async_trait]
pub trait Events: Send + Sync + 'static {
    /// Claims a key for a request; waits while another one with it is carried out.
    async fn begin_once(&self, _key: Key, _request: [u8; 16]) -> Result<Begun, Error> {
        Err(Error::unsupported())
    }

    /// Something may have happened in a thread.
    fn told_of(&self, _thread: ThreadId) {}

    /// Events of a thread.
    async fn events(&self, _thread: ThreadId, _range: Range) -> Result<Page, Error> {
        Err(Error::unsupported())
    }

    /// Events of a thread after a number, those to come too.
    async fn follow(
        &self,
        _thread: ThreadId,
        _after: i64,
        _inherited: bool,
    ) -> Result<mpsc::Receiver<Told>, Error> {
        Err(Error::unsupported())
    }

    /// Where a branch stands, or the active one.
    async fn head(&self, _thread: ThreadId, _branch: Option<Arc<str>>) -> Result<Head, Error> {
        Err(Error::unsupported())
    }

    /// A thread as a tree.
    async fn outline(&self, _thread: ThreadId, _wanted: Wanted) -> Result<Outline, Error> {
        Err(Error::unsupported())
    }

    /// What differs between two states of a thread.
    async fn compare(
        &self,
        _thread: ThreadId,
        _from: Address,
        _to: Address,
    ) -> Result<Difference, Error> {
        Err(Error::unsupported())
    }

    /// Makes derived tables anew in the background.
    async fn rebuild(
        &self,
        _projection: Option<Projection>,
        _thread: Option<ThreadId>,
    ) -> Result<(), Error> {
        Err(Error::unsupported())
    }
}
