//! Who a run is for: the user that nodes see in `configurable`, and the fields of it that only the
//! server fills.

use std::sync::Arc;

use crate::{
    tree::members::LOCAL_PRINCIPAL,
    value::{Map, Value},
};

/// Begins the names that only the server fills.
const SERVERS: &str = "langgraph_auth_";

/// A copy of what a client sent, without names that only the server fills.
pub fn without_servers(map: &Map) -> Map {
    map.iter()
        .filter(|(key, _)| !key.starts_with(SERVERS))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Removes names that only the server fills from a config that a client sent: its own, those of what is configurable and
/// those of its metadata.
pub fn remove_servers(config: &mut Map) {
    config.retain(|key, _| !key.starts_with(SERVERS));
    for inner in ["configurable", "metadata"] {
        if let Some(map) = config.get_mut(inner).and_then(Value::make_map_mut) {
            map.retain(|key, _| !key.starts_with(SERVERS));
        }
    }
}

/// Puts into what nodes see who authenticated for the run.
pub fn put_account(configurable: &mut Map, user: Option<&Arc<str>>) {
    let permissions = || Value::list(Vec::new());
    let account = user.map(|user| {
        Value::map(Map::from([
            ("identity", Value::Str(user.clone())),
            ("display_name", Value::Str(user.clone())),
            ("is_authenticated", Value::Bool(true)),
            ("permissions", permissions()),
        ]))
    });
    configurable.insert("langgraph_auth_user", account.unwrap_or_default());
    configurable.insert("langgraph_auth_user_id", id_of(user));
    configurable.insert("langgraph_auth_permissions", permissions());
}

/// Puts into what nodes see the user whom the run is for. A `user_id` that is there stays; else
/// that of the config counts, and then the principal who authenticated.
///
/// What is configurable of an assistant was merged below the request's before.
pub fn put_user(configurable: &mut Map, config: &Map, user: Option<&Arc<str>>) {
    let requested = first_user([Some(&*configurable), Some(config)]);
    let user_id = requested.cloned().unwrap_or_else(|| id_of(user));
    configurable.insert("user_id", user_id);
}

/// The user whom a config names: in what is configurable, else beside it.
pub fn user_of(config: &Map) -> Option<&Value> {
    first_user([
        config.get("configurable").and_then(Value::as_map),
        Some(config),
    ])
}

/// The user whom a request names, for a graph that knows these properties of the context, which is configurable
/// where nothing else is.
pub fn named(
    config: &Map,
    context: &Map,
    known: Option<&serde_json::Map<String, serde_json::Value>>,
) -> Option<Value> {
    let configurable = config.get("configurable").and_then(Value::as_map);
    let mirrors = configurable.is_none_or(Map::is_empty)
        && known.is_none_or(|known| known.contains_key("user_id"));
    let configurable = if mirrors { Some(context) } else { configurable };
    first_user([configurable, Some(config)]).cloned()
}

/// Puts the user whom a request names in the place of the one that is configurable of its assistant.
pub fn prefer(config: &mut Map, named: &Value) {
    let configurable = config.get_mut("configurable").and_then(Value::make_map_mut);
    if let Some(user) = configurable.and_then(|map| map.get_mut("user_id")) {
        user.clone_from(named);
    }
}

fn first_user(maps: [Option<&Map>; 2]) -> Option<&Value> {
    let ids = maps
        .into_iter()
        .flatten()
        .filter_map(|map| map.get("user_id"));
    ids.into_iter().find(|id| names_user(id))
}

/// Has nodes of a stored run see the user of its thread, whoever its assistant and its principal are.
pub fn inherit_user(kwargs: &mut Value, user: Value) {
    let configurable = kwargs.make_map_mut().and_then(|kwargs| {
        kwargs
            .get_mut("config")?
            .make_map_mut()?
            .get_mut("configurable")
    });
    if let Some(configurable) = configurable.and_then(Value::make_map_mut) {
        configurable.insert("user_id", user);
    }
}

/// The user whom the config of a thread names for runs whose requests name none.
pub fn user_of_thread(config: &Map) -> Option<&Value> {
    let configurable = config.get("configurable").and_then(Value::as_map)?;
    configurable.get("user_id").filter(|id| names_user(id))
}

/// The principal whom a stored run is for; only the server fills in who that is.
pub fn principal(config: &Map) -> Arc<str> {
    let configurable = config.get("configurable").and_then(Value::as_map);
    let user = configurable.and_then(|map| map.get("langgraph_auth_user_id"));
    match user {
        Some(Value::Str(user)) if !user.is_empty() => user.clone(),
        _ => LOCAL_PRINCIPAL.into(),
    }
}

fn id_of(user: Option<&Arc<str>>) -> Value {
    user.map_or_else(|| "".into(), |user| Value::Str(user.clone()))
}

/// Removes a `user_id` that names nobody from what is configurable in a request.
pub fn forget_nobody(config: &mut Map) {
    let configurable = config.get_mut("configurable").and_then(Value::make_map_mut);
    if let Some(configurable) = configurable
        && configurable
            .get("user_id")
            .is_some_and(|id| !names_user(id))
    {
        configurable.remove("user_id");
    }
}

/// Whether a value names a user: null and empty texts do not.
fn names_user(value: &Value) -> bool {
    !value.is_null() && value.as_str() != Some("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn put_into(configurable: Value, config: Value, user: Option<&str>) -> Map {
        let map = |value: Value| value.as_map().cloned().unwrap_or_default();
        let mut configurable = map(configurable);
        let user = user.map(Arc::from);
        put_account(&mut configurable, user.as_ref());
        put_user(&mut configurable, &map(config), user.as_ref());
        configurable
    }

    #[test]
    fn the_first_that_names_a_user_counts() {
        let no = || value!({});
        for (configurable, config, user, wanted) in [
            (
                value!({"user_id": "a"}),
                value!({"user_id": "b"}),
                Some("c"),
                value!("a"),
            ),
            (value!({"user_id": 7}), no(), Some("c"), value!(7)),
            (
                value!({"user_id": ""}),
                value!({"user_id": "b"}),
                Some("c"),
                value!("b"),
            ),
            (value!({"user_id": null}), no(), Some("c"), value!("c")),
            (no(), no(), Some("c"), value!("c")),
            (no(), no(), None, value!("")),
        ] {
            let found = put_into(configurable, config, user);
            assert_eq!(found.get("user_id"), Some(&wanted));
        }
    }

    #[test]
    fn who_authenticated_is_what_the_server_found() {
        let forged = value!({"langgraph_auth_user_id": "root", "langgraph_auth_x": 1, "k": 2});
        let kept = without_servers(forged.as_map().unwrap());
        assert_eq!(Value::map(kept), value!({"k": 2}));
        let found = put_into(forged.clone(), value!({}), None);
        assert_eq!(found.get("langgraph_auth_user_id"), Some(&value!("")));
        assert_eq!(found.get("langgraph_auth_user"), Some(&Value::Null));
        let found = put_into(forged, value!({}), Some("ann"));
        assert_eq!(found.get("langgraph_auth_user_id"), Some(&value!("ann")));
        let identity = found.get("langgraph_auth_user").unwrap().get("identity");
        assert_eq!(identity, Some(&value!("ann")));
    }

    #[test]
    fn a_context_names_a_user_where_nothing_else_is_configurable_and_the_graph_knows_users() {
        let map = |value: Value| value.as_map().cloned().unwrap_or_default();
        let context = map(value!({"user_id": "c"}));
        let knows = serde_json::Map::from_iter([("user_id".to_owned(), serde_json::Value::Null)]);
        let knows_none = serde_json::Map::new();
        for (config, known, wanted) in [
            (value!({}), None, Some(value!("c"))),
            (value!({}), Some(&knows), Some(value!("c"))),
            (value!({}), Some(&knows_none), None),
            (value!({"user_id": "b"}), None, Some(value!("c"))),
            (value!({"configurable": {"x": 1}}), None, None),
            (
                value!({"configurable": {"user_id": "a"}}),
                None,
                Some(value!("a")),
            ),
            (
                value!({"configurable": {"x": 1}, "user_id": "b"}),
                None,
                Some(value!("b")),
            ),
        ] {
            assert_eq!(
                named(&map(config.clone()), &context, known),
                wanted,
                "{config:?}"
            );
        }
    }
}
