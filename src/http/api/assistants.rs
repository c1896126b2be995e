//! Requests about assistants.

use crate::{id::AssistantId, tree::IfExists, value::Map};

/// Order of a list of assistants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortBy {
    /// By id.
    AssistantId,
    /// By creation.
    #[default]
    CreatedAt,
    /// By last change.
    UpdatedAt,
    /// By name.
    Name,
    /// By graph.
    GraphId,
}

/// Which assistants to count or list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Containment on metadata.
    pub metadata: Map,
    /// Only of this graph.
    pub graph_id: Option<String>,
    /// Only those whose name contains this, whatever its case.
    pub name: Option<String>,
}

/// A page of assistants.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Which ones.
    pub filter: Filter,
    /// At most so many; one more than the client asked, to know whether there are more.
    pub limit: usize,
    /// How many to skip.
    pub offset: usize,
    /// Order.
    pub sort_by: SortBy,
    /// Smallest first.
    pub ascending: bool,
}

/// An assistant to create.
#[derive(Clone, Debug)]
pub struct Create {
    /// Its id; `None` for a new one.
    pub id: Option<AssistantId>,
    /// What to do when the id is taken.
    pub if_exists: IfExists,
    /// Its graph.
    pub graph_id: String,
    /// Everything else; `name` without one is `Untitled`.
    pub content: Content,
}

/// What a version of an assistant consists of; fields not given are `None`.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Shown name.
    pub name: Option<String>,
    /// Shown description.
    pub description: Option<String>,
    /// Run config; `configurable` and `context` mirror each other, and at most one is given.
    pub config: Option<Map>,
    /// Static context.
    pub context: Option<Map>,
    /// Client's metadata.
    pub metadata: Option<Map>,
}

/// A new version: what is `None` stays, metadata is merged.
#[derive(Clone, Debug, Default)]
pub struct Patch {
    /// Another graph.
    pub graph_id: Option<String>,
    /// The rest.
    pub content: Content,
}

/// A page of versions.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// Containment on metadata.
    pub metadata: Map,
    /// At most so many.
    pub limit: usize,
    /// How many to skip.
    pub offset: usize,
}
