//! Messages as clients send them, as they are stored, merged and shown.

use proptest::prelude::*;

use super::*;
use crate::channel::overwrite;
use crate::value;
use crate::value::{from_value, to_value};

/// The list `left` after an update by `right`.
fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    super::add(left.clone(), right)
}

fn coerced(v: Value) -> String {
    coerce(&v).unwrap().to_json()
}

fn refused(v: Value) -> Error {
    coerce(&v).unwrap_err()
}

/// A message with this id and text.
fn m(id: &str, text: &str) -> Value {
    Message::ai(text).with_id(id).into()
}

fn remove(id: &str) -> Value {
    Message::remove(id).into()
}

fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::list(items.into_iter().collect())
}

fn is_uuid(v: &Value) -> bool {
    v.as_str()
        .is_some_and(|id| uuid::Uuid::parse_str(id).is_ok_and(|id| id.get_version_num() == 4))
}

#[test]
fn texts_pairs_and_both_kinds_of_maps_are_messages() {
    assert_eq!(coerced(value!("hi")), r#"{"type":"human","content":"hi"}"#);
    assert_eq!(
        coerced(value!(["assistant", "hi"])),
        r#"{"type":"ai","content":"hi"}"#
    );
    assert_eq!(
        coerced(value!({"role": "user", "content": "hi", "id": "1"})),
        r#"{"type":"human","content":"hi","id":"1"}"#
    );
    assert_eq!(
        coerced(value!({"id": 7, "content": null, "type": "AIMessageChunk",
            "tool_call_chunks": [], "chunk_position": "last"})),
        r#"{"type":"ai","content":"","id":"7"}"#
    );
    assert_eq!(
        coerced(value!({"role": "developer", "content": "be brief"})),
        r#"{"type":"system","content":"be brief","additional_kwargs":{"__openai_role__":"developer"}}"#
    );
    assert_eq!(
        coerced(value!({"lc": 1, "type": "constructor",
            "id": ["langchain_core", "messages", "HumanMessage"], "kwargs": {"content": "hi"}})),
        r#"{"content":"hi","type":"human"}"#
    );
    assert_eq!(
        coerced(value!({"type": "remove", "id": "x"})),
        r#"{"type":"remove","content":"","id":"x"}"#
    );
}

#[test]
fn what_is_in_stored_form_is_shared_and_not_copied() {
    let stored = m("1", "hi");
    assert!(coerce(&stored).unwrap().is_identical(&stored));
    let typed: Message = from_value(&stored).unwrap();
    assert!(typed.as_value().is_identical(&stored));
    assert!(to_value(&typed).unwrap().is_identical(&stored));
}

#[test]
fn unknown_fields_roles_and_content_parts_are_kept() {
    let odd = value!({
        "type": "thought", "content": [{"type": "image", "data": [1]}, "text"], "id": "1",
        "foo": {"bar": [null]}, "tool_calls": "odd"
    });
    assert_eq!(coerce(&odd).unwrap(), odd);
    let message = Message::try_from(&odd).unwrap();
    assert_eq!(message.role(), Role::Other("thought".into()));
    assert_eq!(message.text(), "text");
    let chat = value!({"type": "chat", "role": "critic", "content": "no"});
    assert_eq!(coerce(&chat).unwrap(), chat);
}

#[test]
fn defaults_are_left_out_of_the_stored_form_and_come_back_in_the_dump() {
    let dump = r#"{"content":"hi","additional_kwargs":{},"response_metadata":{},"type":"human","name":null,"id":"1"}"#;
    let value = Value::from_json_slice(dump.as_bytes()).unwrap();
    assert_eq!(
        coerced(value.clone()),
        r#"{"type":"human","content":"hi","id":"1"}"#
    );
    assert_eq!(with_defaults(&coerce(&value).unwrap()).to_json(), dump);

    let ai = r#"{"content":"","additional_kwargs":{},"response_metadata":{"stop":"end"},"type":"ai","name":null,"id":"2","tool_calls":[{"name":"add","args":{"a":2},"id":"call_1","type":"tool_call"}],"invalid_tool_calls":[],"usage_metadata":null}"#;
    let tool = r#"{"content":"5","additional_kwargs":{},"response_metadata":{},"type":"tool","name":"add","id":"3","tool_call_id":"call_1","artifact":null,"status":"success","extra":1}"#;
    let both = format!("[{ai},{tool}]");
    let stored = coerce_list(&Value::from_json_slice(both.as_bytes()).unwrap()).unwrap();
    assert_eq!(
        stored[1].to_json(),
        r#"{"type":"tool","content":"5","id":"3","name":"add","tool_call_id":"call_1","extra":1}"#
    );
    assert_eq!(with_defaults(&Value::list(stored)).to_json(), both);
    assert_eq!(with_defaults(&value!([1, {"x": 2}])), value!([1, {"x": 2}]));
}

#[test]
fn tool_calls_of_openai_become_those_of_langchain() {
    let call = |arguments: &str| {
        value!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}
        ]})
    };
    assert_eq!(
        coerced(call(r#"{"a": 2}"#)),
        r#"{"type":"ai","content":"","tool_calls":[{"name":"add","args":{"a":2},"id":"c1","type":"tool_call"}]}"#
    );
    for bad in ["{", "[1]", "1"] {
        assert!(
            matches!(refused(call(bad)), Error::ToolCall { index: 0, .. }),
            "{bad}"
        );
    }
    let plain = value!({"type": "ai", "content": "", "tool_calls": [{"name": "add", "args": {}, "id": "c"}]});
    let message = Message::try_from(plain).unwrap();
    assert_eq!(
        message.tool_calls(),
        [ToolCall {
            id: Some("c".into()),
            name: "add".into(),
            args: value!({})
        }]
    );
}

#[test]
fn what_is_no_message_is_refused_with_the_reason() {
    assert_eq!(refused(value!(1)), Error::NotAMessage("integer"));
    assert_eq!(refused(value!(null)), Error::NotAMessage("null"));
    assert_eq!(refused(value!(["a", "b", "c"])), Error::NotAMessage("list"));
    assert_eq!(refused(value!({"content": "hi"})), Error::NoRole);
    assert_eq!(refused(value!({"role": 1, "content": "hi"})), Error::NoRole);
    assert_eq!(
        refused(value!({"role": "user"})),
        Error::NoContent("human".into())
    );
    assert_eq!(
        refused(value!({"role": "user", "content": 1})),
        Error::Content("integer")
    );
    assert_eq!(
        refused(value!({"role": "user", "content": "", "id": []})),
        Error::Id("list")
    );
    assert_eq!(refused(value!({"type": "remove"})), Error::RemoveWithoutId);
    assert_eq!(refused(value!(1)).class(), "NotImplementedError");
    assert_eq!(refused(value!({"type": "remove"})).class(), "ValueError");
}

#[test]
fn typed_messages_read_and_build_the_stored_form() {
    let ai = Message::ai("Let me look.")
        .with_id("1")
        .calling("weather", value!({"city": "Oslo"}));
    let calls = ai.tool_calls();
    assert_eq!(
        (&*calls[0].name, &calls[0].args),
        ("weather", &value!({"city": "Oslo"}))
    );
    let answer = Message::tool("rain", calls[0].id.clone().unwrap()).with_name("weather");
    assert_eq!(answer.tool_call_id(), calls[0].id.as_deref());
    assert_eq!(
        (answer.role(), answer.name(), answer.id()),
        (Role::Tool, Some("weather"), None)
    );
    for message in [ai, answer, Message::remove_all(), Message::system("x")] {
        assert!(
            coerce(message.as_value())
                .unwrap()
                .is_identical(message.as_value())
        );
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
    }
}

#[test]
fn new_messages_are_appended_and_known_ids_replaced_in_place() {
    let left = list([m("1", "one"), m("2", "two")]);
    assert_eq!(
        add(&left, &list([m("3", "three"), m("1", "one!")])).unwrap(),
        list([m("1", "one!"), m("2", "two"), m("3", "three")])
    );
    assert_eq!(
        add(&Value::Null, &m("1", "one")).unwrap(),
        list([m("1", "one")])
    );
}

#[test]
fn of_duplicates_the_last_counts_at_the_place_of_the_first() {
    let right = list([m("a", "x"), m("b", "y"), m("a", "z")]);
    assert_eq!(
        add(&value!([]), &right).unwrap(),
        list([m("a", "z"), m("b", "y")])
    );
}

#[test]
fn removals_remove_and_a_message_that_comes_back_stays_in_its_place() {
    let left = list([m("1", "one"), m("2", "two"), m("3", "three")]);
    assert_eq!(
        add(&left, &list([remove("1"), remove("3")])).unwrap(),
        list([m("2", "two")])
    );
    assert_eq!(
        add(&left, &list([remove("2"), m("2", "again")])).unwrap(),
        list([m("1", "one"), m("2", "again"), m("3", "three")])
    );
    assert_eq!(
        add(&left, &list([m("4", "new"), remove("4")])).unwrap(),
        left
    );
}

#[test]
fn removing_what_is_not_there_is_a_value_error() {
    let error = add(&list([m("1", "one")]), &remove("9")).unwrap_err();
    assert_eq!(error, Error::UnknownRemoval("9".into()));
    assert_eq!(error.class(), "ValueError");
}

#[test]
fn removing_all_keeps_only_what_follows_the_last_marker() {
    let all: Value = Message::remove_all().into();
    let right = list([
        m("a", "x"),
        all.clone(),
        m("b", "y"),
        all,
        m("c", "z"),
        m("c", "zz"),
    ]);
    assert_eq!(
        add(&list([m("1", "one")]), &right).unwrap(),
        list([m("c", "z"), m("c", "zz")])
    );
}

#[test]
fn missing_ids_are_minted_on_both_sides() {
    let both = add(
        &value!([{"role": "user", "content": "a"}]),
        &value!(["b", "c"]),
    )
    .unwrap();
    let items = both.as_list().unwrap();
    assert_eq!(items.len(), 3);
    assert!(items.iter().all(|item| is_uuid(&item["id"])), "{both}");
    assert_ne!(items[1]["id"], items[2]["id"]);
}

#[test]
fn minting_keeps_the_shape_of_a_write_and_the_ids_it_has() {
    let single = mint_ids(&value!({"role": "user", "content": "a"})).unwrap();
    assert!(is_uuid(&single["id"]));
    assert!(mint_ids(&single).unwrap().is_identical(&single));
    let several = list([single, m("1", "x")]);
    assert!(mint_ids(&several).unwrap().is_identical(&several));
    let inside = mint_ids(&overwrite(value!(["a"]))).unwrap();
    assert!(is_uuid(&inside["__overwrite__"][0]["id"]), "{inside}");
    assert!(mint_ids(&value!(null)).is_err());
}

#[test]
fn chunks_add_up_to_the_whole_message() {
    let mut whole = AiChunk::text("Hel").with_id("m1");
    whole.push(&AiChunk::text("lo"));
    let call = |args: &str| ToolCallChunk {
        args: args.into(),
        index: Some(0),
        ..Default::default()
    };
    let first = ToolCallChunk {
        name: Some("add".into()),
        id: Some("c1".into()),
        ..call("{\"a\"")
    };
    whole.push(&AiChunk {
        tool_call_chunks: vec![first],
        ..Default::default()
    });
    whole.push(&AiChunk {
        tool_call_chunks: vec![call(": 2}")],
        ..Default::default()
    });
    let usage = |n: i64| Some(value!({"total": n, "details": {"cached": n}}));
    whole.push(&AiChunk {
        usage_metadata: usage(2),
        ..Default::default()
    });
    whole.push(&AiChunk {
        usage_metadata: usage(3),
        last: true,
        ..Default::default()
    });
    assert_eq!(
        whole.message().as_value(),
        &value!({"type": "ai", "content": "Hello", "id": "m1",
            "tool_calls": [{"name": "add", "args": {"a": 2}, "id": "c1", "type": "tool_call"}],
            "usage_metadata": {"total": 5, "details": {"cached": 5}}})
    );
    let message = whole.message();
    assert!(
        coerce(message.as_value())
            .unwrap()
            .is_identical(message.as_value())
    );
}

#[test]
fn pieces_of_one_index_and_two_ids_are_two_calls() {
    let mut whole = AiChunk::default();
    for (id, args) in [
        (Some("a"), "{"),
        (None, "}"),
        (Some("b"), "{"),
        (Some("b"), ""),
        (None, "}"),
    ] {
        whole.push(&AiChunk {
            tool_call_chunks: vec![ToolCallChunk {
                name: Some("add".into()),
                args: args.into(),
                id: id.map(Arc::from),
                index: Some(0),
            }],
            ..Default::default()
        });
    }
    let ids: Vec<_> = whole
        .message()
        .tool_calls()
        .into_iter()
        .map(|call| call.id.unwrap())
        .collect();
    assert_eq!(ids, ["a".into(), "b".into()]);
}

#[test]
fn calls_that_cannot_be_read_are_listed_as_invalid() {
    let chunk = |name: Option<&str>, args: &str| ToolCallChunk {
        name: name.map(Arc::from),
        args: args.into(),
        ..Default::default()
    };
    let message = AiChunk {
        tool_call_chunks: vec![
            chunk(Some("ok"), ""),
            chunk(Some("cut"), "{\"a\":"),
            chunk(Some("list"), "[]"),
            chunk(None, "{}"),
        ],
        ..Default::default()
    }
    .message();
    assert_eq!(message.tool_calls().len(), 1);
    let invalid = message.get("invalid_tool_calls").unwrap();
    assert_eq!(invalid.as_list().unwrap().len(), 3);
    assert_eq!(invalid[0]["args"], "{\"a\":");
}

#[test]
fn content_parts_of_chunks_are_merged_by_index() {
    let part = |text: &str| AiChunk {
        content: value!([{"type": "text", "text": text, "index": 0}]),
        ..Default::default()
    };
    let mut whole = AiChunk::text("");
    whole.push(&part("a"));
    whole.push(&part("b"));
    whole.push(&AiChunk::text("c"));
    assert_eq!(whole.message().text(), "abc");
    assert_eq!(whole.content.as_list().unwrap().len(), 2);
}

#[test]
fn a_chunk_is_dumped_as_langchain_does() {
    let chunk = AiChunk::text(" hello").with_id("lc_run--1");
    assert_eq!(
        chunk_with_defaults(&chunk.to_value()).to_json(),
        r#"{"content":" hello","additional_kwargs":{},"response_metadata":{},"type":"AIMessageChunk","name":null,"id":"lc_run--1","tool_calls":[],"invalid_tool_calls":[],"usage_metadata":null,"tool_call_chunks":[],"chunk_position":null}"#
    );
    let call = AiChunk {
        id: Some("lc_run--2".into()),
        tool_call_chunks: vec![ToolCallChunk {
            name: Some("add".into()),
            args: r#"{"a": 2}"#.into(),
            id: Some("call_1".into()),
            index: Some(0),
        }],
        last: true,
        ..Default::default()
    };
    assert_eq!(
        chunk_with_defaults(&call.to_value()).to_json(),
        r#"{"content":"","additional_kwargs":{},"response_metadata":{},"type":"AIMessageChunk","name":null,"id":"lc_run--2","tool_calls":[{"name":"add","args":{"a":2},"id":"call_1","type":"tool_call"}],"invalid_tool_calls":[],"usage_metadata":null,"tool_call_chunks":[{"name":"add","args":"{\"a\": 2}","id":"call_1","index":0,"type":"tool_call_chunk"}],"chunk_position":"last"}"#
    );
}

proptest! {
    #[test]
    fn the_stored_form_is_a_fixed_point_and_survives_the_dump(
        role in "user|assistant|human|ai|system|developer|tool|thought",
        text in "[a-z]{0,4}",
        id in proptest::option::of("[a-z]{1,3}"),
        name in proptest::option::of("[a-z]{1,3}"),
        status in proptest::option::of("success|error"),
        extra in crate::value::samples::any_value(),
    ) {
        let v = value!({"role": role, "content": text, "id": id, "name": name, "status": status,
            "additional_kwargs": {}, "extra": extra});
        let stored = coerce(&v).unwrap();
        prop_assert!(coerce(&stored).unwrap().is_identical(&stored), "{}", stored);
        prop_assert_eq!(&coerce(&with_defaults(&stored)).unwrap(), &stored);
    }

    #[test]
    fn merging_agrees_with_the_rules_read_literally(
        left in proptest::collection::btree_map("[a-d]", "[x-z]", 0..4),
        right in proptest::collection::vec(("[a-f]", proptest::option::of("[x-z]")), 0..6),
    ) {
        let left: Vec<Value> = left.iter().map(|(id, text)| m(id, text)).collect();
        let mut model = left.clone();
        let mut gone: Vec<String> = vec![];
        let mut unknown = false;
        for (id, text) in &right {
            let place = model.iter().position(|old| old["id"] == id.as_str());
            match (place, text) {
                (Some(_), None) => gone.push(id.clone()),
                (None, None) => { unknown = true; break; }
                (Some(at), Some(text)) => {
                    model[at] = m(id, text);
                    gone.retain(|g| g != id);
                }
                (None, Some(text)) => model.push(m(id, text)),
            }
        }
        model.retain(|old| !gone.iter().any(|g| old["id"] == g.as_str()));
        let writes = right.iter().map(|(id, text)| text.as_ref().map_or_else(|| remove(id), |t| m(id, t)));
        let merged = add(&Value::list(left), &list(writes));
        if unknown { prop_assert!(merged.is_err()) } else { prop_assert_eq!(merged.unwrap(), Value::list(model)) }
    }
}
