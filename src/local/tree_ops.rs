//! Branches, tags, forks and differences of a thread: the operations that HTTP has, by the same
//! services.

use std::sync::Arc;

use super::{Error, Thread, services};
use crate::{
    id::{CheckpointId, ThreadId},
    message::Message,
    threads::{
        self,
        branches::{BranchStart, NewBranch},
        forks::NewFork,
    },
    tree::{
        Address, address,
        branch::{BranchView, SwitchPolicy},
        diff::ChannelDiff,
        members::LOCAL_PRINCIPAL,
        messages::item::MessageItem,
    },
    value::Map,
};

/// A branch of a thread: a name for the newest checkpoint of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Unique in the thread.
    pub name: Arc<str>,
    /// Its newest checkpoint.
    pub head: Option<CheckpointId>,
    /// Runs of the thread go on here.
    pub is_active: bool,
    /// The id of its newest message.
    pub last_message: Option<Arc<str>>,
}

/// A name for one checkpoint of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Unique in the thread.
    pub name: Arc<str>,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
}

/// The difference between two states of a thread.
#[derive(Clone, Debug)]
pub struct Diff {
    /// The channels, that of the messages without values.
    pub channels: ChannelDiff,
    /// Messages that only the first state has.
    pub removed: Vec<Message>,
    /// Messages that only the second state has.
    pub added: Vec<Message>,
    /// Messages that differ: as the first state has them, and as the second has them.
    pub changed: Vec<(Message, Message)>,
}

/// The tree of a thread.
///
/// ```
/// use backstitch::{Local, prelude::*, run::Address};
///
/// #[derive(State)]
/// struct Story {
///     #[state(append)]
///     lines: Vec<String>,
/// }
///
/// async fn tell() {}
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let graph = Graph::<Story>::new().node("tell", tell).edge(START, "tell").build()?;
/// let thread = Local::memory()?.thread(&graph);
/// thread.invoke(Story::update().lines("They come to a fork.")).await?;
/// thread.tag("fork", Address::default()).await?;
/// thread.invoke(Story::update().lines("They go left.")).await?;
///
/// let other = thread.rewind(Address::tag("fork")).await?;
/// let right: Story = thread.invoke(Story::update().lines("They go right.")).await?.values()?;
/// assert_eq!(right.lines, ["They come to a fork.", "They go right."]);
/// let diff = thread.diff(Address::branch("main"), Address::branch(other.name.clone())).await?;
/// assert_eq!(diff.channels.changed["lines"]["from"][1], "They go left.");
///
/// thread.switch("main").await?;
/// let names: Vec<_> = thread.branches().await?.into_iter().map(|branch| branch.name).collect();
/// assert_eq!(names, ["main".into(), other.name]);
/// # anyhow::Ok(())
/// # }).unwrap();
/// ```
impl Thread {
    /// All branches, oldest first.
    ///
    /// # Errors
    /// Nothing was stored on the thread yet, or the storage failed.
    pub async fn branches(&self) -> Result<Vec<Branch>, Error> {
        let found = self.service()?.branches(self.id).await?;
        Ok(found.branches.into_iter().map(Branch::from).collect())
    }

    /// Makes a branch of this name at an address; the active branch stays active.
    ///
    /// # Errors
    /// The thread has no such address, or a branch of this name.
    pub async fn branch(&self, name: &str, at: impl Into<Address>) -> Result<Branch, Error> {
        let name = address::parse_name(name).map_err(threads::Error::from)?;
        self.make(NewBranch {
            from: BranchStart::Address(at.into()),
            name: Some(name),
            origin: "checkpoint",
            activate: None,
        })
        .await
    }

    /// Goes back to an address: makes a branch there, and makes it the active one.
    ///
    /// # Errors
    /// The thread has no such address, or a run of it is under way.
    pub async fn rewind(&self, to: impl Into<Address>) -> Result<Branch, Error> {
        self.must_rest()?;
        self.make(NewBranch {
            from: BranchStart::Address(to.into()),
            name: None,
            origin: "rewind",
            activate: Some(SwitchPolicy::FLOAT),
        })
        .await
    }

    /// Makes a branch the active one: the next run goes on there.
    ///
    /// # Errors
    /// The thread has no such branch, or a run of it is under way.
    pub async fn switch(&self, branch: &str) -> Result<Branch, Error> {
        self.must_rest()?;
        let service = self.service()?;
        let switched = service.activate_branch(self.id, branch, SwitchPolicy::FLOAT);
        Ok(Box::pin(switched).await?.branch.into())
    }

    /// Deletes a branch that is not the active one; its checkpoints stay.
    ///
    /// # Errors
    /// The thread has no such branch, or a run of it is under way.
    pub async fn delete_branch(&self, name: &str) -> Result<(), Error> {
        self.must_rest()?;
        Ok(self.service()?.delete_branch(self.id, name).await?)
    }

    /// All tags, by name.
    ///
    /// # Errors
    /// Nothing was stored on the thread yet, or the storage failed.
    pub async fn tags(&self) -> Result<Vec<Tag>, Error> {
        let found = self.service()?.tags(self.id).await?;
        let tag = |tag: crate::tree::store::rows::Tag| Tag {
            name: tag.name,
            checkpoint: tag.checkpoint,
        };
        Ok(found.into_iter().map(tag).collect())
    }

    /// Names the checkpoint at an address; `Address::default()` is that of the active branch. A tag of
    /// this name moves there.
    ///
    /// # Errors
    /// The thread has no such address, or no name can look like this.
    pub async fn tag(&self, name: &str, at: impl Into<Address>) -> Result<Tag, Error> {
        let name = address::parse_name(name).map_err(threads::Error::from)?;
        let service = self.service()?;
        let (address, id) = (at.into(), self.id);
        let set = Box::pin(service.set_tag(id, name, &address)).await?.tag;
        Ok(Tag {
            name: set.name,
            checkpoint: set.checkpoint,
        })
    }

    /// Deletes a tag.
    ///
    /// # Errors
    /// The thread has no such tag.
    pub async fn delete_tag(&self, name: &str) -> Result<(), Error> {
        Ok(self.service()?.delete_tag(self.id, name).await?)
    }

    /// Compares the states at two addresses.
    ///
    /// # Errors
    /// The thread has no such address.
    pub async fn diff(
        &self,
        from: impl Into<Address>,
        to: impl Into<Address>,
    ) -> Result<Diff, Error> {
        let (from, to, service) = (from.into(), to.into(), self.service()?);
        let found = Box::pin(service.compare(self.id, &from, &to)).await?;
        let pair = |(old, new)| Some((message(old)?, message(new)?));
        Ok(Diff {
            channels: found.channels,
            removed: found.removed.into_iter().filter_map(message).collect(),
            added: found.added.into_iter().filter_map(message).collect(),
            changed: found.changed.into_iter().filter_map(pair).collect(),
        })
    }

    /// A new thread that shares the path of this one up to an address. Nothing is copied.
    ///
    /// # Errors
    /// The thread has no such address.
    pub async fn fork(&self, at: impl Into<Address>) -> Result<Self, Error> {
        let id = ThreadId::mint();
        let new = NewFork {
            source: self.id,
            at: at.into(),
            id: Some(id),
            id_of_key: None,
            metadata: Map::new(),
            by: LOCAL_PRINCIPAL.into(),
        };
        Box::pin(self.service()?.fork(new)).await?;
        Ok(Self { id, ..self.clone() })
    }

    async fn make(&self, new: NewBranch) -> Result<Branch, Error> {
        let service = self.service()?;
        let made = Box::pin(service.make_branch(self.id, new)).await?;
        Ok(made.branch.into())
    }

    fn service(&self) -> Result<threads::Service, Error> {
        match &self.services {
            Some(parts) => Ok(services::threads(parts, &self.graph)),
            None => Err(Error::Open("this storage has checkpoints only".to_owned())),
        }
    }

    fn must_rest(&self) -> Result<(), Error> {
        if self.shared.running.lock().contains(&self.id) {
            return Err(Error::Running(self.id));
        }
        Ok(())
    }
}

fn message(item: MessageItem) -> Option<Message> {
    Message::try_from(item.message?).ok()
}

impl From<BranchView> for Branch {
    fn from(view: BranchView) -> Self {
        Self {
            name: view.row.name,
            head: view.row.head,
            is_active: view.is_active,
            last_message: view.head_message,
        }
    }
}
