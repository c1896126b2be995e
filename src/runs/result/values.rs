//! The values that a run left.

use std::{fmt, sync::Arc};

use crate::{graph::Compiled, tree::read::head::displayed_values, value::Value};

/// The values of a state. The defaults of their messages are filled in for those who ask: after most runs
/// nobody does, and a long conversation is not copied for nobody.
#[derive(Clone, Default)]
pub struct Values {
    values: Value,
    /// The graph whose message channels lack the defaults.
    stored_by: Option<Arc<Compiled>>,
}

impl Values {
    /// Values as a run of a graph has them.
    pub fn stored(values: Value, graph: Arc<Compiled>) -> Self {
        Self {
            values,
            stored_by: Some(graph),
        }
    }

    /// Whether there is no state at all.
    pub fn is_null(&self) -> bool {
        self.values.is_null()
    }

    /// In the form clients see.
    pub fn shown(&self) -> Value {
        match &self.stored_by {
            Some(graph) => displayed_values(graph, &self.values),
            None => self.values.clone(),
        }
    }
}

/// Values in the form clients see.
impl From<Value> for Values {
    fn from(values: Value) -> Self {
        Self {
            values,
            stored_by: None,
        }
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}
