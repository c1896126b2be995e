//! Tests of bodies of requests that create runs.

use super::*;
use crate::{runs::request::Assistant, value, value::Map};

fn parsed(body: Value) -> Result<Run, Error> {
    parse(&body, false, &Options::default(), Requester::unrestricted())
}

fn refused(mut body: Value, stateless: bool) -> (u16, String) {
    let map = body.make_map_mut().unwrap();
    map.insert("assistant_id", "counter");
    let error = parse(
        &body,
        stateless,
        &Options::default(),
        Requester::unrestricted(),
    )
    .unwrap_err();
    (error.status.as_u16(), error.detail.into_owned())
}

#[test]
fn a_bare_request_gets_the_documented_defaults() {
    let run = parsed(value!({"assistant_id": "counter", "bogus": 1, "input": null})).unwrap();
    assert_eq!(run.assistant, Assistant::Graph("counter".into()));
    assert_eq!(run.input, None);
    assert_eq!(run.stream_mode, [Mode::Values]);
    assert_eq!(run.on_disconnect, OnDisconnect::Continue);
    assert_eq!(run.multitask_strategy, Strategy::Enqueue);
    assert_eq!(run.if_not_exists, IfNotExists::Reject);
    assert_eq!(run.durability, None);
    assert_eq!(run.after, Duration::ZERO);
    let id = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";
    let run = parsed(value!({"assistant_id": id, "stream_mode": [], "input": {}})).unwrap();
    assert_eq!(run.assistant, Assistant::Id(id.parse().unwrap()));
    assert_eq!(run.stream_mode, [Mode::Values]);
    assert_eq!(run.input, Some(value!({})));
}

#[test]
fn the_checkpoint_is_read_wherever_clients_put_it() {
    let id = "1f1e52d3-b51d-655d-8000-078d7d9aa83f";
    for body in [
        value!({"assistant_id": "a", "checkpoint_id": id}),
        value!({"assistant_id": "a", "checkpoint": {"checkpoint_id": id, "checkpoint_ns": ""}}),
        value!({"assistant_id": "a", "config": {"configurable": {"checkpoint_id": id}}}),
    ] {
        let run = parsed(body).unwrap();
        assert_eq!(run.address.checkpoint.unwrap().to_string(), id);
    }
    let both = parsed(value!({
        "assistant_id": "a", "context": {"k": 1},
        "config": {"configurable": {"checkpoint_id": id}}
    }));
    assert!(both.is_ok(), "an address is no configuration");
    let nested = value!({"assistant_id": "a", "checkpoint": {
        "checkpoint_id": id, "checkpoint_ns": "child:1", "checkpoint_map": {"": id}
    }});
    let address = parsed(nested).unwrap().address;
    assert_eq!(&*address.ns, "child:1");
    assert!(address.map.is_some());
}

#[test]
fn each_wrong_field_is_refused_with_its_reason() {
    let long = Map::from_iter((0..65).map(|n| (n.to_string().into(), Value::Null)));
    for (body, status, part) in [
        (
            value!({"stream_mode": "bogus"}),
            422,
            "\"bogus\" is not one of \"values\"",
        ),
        (
            value!({"stream_mode": ["values", "tools"]}),
            422,
            "\"tools\" is not one of",
        ),
        (
            value!({"multitask_strategy": "bogus"}),
            422,
            "\"reject\", \"rollback\"",
        ),
        (
            value!({"durability": "x"}),
            422,
            "\"sync\", \"async\" or \"exit\"",
        ),
        (
            value!({"after_seconds": "x"}),
            422,
            "not of type \"number\"",
        ),
        (
            value!({"after_seconds": 1e300}),
            422,
            "greater than the maximum",
        ),
        (
            value!({"checkpoint_id": "nope"}),
            422,
            "Invalid checkpoint ID",
        ),
        (
            value!({"checkpoint": {"checkpoint_id": "nope"}}),
            422,
            "Invalid checkpoint ID",
        ),
        (
            value!({"config": {"recursion_limit": 10001}}),
            422,
            "maximum of 10000",
        ),
        (value!({"config": {"tags": [1]}}), 422, "in `config.tags`"),
        (value!({"config": []}), 422, "in `config`"),
        (value!({"interrupt_before": "first"}), 422, "\"*\""),
        (
            value!({"interrupt_after": [1]}),
            422,
            "not of type \"string\"",
        ),
        (value!({"command": 1}), 422, "not of type \"object\""),
        (value!({"command": {"goto": 1}}), 422, "`command.goto`"),
        (value!({"webhook": "http://"}), 422, "Webhook"),
        (value!({"metadata": Value::map(long)}), 422, "at most 64"),
        (
            value!({"config": {"configurable": {"a": 1}}, "context": {"b": 2}}),
            400,
            "Cannot specify both",
        ),
    ] {
        let (got, detail) = refused(body, false);
        assert_eq!(got, status, "{detail}");
        assert!(detail.contains(part), "{detail} has no {part}");
    }
    let error = parsed(value!({"input": {}})).unwrap_err();
    assert_eq!(error.detail, "\"assistant_id\" is a required property");
    let (status, detail) = refused(value!({"command": {"resume": 1}}), true);
    assert_eq!(
        (status, &*detail),
        (400, "You must provide a thread_id when resuming.")
    );
}

#[test]
fn the_old_word_for_durability_is_understood() {
    let body = value!({"assistant_id": "a", "checkpoint_during": false});
    assert_eq!(parsed(body).unwrap().durability, Some(Durability::Exit));
}
