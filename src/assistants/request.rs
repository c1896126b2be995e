//! Requests about assistants, already validated.

use std::sync::Arc;

use crate::{sorted::Sorted, value::Map, words::words};

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

/// What is read of what clients put into assistants; all else of that is as if they had none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The metadata.
    pub metadata: bool,
    /// The config.
    pub config: bool,
    /// The context.
    pub context: bool,
}

impl Columns {
    /// Nothing.
    pub const NONE: Self = Self {
        metadata: false,
        config: false,
        context: false,
    };
}

impl Default for Columns {
    /// Everything.
    fn default() -> Self {
        Self {
            metadata: true,
            config: true,
            context: true,
        }
    }
}

/// A page of assistants.
pub type Search = Sorted<Filter, SortBy>;
