//! The engine's own dynamic values: cheap to clone, maps in insertion order.

use std::sync::Arc;

use indexmap::IndexMap;

/// A dynamic value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// JSON null.
    #[default]
    Null,
    /// Text.
    Str(Arc<str>),
}

/// A map in insertion order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map(pub IndexMap<Arc<str>, Value>);
