//! Tests of stored requests.

use proptest::prelude::*;

use super::*;
use crate::{value, value::samples::any_value};

fn columns() -> Columns {
    Columns {
        run: RunId::mint(),
        thread: ThreadId::mint(),
        assistant: AssistantId::of_graph("g"),
    }
}

fn back(request: &Value, columns: Columns) -> Value {
    let decoded = |format| {
        let stored = encode(request, columns, format);
        decode(&stored.tag, &stored.bytes, columns).unwrap()
    };
    let restored = decoded(Format::Bincode);
    assert_eq!(decoded(Format::Json).to_json(), restored.to_json());
    restored
}

#[test]
fn a_request_comes_back_as_it_was_and_takes_little_room() {
    let columns = columns();
    let ids = [
        columns.run.to_string(),
        columns.thread.to_string(),
        columns.assistant.to_string(),
    ];
    let request = value!({
        "input": {"input": (ids[0].clone()), "\u{1}": "\u{1}"}, "command": null,
        "config": {"configurable": {"run_id": (ids[0].clone()), "thread_id": (ids[1].clone()),
            "assistant_id": (ids[2].clone()), "langgraph_request_id": "r", "own": "\u{3}"},
            "metadata": {"assistant_id": (ids[2].clone()), "\u{1f}x": ["\u{1e}", "\u{1f}", ""]}},
        "stream_mode": ["values"], "\u{2}": 1, "durability": "async",
    });
    let restored = back(&request, columns);
    assert_eq!(restored, request);
    assert_eq!(restored.to_json(), request.to_json(), "in the same order");
    let (stored, whole) = (
        encode(&request, columns, Format::Bincode).bytes,
        request.to_json(),
    );
    assert!(
        stored.len() + 300 < whole.len(),
        "{} {}",
        stored.len(),
        whole.len()
    );
}

#[test]
fn usual_fields_are_left_out_and_come_back_in_their_place() {
    let columns = columns();
    let usual = value!({
        "input": {"n": 1}, "command": null, "config": {"configurable": {}}, "context": {},
        "stream_mode": ["values"], "interrupt_before": null, "interrupt_after": null, "webhook": null,
        "feedback_keys": null, "temporary": false, "subgraphs": false, "resumable": false,
        "checkpoint_during": true, "durability": "async",
    });
    let mut other = usual.as_map().unwrap().clone();
    for (name, value) in [
        ("command", value!({"resume": 1})),
        ("webhook", value!("http://localhost")),
        ("temporary", value!(true)),
        ("durability", value!("exit")),
        ("branching", value!({"activate": true})),
    ] {
        other.insert(name, value);
    }
    for request in [&usual, &Value::map(other)] {
        let restored = back(request, columns);
        assert_eq!(restored.to_json(), request.to_json());
    }
    assert!(encode(&usual, columns, Format::Bincode).bytes.len() < 40);
    // Requests whose fields have another order, or not all of them, are stored whole.
    let mut fewer = usual.as_map().unwrap().clone();
    fewer.remove("webhook");
    let moved = fewer.clone();
    let mut moved = Map::from_iter(moved.into_iter().chain([("webhook".into(), Value::Null)]));
    moved.insert("temporary", value!(1));
    for request in [Value::map(fewer), Value::map(moved)] {
        assert_eq!(back(&request, columns).to_json(), request.to_json());
    }
}

/// A request of a client with a config of the server's own, for this user and graph.
fn usual_request(columns: Columns, user: Option<&str>, graph: &str) -> Value {
    let account = user.map(|user| {
        value!({"identity": user, "display_name": user, "is_authenticated": true, "permissions": []})
    });
    let user = user.unwrap_or_default();
    let assistant = columns.assistant.to_string();
    value!({
        "input": {"n": 1},
        "config": {
            "recursion_limit": 7,
            "configurable": {
                "own": 1,
                "langgraph_auth_user": (account.unwrap_or_default()), "langgraph_auth_user_id": user,
                "langgraph_auth_permissions": [], "langgraph_request_id": (RunId::mint().to_string()),
                "run_id": (columns.run.to_string()), "thread_id": (columns.thread.to_string()),
                "graph_id": graph, "assistant_id": (assistant.clone()), "user_id": user, "last": 2
            },
            "metadata": {"created_by": "system", "graph_id": "chat", "assistant_id": assistant, "more": 3}
        },
    })
}

#[test]
fn what_a_config_has_of_the_server_takes_little_room_and_comes_back() {
    let columns = columns();
    for user in [None, Some("ann"), Some("\u{1}")] {
        for graph in ["chat", "\u{2}"] {
            let request = usual_request(columns, user, graph);
            assert_eq!(back(&request, columns).to_json(), request.to_json());
        }
        let mut request = usual_request(columns, user, "chat");
        let stored = encode(&request, columns, Format::Bincode).bytes.len();
        let config = request.make_map_mut().and_then(|map| map.get_mut("config"));
        let configurable = config.and_then(|config| config.make_map_mut()?.get_mut("configurable"));
        let map = configurable.and_then(Value::make_map_mut).unwrap();
        map.insert("user_id", "bob");
        let other = encode(&request, columns, Format::Bincode).bytes.len();
        assert!(stored + 35 < other, "{stored} and {other} bytes");
    }
}

#[test]
fn a_config_that_differs_from_the_usual_one_in_one_field_comes_back_too() {
    let columns = columns();
    let usual = usual_request(columns, Some("ann"), "chat");
    for part in ["configurable", "metadata"] {
        let of = |request: &mut Value, change: &dyn Fn(&mut Map)| {
            let config = request.make_map_mut().and_then(|map| map.get_mut("config"));
            let config = config.and_then(Value::make_map_mut).unwrap();
            change(config.get_mut(part).and_then(Value::make_map_mut).unwrap());
        };
        let fields = usual["config"][part].as_map().unwrap().clone();
        for name in fields.keys() {
            for change in [
                &(|map: &mut Map| drop(map.insert(name.clone(), "other"))) as &dyn Fn(&mut Map),
                &|map| drop(map.insert(name.clone(), Value::Null)),
                &|map| drop(map.remove(name)),
            ] {
                let mut request = usual.clone();
                of(&mut request, change);
                assert_eq!(back(&request, columns).to_json(), request.to_json());
            }
        }
    }
}

#[test]
fn a_request_of_an_earlier_version_is_read() {
    let columns = columns();
    let stored = value!({"\u{1}": {"n": 1}, "\u{2}": null, "\u{1e}": null});
    let bytes = codec::encode(&stored);
    let request = decode(codec::BINCODE, &bytes, columns).unwrap();
    assert_eq!(request.to_json(), r#"{"input":{"n":1},"command":null}"#);
}

#[test]
fn a_request_in_plain_form_is_read_as_it_is() {
    let columns = columns();
    for request in [
        value!({"config": {"\u{1}": "\u{2}"}}),
        value!(null),
        value!([1]),
    ] {
        let bytes = codec::encode(&request);
        assert_eq!(decode(codec::BINCODE, &bytes, columns).unwrap(), request);
    }
    assert_eq!(back(&value!(null), columns), value!(null));
}

#[test]
fn metadata_of_the_request_is_stored_once() {
    let metadata = Map::from([("a", value!(1))]);
    let mut request = value!({"config": {"metadata": {"a": 1}}});
    assert_eq!(own_metadata(&metadata, &request), None);
    assert_eq!(super::metadata(&Value::Null, &mut request), metadata);
    for mut other in [
        value!({"config": {"metadata": {"a": 2}}}),
        value!({}),
        value!(null),
    ] {
        assert_eq!(own_metadata(&metadata, &other), Some(&metadata));
        let own = Value::map(metadata.clone());
        assert_eq!(super::metadata(&own, &mut other), metadata);
    }
}

#[test]
fn the_request_has_metadata_that_the_row_adds() {
    let mut request = value!({"config": {"metadata": {"a": 1, "by": "system"}}});
    let added = value!({"by": "me", "b": [2]});
    let metadata = super::metadata(&added, &mut request);
    let all = value!({"a": 1, "by": "me", "b": [2]});
    assert_eq!(Value::map(metadata), all);
    assert_eq!(request, value!({"config": {"metadata": all}}));
}

#[test]
fn metadata_beside_a_large_request_is_read_without_it() {
    let request = value!({"config": {"metadata": {"a": (-0.0), "by": "system"}}});
    let known = request["config"]["metadata"].clone();
    let added = Map::from([("by", value!("me"))]);
    let all = value!({"a": (-0.0), "by": "me"});
    assert_eq!(stored_metadata(None, &request, 4096), Value::Null);
    let small = stored_metadata(Some(&added), &request, 4096);
    assert_eq!(small, Value::map(added.clone()));
    for (added, all) in [(None, &known), (Some(&added), &all)] {
        let mut stored = stored_metadata(added, &request, 5000);
        assert_eq!(stored["0"], Value::Null, "it is a list");
        let read = super::metadata(&stored, &mut Value::Null);
        assert_eq!(&Value::map(read), all);
        // A database may change numbers: where the request is read its own count.
        if let Value::List(parts) = &mut stored {
            let changed = value!({"a": 0.0, "by": "system"});
            let rest = parts.iter().skip(1).cloned();
            stored = Value::list(std::iter::once(changed).chain(rest).collect());
        }
        let mut whole = request.clone();
        let read = super::metadata(&stored, &mut whole);
        assert_eq!(Value::map(read).to_json(), all.to_json());
        assert_eq!(whole["config"]["metadata"].to_json(), all.to_json());
    }
}

proptest! {
    #[test]
    fn any_request_comes_back(config in any_value(), input in any_value(), name in "[\\x00-\\x1f]{0,2}[a-z]{0,2}") {
        let mut map = Map::from([("input", input), ("config", config.clone())]);
        map.insert(name, config);
        let request = Value::map(map);
        prop_assert_eq!(back(&request, columns()), request);
    }
}
