//! The config and context that an operator or author states for all runs of a graph.

use super::{GraphConfig, content::mirror};
use crate::value::{Map, Value};

/// The config and context that runs of a graph have by default.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// The config.
    pub config: Map,
    /// The context.
    pub context: Map,
}

impl Defaults {
    /// As functions that make graphs get them.
    pub(crate) fn graph_config(self) -> GraphConfig {
        let (config, context) = mirror(self.config, self.context);
        GraphConfig::of(&config, &context)
    }

    /// Reads a config and a context; null is an empty one.
    ///
    /// # Errors
    /// One of them is no object, or both name fields of `configurable`: the reason.
    pub fn of(config: &Value, context: &Value) -> Result<Self, String> {
        let map = |value: &Value, name: &str| match value {
            Value::Null => Ok(Map::new()),
            Value::Map(map) => Ok((**map).clone()),
            _ => Err(format!("{name} is not an object")),
        };
        let (config, context) = (map(config, "config")?, map(context, "context")?);
        let configurable = map(
            config.get("configurable").unwrap_or(&Value::Null),
            "config.configurable",
        )?;
        if !configurable.is_empty() && !context.is_empty() {
            return Err("give either config.configurable or context".to_owned());
        }
        Ok(Self { config, context })
    }
}
