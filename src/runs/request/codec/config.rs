//! What a run's config has of the server itself, in the form with short names: the account and the ids among what is
//! configurable, and the ids in the metadata. All of it follows from three values, which are stored in its place.

use super::{MARK, short_name};
use crate::{
    checkpoint::codec,
    value::{Map, Value},
};

/// Stores what follows from the account, the request's id and the graph as these three.
pub(super) fn pack(config: Value) -> Value {
    match packed(&config) {
        Some(packed) => packed,
        None => config,
    }
}

fn packed(config: &Value) -> Option<Value> {
    let config = config.as_map()?;
    let configurable = config.get(&short("configurable"))?.as_map()?;
    let start = position_of(configurable, "langgraph_auth_user")?;
    let value = |at: usize| configurable.values().nth(start + at).cloned();
    let user = match value(1)? {
        Value::Str(user) if user.is_empty() => Value::Null,
        user => user,
    };
    let (request, graph) = (value(3)?, value(6)?);
    let expected = of_server(&user, &request, &graph);
    let there = configurable.iter().skip(start).take(expected.len());
    let there: Map = there
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    // Bytes tell orders apart too.
    if codec::encode(&Value::map(there)) != codec::encode(&Value::map(expected.clone())) {
        return None;
    }
    let parts = Value::list(vec![user, request, graph.clone()]);
    let mut packed = config.clone();
    let configurable = replaced(configurable, start, expected.len(), parts);
    packed.insert(short("configurable"), Value::map(configurable));
    if let Some(metadata) = config.get(&short("metadata")).and_then(Value::as_map)
        && let Some(start) = position_of(metadata, "graph_id")
        && metadata.iter().skip(start).take(2).eq(&in_metadata(&graph))
    {
        let metadata = replaced(metadata, start, 2, true.into());
        packed.insert(short("metadata"), Value::map(metadata));
    }
    Some(Value::map(packed))
}

/// Restores what [`pack`] was given.
pub(super) fn unpack(config: &Value) -> Value {
    match unpacked(config) {
        Some(unpacked) => unpacked,
        None => config.clone(),
    }
}

fn unpacked(config: &Value) -> Option<Value> {
    let map = config.as_map()?;
    let configurable = map.get(&short("configurable"))?.as_map()?;
    let [user, request, graph] = configurable.get(MARK)?.as_list()? else {
        return None;
    };
    let mut whole = map.clone();
    let configurable = expanded(configurable, &of_server(user, request, graph));
    whole.insert(short("configurable"), Value::map(configurable));
    if let Some(metadata) = map.get(&short("metadata")).and_then(Value::as_map) {
        let metadata = expanded(metadata, &in_metadata(graph));
        whole.insert(short("metadata"), Value::map(metadata));
    }
    Some(Value::map(whole))
}

/// What the server adds to what is configurable. Rows depend on it: never change it.
fn of_server(user: &Value, request: &Value, graph: &Value) -> Map {
    let permissions = || Value::list(vec![]);
    let (account, user_id) = match user {
        Value::Null => (Value::Null, Value::str("")),
        user => {
            let account = Map::from([
                ("identity", user.clone()),
                ("display_name", user.clone()),
                ("is_authenticated", true.into()),
                ("permissions", permissions()),
            ]);
            (Value::map(account), user.clone())
        }
    };
    let fields = [
        ("langgraph_auth_user", account),
        ("langgraph_auth_user_id", user_id.clone()),
        ("langgraph_auth_permissions", permissions()),
        ("langgraph_request_id", request.clone()),
        ("run_id", Value::str(RUN)),
        ("thread_id", Value::str(THREAD)),
        ("graph_id", graph.clone()),
        ("assistant_id", Value::str(ASSISTANT)),
        ("user_id", user_id),
    ];
    fields
        .map(|(name, value)| (short(name), value))
        .into_iter()
        .collect()
}

/// What the metadata of a run ends with. Rows depend on it: never change it.
fn in_metadata(graph: &Value) -> Map {
    let fields = [
        ("graph_id", graph.clone()),
        ("assistant_id", Value::str(ASSISTANT)),
    ];
    fields
        .map(|(name, value)| (short(name), value))
        .into_iter()
        .collect()
}

/// The characters of the ids that the row has in columns.
const RUN: &str = "\u{1}";
const THREAD: &str = "\u{2}";
const ASSISTANT: &str = "\u{3}";

fn short(name: &'static str) -> std::sync::Arc<str> {
    short_name(&name.into())
}

fn position_of(map: &Map, name: &'static str) -> Option<usize> {
    let name = short(name);
    map.keys().position(|key| *key == name)
}

/// A map with a value in place of `count` fields.
fn replaced(map: &Map, start: usize, count: usize, value: Value) -> Map {
    let mut rest = Map::with_capacity(map.len());
    for (at, (name, field)) in map.iter().enumerate() {
        if at == start {
            rest.insert(MARK, value.clone());
        }
        if !(start..start + count).contains(&at) {
            rest.insert(name.clone(), field.clone());
        }
    }
    rest
}

/// A map with fields where its mark is.
fn expanded(map: &Map, fields: &Map) -> Map {
    let mut whole = Map::with_capacity(map.len() + fields.len());
    for (name, value) in map {
        if &**name == MARK {
            whole.extend(fields.clone());
        } else {
            whole.insert(name.clone(), value.clone());
        }
    }
    whole
}
