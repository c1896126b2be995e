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
    let requested = [configurable.get("user_id"), config.get("user_id")];
    let requested = requested.into_iter().flatten().find(|id| names_user(id));
    let user_id = requested.cloned().unwrap_or_else(|| id_of(user));
    configurable.insert("user_id", user_id);
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
}
