//! Requests about assistants, already validated.

use std::sync::Arc;

use crate::{value::Map, words::words};

words! {
    /// Order of a list of assistants.
    #[derive(Default)]
    pub enum SortBy, "order of assistants" {
        /// By id.
        AssistantId = "assistant_id",
        /// By creation.
        #[default]
        CreatedAt = "created_at",
        /// By last change.
        UpdatedAt = "updated_at",
        /// By name.
        Name = "name",
        /// By graph.
        GraphId = "graph_id",
    }
}

/// Which assistants to count or list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Containment on metadata.
    pub metadata: Map,
    /// Only of these graphs.
    pub graphs: Vec<Arc<str>>,
    /// Only those whose name contains this, whatever its case.
    pub name: Option<String>,
    /// Only those that this principal sees; all without one.
    pub viewer: Option<Arc<str>>,
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

impl Search {
    /// Which of the orders it has, in a list with two for each column: falling and rising.
    pub fn order(&self) -> usize {
        let column = match self.sort_by {
            SortBy::CreatedAt => 0,
            SortBy::UpdatedAt => 1,
            SortBy::Name => 2,
            SortBy::GraphId => 3,
            SortBy::AssistantId => 4,
        };
        2 * column + usize::from(self.ascending)
    }
}
