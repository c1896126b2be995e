//! Tests of the encoding and the payloads of events.

use super::*;
use crate::{
    id::{BranchId, RunId},
    time::Timestamp,
    tree::store::rows::ThreadEvent,
};

fn event(kind: &str) -> ThreadEvent {
    let thread = ThreadId::mint();
    ThreadEvent {
        id: id(thread, 1),
        thread,
        number: 1,
        kind: kind.into(),
        payload: Map::new(),
        branch: Some(BranchId::mint()),
        checkpoint: None,
        message_id: None,
        created_at: Timestamp(0),
    }
}

fn facts() -> EventFacts {
    EventFacts {
        branch: Some("main".into()),
        ..EventFacts::default()
    }
}

#[test]
fn every_type_has_a_number_of_its_own() {
    for (name, number) in CODES {
        assert_eq!(code(name).unwrap(), *number);
        assert_eq!(kind(*number).unwrap(), *name);
    }
    assert!(code("Nothing").is_err());
    assert!(kind(99).is_err());
}

#[test]
fn ids_follow_from_thread_and_number() {
    let thread = ThreadId::mint();
    assert_eq!(id(thread, 3), id(thread, 3));
    assert_ne!(id(thread, 3), id(thread, 4));
    assert_ne!(id(thread, 3), id(ThreadId::mint(), 3));
}

#[test]
fn an_answer_names_its_run_its_question_and_its_branch() {
    let run = RunId::mint();
    let event = ThreadEvent {
        message_id: Some("ai-1".into()),
        payload: about_run(run),
        ..event(LLM_RESPONSE_GENERATED)
    };
    let facts = EventFacts {
        reply_to: Some("human-1".into()),
        ..facts()
    };
    let expected = Map::from([
        ("ai_message_id", "ai-1".into()),
        ("reply_to", "human-1".into()),
        ("run_id", run.to_string().into()),
        ("branch", "main".into()),
    ]);
    assert_eq!(payload(&event, &facts), expected);
}

#[test]
fn a_payload_comes_back_as_it_was_and_most_need_no_room() {
    let run = RunId::mint();
    let stored = |kind, payload: &Map| encode(kind, payload).unwrap();
    let cases = [
        (RUN_STARTED, about_run(run), true),
        (RUN_FINISHED, end_of_run(run, "success"), true),
        (RUN_FINISHED, end_of_run(run, "error"), false),
        (CHECKPOINT_CREATED, Map::new(), true),
        (BRANCH_CREATED, new_branch("b", "btw", "main"), false),
        (TAG_SET, Map::from([("run_id", "not an id".into())]), false),
    ];
    for (kind, payload, empty) in cases {
        let split = stored(kind, &payload);
        assert_eq!(split.facts.is_none(), empty, "{kind}");
        assert_eq!(decode(split).unwrap(), (kind, payload));
    }
}

#[test]
fn roles_are_shown_as_the_message_api_names_them() {
    let mut event = event(MESSAGE_ADDED);
    event.message_id = Some("m".into());
    event.payload = Map::from([("role", "ai".into())]);
    assert_eq!(
        payload(&event, &facts()),
        Map::from([
            ("message_id", "m".into()),
            ("role", "assistant".into()),
            ("branch", "main".into())
        ])
    );
}
