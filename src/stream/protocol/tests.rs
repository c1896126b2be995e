//! Tests of the events that recorded frames become.

use super::*;
use std::collections::VecDeque;

use crate::{
    id::RunId,
    stream::{End, log::ATTEMPT_FRAMES},
    value::Value,
};

const RUN: &str = "01a1fafc-3b82-7060-a0e0-9d3f4b148f0c";

type Frame<'a> = (&'a str, &'a str, &'a str);

fn events(frames: &[Frame<'_>], end: End, is_protocol: bool, channels: Channels) -> Vec<Event> {
    let mut run = RunEvents::new(RunFacts {
        run: RUN.parse::<RunId>().unwrap(),
        graph: "agent".into(),
        is_protocol,
    });
    let mut out = Output {
        wanted: channels,
        ..Output::default()
    };
    for (number, (event, ns, data)) in (1..).zip(frames) {
        let frame = Recorded {
            event,
            ns,
            data,
            number,
        };
        run.push(&frame, &mut out);
    }
    run.end(&end, &mut out);
    out.events.into()
}

/// Method, namespace and data of each event, one in a line.
fn lines(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| {
        let data = Value::from_json_slice(&event.data).unwrap().to_json();
        let ns = event.ns.join("|");
        format!("{} [{ns}] {data}", event.method.as_str())
    };
    events.iter().map(line).collect()
}

fn shown(frames: &[Frame<'_>], end: End) -> Vec<String> {
    lines(&events(frames, end, true, Channels::all()))
}

const METADATA: Frame<'static> = ("metadata", "", r#"{"run_id":"r","attempt":1}"#);

fn piece(id: &str, fields: &str) -> String {
    format!(
        r#"[{{"type":"AIMessageChunk","id":"{id}","content":"",{fields}}},{{"langgraph_node":"model","langgraph_checkpoint_ns":"model:k1"}}]"#
    )
}

#[test]
fn a_reply_grows_block_by_block_and_its_calls_have_results() {
    let call = piece(
        "m1",
        r#""tool_call_chunks":[{"name":"add","args":"{\"a\": 2, ","id":"call_1","index":0,"type":"tool_call_chunk"}]"#,
    );
    let more = piece(
        "m1",
        r#""tool_call_chunks":[{"name":null,"args":"\"b\": 3}","id":null,"index":0,"type":"tool_call_chunk"}]"#,
    );
    let last = piece(
        "m1",
        r#""usage_metadata":{"input_tokens":3},"chunk_position":"last""#,
    );
    let result = r#"[{"type":"tool","content":"5","id":"t1","name":"add","tool_call_id":"call_1","status":"success","artifact":null,"additional_kwargs":{},"response_metadata":{}},{"langgraph_node":"tools"}]"#;
    let found = shown(
        &[
            METADATA,
            ("messages", "", &call),
            ("messages", "", &more),
            ("messages", "", &last),
            ("messages", "", result),
        ],
        End::Success,
    );
    assert_eq!(
        found,
        [
            r#"lifecycle [] {"event":"running","graph_name":"agent"}"#,
            r#"messages [] {"event":"message-start","role":"ai","id":"m1"}"#,
            r#"messages [] {"event":"content-block-start","index":0,"content":{"type":"tool_call_chunk","id":"call_1","name":"add","args":"","index":0}}"#,
            r#"messages [] {"event":"content-block-delta","index":0,"delta":{"type":"tool-call-delta","args":"{\"a\": 2, "}}"#,
            r#"messages [] {"event":"content-block-delta","index":0,"delta":{"type":"tool-call-delta","args":"\"b\": 3}"}}"#,
            r#"messages [] {"event":"content-block-finish","index":0,"content":{"type":"tool_call","id":"call_1","name":"add","args":{"a":2,"b":3}}}"#,
            r#"messages [] {"event":"message-finish","usage":{"input_tokens":3}}"#,
            r#"tools [] {"event":"tool-started","tool_call_id":"call_1","tool_name":"add","input":{"a":2,"b":3}}"#,
            r#"tools [] {"event":"tool-finished","tool_call_id":"call_1","output":{"type":"tool","content":"5","id":"t1","name":"add","tool_call_id":"call_1","status":"success","artifact":null}}"#,
            r#"lifecycle [] {"event":"completed","graph_name":"agent"}"#,
        ]
    );
}

#[test]
fn thoughts_text_and_unusable_calls_are_blocks_of_their_own() {
    let parts = |content: &str, rest: &str| {
        format!(
            r#"[{{"type":"AIMessageChunk","id":"m","content":{content}{rest}}},{{"langgraph_node":"n","langgraph_checkpoint_ns":"n:k"}}]"#
        )
    };
    let thought = parts(r#"[{"type":"thinking","thinking":"hm","index":0}]"#, "");
    let more = parts(
        r#"[{"type":"thinking","thinking":"m","signature":"s","index":0}]"#,
        "",
    );
    let text = parts(r#"[{"type":"text","text":"so","index":1}]"#, "");
    let call = parts(
        r#""""#,
        r#","tool_call_chunks":[{"name":"f","args":"{oops","id":"c","index":2}],"chunk_position":"last""#,
    );
    let found = shown(
        &[
            METADATA,
            ("messages", "", &thought),
            ("messages", "", &more),
            ("messages", "", &text),
            ("messages", "", &call),
        ],
        End::Success,
    );
    let data: Vec<_> = found[2..found.len() - 1]
        .iter()
        .map(|line| line.strip_prefix("messages [] ").unwrap())
        .collect();
    assert_eq!(
        data,
        [
            r#"{"event":"content-block-start","index":0,"content":{"type":"reasoning","reasoning":"","extras":{"type":"thinking"}}}"#,
            r#"{"event":"content-block-delta","index":0,"delta":{"type":"reasoning-delta","reasoning":"hm"}}"#,
            r#"{"event":"content-block-delta","index":0,"delta":{"type":"reasoning-delta","reasoning":"m"}}"#,
            r#"{"event":"content-block-start","index":1,"content":{"type":"text","text":""}}"#,
            r#"{"event":"content-block-delta","index":1,"delta":{"type":"text-delta","text":"so"}}"#,
            r#"{"event":"content-block-start","index":2,"content":{"type":"tool_call_chunk","id":"c","name":"f","args":"","index":2}}"#,
            r#"{"event":"content-block-delta","index":2,"delta":{"type":"tool-call-delta","args":"{oops"}}"#,
            r#"{"event":"content-block-finish","index":0,"content":{"type":"reasoning","reasoning":"hmm","extras":{"type":"thinking","signature":"s"}}}"#,
            r#"{"event":"content-block-finish","index":1,"content":{"type":"text","text":"so"}}"#,
            r#"{"event":"content-block-finish","index":2,"content":{"type":"invalid_tool_call","id":"c","name":"f","args":"{oops","error":"the arguments are no JSON object"}}"#,
            r#"{"event":"message-finish"}"#,
        ]
    );
}

#[test]
fn messages_that_grow_together_are_told_apart_and_none_stays_open() {
    let text = |id: &str| {
        format!(
            r#"[{{"type":"AIMessageChunk","id":"{id}","content":"x"}},{{"langgraph_node":"n","langgraph_checkpoint_ns":"n:{id}"}}]"#
        )
    };
    let (one, two) = (text("k1"), text("k2"));
    let ends = r#"{"id":"k1","name":"n","error":null,"result":{},"interrupts":[]}"#;
    let found = shown(
        &[
            METADATA,
            ("messages", "", &one),
            ("messages", "", &two),
            ("messages", "", &one),
            ("tasks", "", ends),
        ],
        End::Failed(Some("boom".into())),
    );
    assert_eq!(
        &found[5..],
        [
            r#"messages [] {"event":"content-block-start","index":0,"content":{"type":"text","text":""},"message_id":"k2"}"#,
            r#"messages [] {"event":"content-block-delta","index":0,"delta":{"type":"text-delta","text":"x"},"message_id":"k2"}"#,
            r#"messages [] {"event":"content-block-delta","index":0,"delta":{"type":"text-delta","text":"x"},"message_id":"k1"}"#,
            r#"messages [] {"event":"content-block-finish","index":0,"content":{"type":"text","text":"xx"},"message_id":"k1"}"#,
            r#"messages [] {"event":"message-finish","message_id":"k1"}"#,
            r#"tasks [] {"id":"k1","name":"n","error":null,"result":{},"interrupts":[]}"#,
            r#"messages [] {"event":"error","message":"boom"}"#,
            r#"lifecycle [] {"event":"failed","graph_name":"agent","error":"boom"}"#,
        ]
    );
}

#[test]
fn graphs_inside_begin_after_their_first_state_and_end_with_their_task() {
    let started = |ns: &str| {
        format!(
            r#"{{"step":1,"timestamp":"2026-11-20T21:56:24.693979+00:00","type":"task_result","payload":{{"id":"{ns}","name":"child","error":null,"result":{{}},"interrupts":[]}}}}"#
        )
    };
    let end = started("1");
    let frames = [
        METADATA,
        ("values", "", r#"{"path":[]}"#),
        ("values", "child:1", r#"{"path":["a"]}"#),
        ("updates", "child:1", r#"{"enter":{"path":["a"]}}"#),
        ("debug", "", &end),
    ];
    let found = events(&frames, End::Success, true, Channels::all());
    assert_eq!(
        lines(&found),
        [
            r#"lifecycle [] {"event":"running","graph_name":"agent"}"#,
            r#"values [] {"path":[]}"#,
            r#"values [child:1] {"path":["a"]}"#,
            r#"lifecycle [child:1] {"event":"started","namespace":["child:1"],"graph_name":"child","trigger_call_id":"1"}"#,
            r#"updates [child:1] {"path":["a"]}"#,
            r#"tasks [] {"id":"1","name":"child","error":null,"result":{},"interrupts":[]}"#,
            r#"lifecycle [child:1] {"event":"completed","graph_name":"child"}"#,
            r#"lifecycle [] {"event":"completed","graph_name":"agent"}"#,
        ]
    );
    assert_eq!(found[4].node.as_deref(), Some("enter"));
    // The id of the run has a time, and so have the frames of tasks.
    assert_eq!(found[0].timestamp, 1_795_212_196_738);
    assert_eq!(found[5].timestamp, 1_795_211_784_693);
    let ids: Vec<_> = found.iter().map(|event| &*event.id).collect();
    let own = |text: &str| text.replace("RUN", RUN);
    assert_eq!(ids[0], own("synth:RUN:lc||running"));
    assert_eq!(ids[1], own("RUN:2"));
    assert_eq!(ids[3], own("synth:RUN:lc|child:1|started"));
    assert_eq!(found.last().unwrap().seq, 8);
}

#[test]
fn an_interrupt_is_shown_at_the_end_of_the_run_and_the_state_after_it() {
    let open =
        r#"{"request":"pay","__interrupt__":[{"value":{"q":1},"id":"i1","response_schema":null}]}"#;
    let frames = [
        METADATA,
        ("values", "", r#"{"request":"pay"}"#),
        ("values", "child:1", open),
        (
            "updates",
            "",
            r#"{"__interrupt__":[{"value":{"q":1},"id":"i1","response_schema":null}]}"#,
        ),
        ("values", "", open),
    ];
    assert_eq!(
        shown(&frames, End::Success)[2..],
        [
            r#"values [child:1] {"request":"pay"}"#,
            r#"lifecycle [child:1] {"event":"started","namespace":["child:1"],"graph_name":"child","trigger_call_id":"1"}"#,
            r#"input.requested [child:1] {"interrupt_id":"i1","payload":{"q":1},"value":{"q":1}}"#,
            r#"lifecycle [child:1] {"event":"interrupted","graph_name":"child"}"#,
            r#"lifecycle [] {"event":"interrupted","graph_name":"agent"}"#,
            r#"values [] {"request":"pay"}"#,
        ]
    );
    let stopped = [METADATA, ("updates", "", r#"{"__interrupt__":[]}"#)];
    assert_eq!(
        shown(&stopped, End::Success)[1],
        r#"lifecycle [] {"event":"interrupted","graph_name":"agent"}"#
    );
    assert_eq!(
        shown(&[METADATA], End::Cancelled)[1],
        r#"lifecycle [] {"event":"interrupted","graph_name":"agent"}"#
    );
}

#[test]
fn a_failure_is_its_message_and_custom_events_may_have_names() {
    let frames = [
        METADATA,
        ("custom", "", r#"{"tick":0}"#),
        ("custom", "", r#"{"name":"chart","payload":[1]}"#),
        ("custom", "", r#"{"name":"chart","payload":[1],"more":1}"#),
        (
            "error",
            "",
            r#"{"error":"ValueError","message":"boom from node bad"}"#,
        ),
    ];
    let found = events(&frames, End::Failed(None), true, Channels::all());
    assert_eq!(
        lines(&found)[1..],
        [
            r#"custom [] {"payload":{"tick":0}}"#,
            r#"custom [] {"payload":[1],"name":"chart"}"#,
            r#"custom [] {"payload":{"name":"chart","payload":[1],"more":1}}"#,
            r#"lifecycle [] {"event":"failed","graph_name":"agent","error":"boom from node bad"}"#,
        ]
    );
    assert_eq!(found[2].name.as_deref(), Some("chart"));
}

#[test]
fn a_classic_run_has_no_pieces_of_messages_and_keeps_their_form() {
    let state = r#"{"messages":[{"content":"echo: hi","additional_kwargs":{},"response_metadata":{},"type":"ai","name":null,"id":"a1","tool_calls":[],"invalid_tool_calls":[],"usage_metadata":null}]}"#;
    let frames = [
        METADATA,
        (
            "messages",
            "",
            r#"[{"type":"AIMessageChunk","id":"a1","content":"echo"},{}]"#,
        ),
        ("values", "", state),
    ];
    let found = events(&frames, End::Success, false, Channels::all());
    assert_eq!(
        lines(&found)[1],
        r#"values [] {"messages":[{"type":"ai","content":"echo: hi","id":"a1"}]}"#
    );
    assert_eq!(found.len(), 3);
}

#[test]
fn numbers_and_ids_do_not_depend_on_what_is_wanted() {
    let text = piece("m1", r#""chunk_position":"last""#);
    let frames = [
        METADATA,
        ("values", "", r#"{"a":1}"#),
        ("messages", "", &text),
        ("custom", "", "1"),
    ];
    let all = events(&frames, End::Success, true, Channels::all());
    for (word, _) in Method::CHANNELS {
        let wanted = Channels::parse([*word].into_iter()).unwrap();
        let filter = Filter {
            channels: wanted.clone(),
            ..Filter::default()
        };
        let some = events(&frames, End::Success, true, wanted);
        let expected: Vec<_> = all
            .iter()
            .filter(|event| filter.admits(event))
            .map(|event| (event.seq, &event.id))
            .collect();
        let found: Vec<_> = some.iter().map(|event| (event.seq, &event.id)).collect();
        assert_eq!(found, expected, "{word}");
    }
}

#[test]
fn frames_of_a_wrong_form_are_passed_over() {
    for data in ["", "{", "null", "[]", "[1]", "{\"type\":1}", "3"] {
        for event in [
            "values",
            "updates",
            "messages",
            "debug",
            "tasks",
            "checkpoints",
            "error",
            "x",
        ] {
            events(
                &[METADATA, (event, "a|b:1", data)],
                End::Success,
                true,
                Channels::all(),
            );
        }
    }
}

#[test]
fn an_event_is_written_as_official_servers_write_it() {
    let found = events(&[METADATA], End::Success, true, Channels::all());
    let mut out = vec![];
    found[0].write_frame(&mut out);
    let expected = format!(
        "event: lifecycle\r\ndata: {{\"type\":\"event\",\"event_id\":\"synth:{RUN}:lc||running\",\"seq\":1,\
         \"method\":\"lifecycle\",\"params\":{{\"namespace\":[],\"timestamp\":1795212196738,\
         \"data\":{{\"event\":\"running\",\"graph_name\":\"agent\"}}}}}}\r\nid: 1\r\n\r\n"
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn of_the_attempt_after_a_crash_each_reader_gets_the_same_events() {
    let run = || {
        RunEvents::new(RunFacts {
            run: RUN.parse::<RunId>().unwrap(),
            graph: "agent".into(),
            is_protocol: true,
        })
    };
    let push = |events: &mut RunEvents, first: u64, frames: &[Frame<'_>]| {
        let mut out = Output {
            wanted: Channels::all(),
            ..Output::default()
        };
        for (number, (event, ns, data)) in (first..).zip(frames) {
            let frame = Recorded {
                event,
                ns,
                data,
                number,
            };
            events.push(&frame, &mut out);
        }
        out.events
    };
    let text = piece("m1", r#""content":"half""#);
    let frames = [
        METADATA,
        ("values", "", "{}"),
        ("values", "child:1", "{}"),
        ("messages", "child:1", &*text),
    ];
    let next = ATTEMPT_FRAMES + 1;
    for left in 0..=frames.len() {
        let mut live = run();
        let shown = push(&mut live, 1, &frames);
        assert!(!live.is_before_attempt_of(ATTEMPT_FRAMES));
        assert!(live.is_before_attempt_of(next));
        let mut late = run();
        let before = push(&mut late, 1, &frames[..left]);
        let mut replayed = run();
        push(&mut replayed, 1, &frames[..left]);
        live.replace_by(replayed);
        let live = push(&mut live, next, &frames);
        let mut late = push(&mut late, next, &frames);
        let numbers = |events: &VecDeque<Event>| -> Vec<_> {
            events.iter().map(|event| event.id.clone()).collect()
        };
        assert!(
            numbers(&before)
                .iter()
                .all(|id| !numbers(&late).contains(id))
        );
        // The beginnings that the live reader was shown before the crash have the same ids.
        late.retain(|event| shown.iter().all(|one| one.id != event.id));
        assert_eq!(numbers(&live), numbers(&late), "{left}");
        assert_eq!(
            lines(live.as_slices().0),
            lines(late.make_contiguous()),
            "{left}"
        );
    }
}
