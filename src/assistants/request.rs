//! Requests about assistants, already validated.

use crate::value::Map;

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
    /// At most so many; one more than the client requested, to know whether there are more.
    pub limit: usize,
    /// How many to skip.
    pub offset: usize,
    /// Order.
    pub sort_by: SortBy,
    /// Smallest first.
    pub ascending: bool,
}
