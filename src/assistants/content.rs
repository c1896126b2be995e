//! What a version of an assistant consists of, how it changes, and how it goes into a run.

use std::sync::Arc;

use crate::{
    tree::metadata,
    value::{Map, Value},
};

/// The name of an assistant without one.
pub const UNTITLED: &str = "Untitled";
/// The field of a config that nodes see.
const CONFIGURABLE: &str = "configurable";

/// What a version of an assistant consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// Its graph.
    pub graph: Arc<str>,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// What clients note about it; runs inherit it.
    pub metadata: Map,
    /// The config of its runs.
    pub config: Map,
    /// The context of its runs.
    pub context: Map,
}

/// What a client changes of an assistant; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Another graph.
    pub graph: Option<Arc<str>>,
    /// Another name.
    pub name: Option<String>,
    /// Another description.
    pub description: Option<String>,
    /// Fields of metadata, which are added or replaced.
    pub metadata: Map,
    /// Another config.
    pub config: Map,
    /// Another context, also an empty one.
    pub context: Option<Map>,
}

/// How much an assistant may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of one version, as JSON.
    pub bytes: usize,
    /// How much metadata a version may have.
    pub metadata: metadata::Limits,
    /// Most versions.
    pub versions: usize,
    /// Most assistants of one principal.
    pub most: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 256 << 10,
            metadata: metadata::Limits::default(),
            versions: 1000,
            most: 50_000,
        }
    }
}

impl Content {
    /// The content with a change.
    pub fn with(&self, change: &Change) -> Self {
        let mut new = self.clone();
        if let Some(graph) = &change.graph {
            new.graph = graph.clone();
        }
        if let Some(name) = &change.name {
            new.name.clone_from(name);
        }
        if let Some(description) = &change.description {
            new.description = Some(description.clone());
        }
        new.metadata.extend(change.metadata.clone());
        let context = change.context.clone();
        let (config, mirrored) = mirror(change.config.clone(), context.clone().unwrap_or_default());
        if !config.is_empty() {
            new.config = config;
        }
        if context.is_some() || !mirrored.is_empty() {
            new.context = mirrored;
        }
        new
    }

    /// Its size as JSON.
    pub fn bytes(&self) -> usize {
        let texts = self.name.len() + self.description.as_ref().map_or(0, String::len);
        let maps = [&self.metadata, &self.config, &self.context];
        let maps = maps.map(|map| Value::map(map.clone()).to_json().len());
        texts + maps.iter().sum::<usize>()
    }
}

/// Lets `config.configurable` and the context mirror each other where only one of them is present.
pub fn mirror(mut config: Map, context: Map) -> (Map, Map) {
    let configurable = config.get(CONFIGURABLE).and_then(Value::as_map).cloned();
    let configurable = configurable.unwrap_or_default();
    if context.is_empty() {
        return (config, configurable);
    }
    if configurable.is_empty() {
        config.insert(CONFIGURABLE, Value::map(context.clone()));
    }
    (config, context)
}

/// The config and the context of a run: the assistant's, and over them the request's. Of
/// `configurable` and of the context each field counts by itself; other fields of the config are
/// replaced as a whole. Of a context alone only what `known` has is configurable, where the graph
/// says what it knows.
pub fn merge(
    assistant: (&Map, &Map),
    request: (&Map, &Map),
    known: Option<&serde_json::Map<String, serde_json::Value>>,
) -> (Map, Map) {
    let is_known = |key: &str| known.is_none_or(|known| known.contains_key(key));
    let mirrors = map_of(request.0, CONFIGURABLE).is_empty();
    let (mut own_config, own_context) = mirror(request.0.clone(), request.1.clone());
    let mut own = map_of(&own_config, CONFIGURABLE);
    if mirrors {
        own.retain(|key, _| is_known(key));
    }
    if own_config.contains_key(CONFIGURABLE) {
        own_config.insert(CONFIGURABLE, Value::map(own.clone()));
    }
    let mut config = assistant.0.clone();
    // What runs note of themselves comes from the metadata of the assistant.
    config.remove("metadata");
    let mut configurable = map_of(&config, CONFIGURABLE);
    configurable.extend(own);
    config.extend(own_config);
    if !configurable.is_empty() {
        config.insert(CONFIGURABLE, Value::map(configurable));
    }
    let mut context = assistant.1.clone();
    context.extend(own_context);
    (config, context)
}

fn map_of(config: &Map, field: &str) -> Map {
    let map = config.get(field).and_then(Value::as_map);
    map.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn map(value: &Value) -> Map {
        value.as_map().cloned().unwrap()
    }

    #[test]
    fn the_requests_fields_go_over_the_assistants() {
        let config = value!({
            "tags": ["t"], "recursion_limit": 7, "metadata": {"cm": 1},
            "configurable": {"a": 1, "n": {"x": 1, "y": 2}}
        });
        let context = value!({"a": 1, "n": {"x": 1, "y": 2}});
        let merged = |config_of_run: Value, context_of_run: Value| {
            let (config, context) = merge(
                (&map(&config), &map(&context)),
                (&map(&config_of_run), &map(&context_of_run)),
                None,
            );
            (Value::map(config), Value::map(context))
        };
        let (run, seen) = merged(
            value!({"tags": ["r"], "configurable": {"b": 2, "n": {"z": 3}}, "metadata": {"rm": 1}}),
            value!({}),
        );
        assert_eq!(
            run,
            value!({
                "tags": ["r"], "recursion_limit": 7, "metadata": {"rm": 1},
                "configurable": {"a": 1, "n": {"z": 3}, "b": 2}
            })
        );
        assert_eq!(seen, value!({"a": 1, "n": {"z": 3}, "b": 2}));
        let (run, seen) = merged(value!({}), value!({"who": "me"}));
        let both = value!({"a": 1, "n": {"x": 1, "y": 2}, "who": "me"});
        assert_eq!(run["configurable"], both);
        assert_eq!(seen, both);
        let nothing = (Map::new(), Map::new());
        let (run, seen) = merge((&nothing.0, &nothing.1), (&nothing.0, &nothing.1), None);
        assert!(run.is_empty() && seen.is_empty());
    }

    #[test]
    fn a_change_replaces_config_and_context_together_and_adds_metadata() {
        let first = Content {
            graph: "ctx".into(),
            name: "n".into(),
            description: None,
            metadata: map(&value!({"m": 1, "k": 1})),
            config: map(&value!({"tags": ["t"], "configurable": {"a": 1}})),
            context: map(&value!({"a": 1})),
        };
        assert_eq!(first.with(&Change::default()), first);
        let context = first.with(&Change {
            context: Some(map(&value!({"who": "c"}))),
            metadata: map(&value!({"m": null})),
            ..Change::default()
        });
        assert_eq!(context.config, map(&value!({"configurable": {"who": "c"}})));
        assert_eq!(context.context, map(&value!({"who": "c"})));
        assert_eq!(context.metadata, map(&value!({"m": null, "k": 1})));
        let tags = context.with(&Change {
            config: map(&value!({"tags": ["u"]})),
            ..Change::default()
        });
        assert_eq!(tags.config, map(&value!({"tags": ["u"]})));
        assert_eq!(tags.context, map(&value!({"who": "c"})));
        let empty = tags.with(&Change {
            context: Some(Map::new()),
            ..Change::default()
        });
        assert_eq!(empty.config, tags.config);
        assert!(empty.context.is_empty());
    }
}
