//! A run's request as its row stores it: names that every request has, and ids that the row has
//! in columns, become one character each. Fields with the value that most requests have are left out.
//! Decoding restores the request as it was.

use std::sync::{Arc, LazyLock};

use crate::{
    checkpoint::codec,
    id::{AssistantId, RunId, ThreadId},
    value::{Map, Value},
};

mod config;

/// Names that are stored as one character: their index plus one. New names go to the end.
const NAMES: [&str; 27] = [
    "input",
    "command",
    "config",
    "context",
    "stream_mode",
    "interrupt_before",
    "interrupt_after",
    "webhook",
    "feedback_keys",
    "temporary",
    "subgraphs",
    "resumable",
    "checkpoint_during",
    "durability",
    "configurable",
    "metadata",
    "langgraph_auth_user",
    "langgraph_auth_user_id",
    "langgraph_auth_permissions",
    "langgraph_request_id",
    "run_id",
    "thread_id",
    "graph_id",
    "assistant_id",
    "user_id",
    "created_by",
    "traceparent",
];

/// Fields whose values are the client's: they are stored unchanged.
const OWN: [&str; 3] = ["input", "command", "context"];

/// The field of the config, of which the server makes a part.
const CONFIG: &str = "config";

/// The fields that every request has, in their order, each with the value that is not stored: never change one.
static FIELDS: LazyLock<[(&str, Option<Value>); 14]> = LazyLock::new(|| {
    [
        ("input", None),
        ("command", Some(Value::Null)),
        ("config", None),
        ("context", Some(Value::map(Map::new()))),
        ("stream_mode", None),
        ("interrupt_before", Some(Value::Null)),
        ("interrupt_after", Some(Value::Null)),
        ("webhook", Some(Value::Null)),
        ("feedback_keys", Some(Value::Null)),
        ("temporary", Some(false.into())),
        ("subgraphs", Some(false.into())),
        ("resumable", Some(false.into())),
        ("checkpoint_during", Some(true.into())),
        ("durability", Some("async".into())),
    ]
});

/// Begins texts that begin with a character of this kind themselves.
const ESCAPE: char = '\u{1f}';
/// A field that marks a request in this form: true where fields are left out, null in requests of
/// earlier versions, which have all of them.
const MARK: &str = "\u{1e}";

/// The ids of a run that its row has in columns.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its assistant.
    pub assistant: AssistantId,
}

impl Columns {
    fn texts(self) -> [Arc<str>; 3] {
        [
            self.run.to_string().into(),
            self.thread.to_string().into(),
            self.assistant.to_string().into(),
        ]
    }
}

/// A request as its row stores it.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Its tag, which says what it weighs beside its bytes.
    pub tag: Arc<str>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Encoded {
    fn of(value: &Value) -> Self {
        let (tag, bytes) = codec::encode_weighed(value);
        Self { tag, bytes }
    }
}

/// Encodes a request.
pub fn encode(request: &Value, columns: Columns) -> Encoded {
    let Some(map) = request.as_map() else {
        return Encoded::of(request);
    };
    let texts = columns.texts();
    let mut short = Map::with_capacity(map.len() + 1);
    let is_usual = has_usual_fields(map);
    for (at, (name, value)) in map.iter().enumerate() {
        let usual = FIELDS.get(at).and_then(|(_, usual)| usual.as_ref());
        if is_usual && usual == Some(value) {
            continue;
        }
        let value = match &**name {
            own if OWN.contains(&own) => value.clone(),
            CONFIG => config::pack(shorten(value, &texts)),
            _ => shorten(value, &texts),
        };
        short.insert(short_name(name), value);
    }
    let mark = if is_usual {
        Value::Bool(true)
    } else {
        Value::Null
    };
    short.insert(MARK, mark);
    Encoded::of(&Value::map(short))
}

/// Decodes a request.
///
/// # Errors
/// The bytes are not those of a request.
pub fn decode(tag: &str, bytes: &[u8], columns: Columns) -> Result<Value, codec::Error> {
    let mut value = codec::decode(tag, bytes)?;
    let Some(mark) = value.get(MARK).cloned() else {
        return Ok(value);
    };
    let Some(map) = value.make_map_mut() else {
        return Ok(value);
    };
    map.remove(MARK);
    let texts = columns.texts();
    let mut whole = Map::with_capacity(map.len().max(FIELDS.len()));
    if mark == Value::Bool(true) {
        // Each field takes its place, and those that are stored their value below.
        for (name, usual) in FIELDS.iter() {
            whole.insert(*name, usual.clone().unwrap_or(Value::Null));
        }
    }
    for (name, value) in map.iter() {
        let name = whole_name(name);
        let value = match &*name {
            own if OWN.contains(&own) => value.clone(),
            CONFIG => restore(&config::unpack(value), &texts),
            _ => restore(value, &texts),
        };
        whole.insert(name, value);
    }
    Ok(Value::map(whole))
}

/// Whether a request begins with all usual fields, in their order.
fn has_usual_fields(map: &Map) -> bool {
    let mut names = map.keys();
    FIELDS
        .iter()
        .all(|(field, _)| names.next().is_some_and(|name| &**name == *field))
}

/// A run's metadata as its row stores it; `None` when the request has it already, so that the row
/// stores JSON's `null`.
pub fn own_metadata<'a>(metadata: &'a Map, request: &Value) -> Option<&'a Map> {
    (requested(request) != Some(metadata)).then_some(metadata)
}

/// A run's metadata: that of its request, and over it what its row adds, such as that of the
/// thread. The request then has all of it.
pub fn metadata(own: Option<Map>, request: &mut Value) -> Map {
    let mut metadata = requested(request).cloned().unwrap_or_default();
    let Some(own) = own else { return metadata };
    metadata.extend(own);
    if let Some(requested) = request
        .make_map_mut()
        .and_then(|map| map.get_mut("config")?.make_map_mut()?.get_mut("metadata"))
    {
        *requested = Value::map(metadata.clone());
    }
    metadata
}

fn requested(request: &Value) -> Option<&Map> {
    request.get("config")?.get("metadata")?.as_map()
}

fn shorten(value: &Value, texts: &[Arc<str>; 3]) -> Value {
    match value {
        Value::List(items) => Value::list(items.iter().map(|item| shorten(item, texts)).collect()),
        Value::Map(map) => Value::map(
            map.iter()
                .map(|(name, value)| (short_name(name), shorten(value, texts)))
                .collect(),
        ),
        Value::Str(text) => Value::Str(match code_of(texts.iter().map(|text| &**text), text) {
            Some(short) => short,
            None => escaped(text),
        }),
        other => other.clone(),
    }
}

fn restore(value: &Value, texts: &[Arc<str>; 3]) -> Value {
    match value {
        Value::List(items) => Value::list(items.iter().map(|item| restore(item, texts)).collect()),
        Value::Map(map) => Value::map(
            map.iter()
                .map(|(name, value)| (whole_name(name), restore(value, texts)))
                .collect(),
        ),
        Value::Str(text) => Value::Str(match index_of(text).and_then(|index| texts.get(index)) {
            Some(whole) => whole.clone(),
            None => unescaped(text),
        }),
        other => other.clone(),
    }
}

fn short_name(name: &Arc<str>) -> Arc<str> {
    code_of(NAMES.into_iter(), name).unwrap_or_else(|| escaped(name))
}

fn whole_name(name: &Arc<str>) -> Arc<str> {
    match index_of(name).and_then(|index| NAMES.get(index)) {
        Some(whole) => Arc::from(*whole),
        None => unescaped(name),
    }
}

/// The character of a text among those that have one.
fn code_of<'a>(mut known: impl Iterator<Item = &'a str>, text: &str) -> Option<Arc<str>> {
    let index = known.position(|known| known == text)?;
    let char = char::from_u32(u32::try_from(index).ok()? + 1)?;
    Some(Arc::from(char.encode_utf8(&mut [0; 4]) as &str))
}

/// The index that a character encodes.
fn index_of(text: &str) -> Option<usize> {
    match text.as_bytes() {
        [byte @ 1..MARK_BYTE] => Some(usize::from(*byte) - 1),
        _ => None,
    }
}

const MARK_BYTE: u8 = MARK.as_bytes()[0];

fn escaped(text: &Arc<str>) -> Arc<str> {
    match text.chars().next() {
        Some('\u{1}'..=ESCAPE) => format!("{ESCAPE}{text}").into(),
        _ => text.clone(),
    }
}

fn unescaped(text: &Arc<str>) -> Arc<str> {
    text.strip_prefix(ESCAPE)
        .map_or_else(|| text.clone(), Arc::from)
}

#[cfg(test)]
mod tests {
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
        let stored = encode(request, columns);
        decode(&stored.tag, &stored.bytes, columns).unwrap()
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
        let (stored, whole) = (encode(&request, columns).bytes, request.to_json());
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
        assert!(encode(&usual, columns).bytes.len() < 40);
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
            let stored = encode(&request, columns).bytes.len();
            let config = request.make_map_mut().and_then(|map| map.get_mut("config"));
            let configurable =
                config.and_then(|config| config.make_map_mut()?.get_mut("configurable"));
            let map = configurable.and_then(Value::make_map_mut).unwrap();
            map.insert("user_id", "bob");
            let other = encode(&request, columns).bytes.len();
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
        assert_eq!(super::metadata(None, &mut request), metadata);
        for mut other in [
            value!({"config": {"metadata": {"a": 2}}}),
            value!({}),
            value!(null),
        ] {
            assert_eq!(own_metadata(&metadata, &other), Some(&metadata));
            let own = Some(metadata.clone());
            assert_eq!(super::metadata(own, &mut other), metadata);
        }
    }

    #[test]
    fn the_request_has_metadata_that_the_row_adds() {
        let mut request = value!({"config": {"metadata": {"a": 1, "by": "system"}}});
        let added = Map::from([("by", value!("me")), ("b", value!([2]))]);
        let metadata = super::metadata(Some(added), &mut request);
        let all = value!({"a": 1, "by": "me", "b": [2]});
        assert_eq!(Value::map(metadata), all);
        assert_eq!(request, value!({"config": {"metadata": all}}));
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
}
