//! What a storage does for assistants, and the rows it has.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    content::{Change, Content, Limits},
    request::{Columns, Filter, Search},
};
use crate::{checkpoint, id::AssistantId, time::Timestamp, value::Map};

/// The owner of the assistants that the server makes for its graphs.
pub const SYSTEM: &str = "";

/// An assistant with its active version.
#[derive(Clone, Debug, PartialEq)]
pub struct AssistantRow {
    /// Its id.
    pub id: AssistantId,
    /// Whose it is.
    pub owner: Arc<str>,
    /// The number of the active version.
    pub version: i32,
    /// The active version.
    pub content: Content,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A version of an assistant.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionRow {
    /// Its number.
    pub version: i32,
    /// What it consists of.
    pub content: Content,
    /// When it was made.
    pub created_at: Timestamp,
}

/// An assistant to be created.
#[derive(Clone, Debug)]
pub struct NewAssistant {
    /// Its id.
    pub id: AssistantId,
    /// Whose it is.
    pub owner: Arc<str>,
    /// Its first version.
    pub content: Content,
}

/// Which assistant an operation is about, and for whom it acts: its owner's and the server's are
/// seen, without a viewer all of them. Those of graphs that this process lacks are not.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The assistant.
    pub id: AssistantId,
    /// For whom.
    pub viewer: Option<Arc<str>>,
    /// The graphs of this process.
    pub graphs: Arc<[Arc<str>]>,
}

/// What became of a creation.
#[derive(Clone, Debug, PartialEq)]
pub enum CreatedAssistant {
    /// It was created.
    New(AssistantRow),
    /// Its id is taken.
    Exists(AssistantRow),
    /// Its owner has as many as it may.
    Full,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangedAssistant {
    /// It was made.
    Done(Box<AssistantRow>),
    /// There is no such assistant.
    Missing,
    /// It is one of the server's.
    System,
    /// There is no such version.
    NoVersion,
    /// It has as many versions as it may.
    TooManyVersions,
    /// The new version would have so many bytes.
    TooLarge(usize),
    /// The metadata would be too large, for this reason.
    Metadata(String),
}

/// A page of versions, as a client requests it.
#[derive(Clone, Debug)]
pub struct VersionQuery {
    /// Containment on metadata.
    pub metadata: Map,
    /// At most so many.
    pub limit: usize,
    /// How many come before them.
    pub offset: usize,
}

/// A storage of assistants. Each operation checks in its own transaction for whom it acts.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes the server's own assistants, and takes their ids from whoever has them.
    async fn put_system(&self, all: Vec<NewAssistant>) -> Result<(), checkpoint::Error>;

    /// Creates an assistant. Its owner has at most so many.
    async fn create_assistant(
        &self,
        new: NewAssistant,
        most: usize,
    ) -> Result<CreatedAssistant, checkpoint::Error>;

    /// One assistant.
    async fn assistant(&self, subject: Subject) -> Result<Option<AssistantRow>, checkpoint::Error>;

    /// Makes a new version and activates it.
    async fn change_assistant(
        &self,
        subject: Subject,
        change: Change,
        limits: Limits,
    ) -> Result<ChangedAssistant, checkpoint::Error>;

    /// Activates a version.
    async fn activate_version(
        &self,
        subject: Subject,
        version: i64,
    ) -> Result<ChangedAssistant, checkpoint::Error>;

    /// Deletes an assistant with its versions; returns what it was.
    async fn delete_assistant(
        &self,
        subject: Subject,
    ) -> Result<ChangedAssistant, checkpoint::Error>;

    /// A page of versions of an assistant, newest first: which ones, and how many bytes each has; `None`
    /// without such an assistant.
    async fn assistant_versions(
        &self,
        subject: Subject,
        query: VersionQuery,
    ) -> Result<Option<Vec<(i32, u64)>>, checkpoint::Error>;

    /// These versions of an assistant, newest first. One that is not there is left out, and all are
    /// without such an assistant.
    async fn versions(
        &self,
        subject: Subject,
        versions: Vec<i32>,
    ) -> Result<Vec<VersionRow>, checkpoint::Error>;

    /// A page of assistants: which ones, and how many bytes each has in these columns.
    async fn search_assistants(
        &self,
        search: Search,
        columns: Columns,
    ) -> Result<Vec<(AssistantId, u64)>, checkpoint::Error>;

    /// Assistants that a viewer sees, of these graphs, with these columns, in any order. One that is not there is
    /// left out.
    async fn assistants(
        &self,
        ids: Vec<AssistantId>,
        viewer: Option<Arc<str>>,
        graphs: Arc<[Arc<str>]>,
        columns: Columns,
    ) -> Result<Vec<AssistantRow>, checkpoint::Error>;

    /// How many assistants there are.
    async fn count_assistants(&self, filter: Filter) -> Result<u64, checkpoint::Error>;
}

/// The change of a version that a storage has read and locked: what it may become.
pub fn next_content(
    row: &AssistantRow,
    change: &Change,
    versions: i64,
    limits: Limits,
) -> Result<Content, ChangedAssistant> {
    if &*row.owner == SYSTEM {
        return Err(ChangedAssistant::System);
    }
    if usize::try_from(versions).is_ok_and(|versions| versions >= limits.versions) {
        return Err(ChangedAssistant::TooManyVersions);
    }
    let content = row.content.with(change);
    if let Some(excess) = limits.metadata.excess(&content.metadata) {
        return Err(ChangedAssistant::Metadata(excess));
    }
    let bytes = content.bytes();
    if bytes > limits.bytes {
        return Err(ChangedAssistant::TooLarge(bytes));
    }
    Ok(content)
}
