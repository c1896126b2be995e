//! Tests of the rows of the message index.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{id::RunId, value};

const LAST: ChangeSource = ChangeSource::Update { last: true };
const MORE: ChangeSource = ChangeSource::Update { last: false };

fn message(role: &str, id: &str, content: &str) -> Value {
    value!({"type": (role), "content": (content), "id": (id)})
}

fn change<'a>(before: &'a [Value], after: &'a [Value], by: ChangeSource) -> MessageChange<'a> {
    MessageChange {
        before,
        after,
        last_node: None,
        run: None,
        by,
    }
}

fn kinds(rows: &IndexRows) -> Vec<(&'static str, &str)> {
    rows.events
        .iter()
        .map(|event| (event.kind, event.message_id.as_deref().unwrap_or("")))
        .collect()
}

fn changes(rows: &IndexRows) -> Vec<(&'static str, &str)> {
    rows.nodes
        .iter()
        .map(|node| (node.kind, &*node.message_id))
        .collect()
}

#[test]
fn messages_that_a_run_adds_follow_each_other_and_know_their_events() {
    let run = RunId::mint();
    let top = NodeId::mint();
    let old = [message("human", "a", "hi")];
    let new = [
        old[0].clone(),
        message("ai", "b", "calls"),
        message("tool", "c", "42"),
        message("ai", "d", "it is 42"),
    ];
    let rows = Indexer::default().index(&MessageChange {
        last_node: Some(top),
        run: Some(run),
        ..change(&old, &new, ChangeSource::Run)
    });
    assert_eq!(
        kinds(&rows),
        [
            ("LLMResponseGenerated", "b"),
            ("MessageAdded", "c"),
            ("LLMResponseGenerated", "d")
        ]
    );
    let facts: Vec<_> = rows.events.iter().map(|event| &event.payload).collect();
    let by_run = event::about_run(run);
    let tool = Map::from([("role", "tool".into())]);
    assert_eq!(facts, [&by_run, &tool, &by_run]);
    let parents: Vec<_> = rows.nodes.iter().map(|node| node.parent).collect();
    let ids: Vec<_> = rows.nodes.iter().map(|node| Some(node.id)).collect();
    assert_eq!(parents, [Some(top), ids[0], ids[1]]);
    assert_eq!(rows.last_node, ids[2]);
    for (place, node) in (0..).zip(&rows.nodes) {
        assert_eq!(
            (node.kind, node.seq, node.ordinal),
            ("add", place, place + 1)
        );
        assert_eq!(node.event_offset, Some(place + 1));
    }
}

#[test]
fn answers_are_those_of_models_only_when_a_run_makes_them() {
    let new = [message("ai", "a", "x"), message("human", "b", "y")];
    let posted = Indexer::default().index(&change(&[], &new, MORE));
    assert_eq!(
        kinds(&posted),
        [("MessageAdded", "a"), ("UserMessageAdded", "b")]
    );
}

#[test]
fn edits_and_removals_hang_on_the_newest_message() {
    let top = NodeId::mint();
    let old = [
        message("human", "a", "1"),
        message("ai", "b", "2"),
        message("human", "c", "3"),
    ];
    let new = [
        old[0].clone(),
        message("human", "c", "changed"),
        message("ai", "d", "4"),
    ];
    let rows = Indexer::default().index(&MessageChange {
        last_node: Some(top),
        ..change(&old, &new, ChangeSource::Run)
    });
    assert_eq!(
        changes(&rows),
        [("remove", "b"), ("edit", "c"), ("add", "d")]
    );
    assert_eq!(
        kinds(&rows),
        [
            ("MessageRemoved", "b"),
            ("MessageEdited", "c"),
            ("LLMResponseGenerated", "d")
        ]
    );
    assert!(rows.nodes.iter().all(|node| node.parent == Some(top)));
    assert_eq!(rows.nodes[0].role.as_deref(), Some("ai"));
    assert_eq!(rows.last_node, Some(rows.nodes[2].id));
    let ordinals: Vec<_> = rows.nodes.iter().map(|node| node.ordinal).collect();
    assert_eq!(ordinals, [0, 0, 1]);
}

#[test]
fn the_end_of_an_edit_is_told_even_when_no_message_changed() {
    let list = [message("human", "a", "1")];
    let rows = Indexer::default().index(&change(&list, &list, LAST));
    assert_eq!(kinds(&rows), [("CheckpointCreated", "")]);
    assert!(rows.nodes.is_empty());
}

#[test]
fn a_message_that_was_announced_has_its_number_already() {
    let indexer = Indexer {
        announced: HashMap::from([("b".into(), 7)]),
        replaces: HashMap::from([("c".into(), "old".into())]),
    };
    let new = [
        message("human", "a", "1"),
        message("human", "b", "2"),
        message("human", "c", "3"),
    ];
    let rows = indexer.index(&change(&[], &new, ChangeSource::Run));
    assert_eq!(
        kinds(&rows),
        [("UserMessageAdded", "a"), ("UserMessageAdded", "c")]
    );
    let known: Vec<_> = rows
        .nodes
        .iter()
        .map(|node| {
            (
                node.event_number,
                node.event_offset,
                node.edit_of.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        known,
        [
            (None, Some(1), None),
            (Some(7), None, None),
            (None, Some(2), Some("old"))
        ]
    );
}

#[test]
fn what_is_no_message_is_left_out() {
    let new = [value!("text"), value!({"content": "no id"}), value!(1)];
    let rows = Indexer::default().index(&change(&[], &new, ChangeSource::Run));
    assert!(rows.nodes.is_empty() && rows.events.is_empty());
}

/// Lists of messages with ids of their own, as reducers leave them.
fn list() -> impl Strategy<Value = Vec<Value>> {
    let all: Vec<u8> = (0..7).collect();
    let roles = prop::collection::vec(0..3_usize, 7);
    let texts = prop::collection::vec(0..2_u8, 7);
    let chosen = prop::sample::subsequence(all, 0..=7).prop_shuffle();
    (chosen, roles, texts).prop_map(|(chosen, roles, texts)| {
        chosen
            .into_iter()
            .map(|id| {
                let at = usize::from(id);
                let role = ["human", "ai", "tool"][roles[at]];
                message(role, &format!("m{id}"), &texts[at].to_string())
            })
            .collect()
    })
}

proptest! {
    /// Whoever follows the rows knows what is in the state, and what was ever in it.
    #[test]
    fn rows_tell_every_change_of_any_sequence_of_states(states in prop::collection::vec(list(), 1..8)) {
        let mut last = None;
        let mut old: Vec<Value> = vec![];
        let mut known: BTreeMap<String, Value> = BTreeMap::new();
        for new in states {
            let rows = Indexer::default().index(&MessageChange {
                last_node: last,
                ..change(&old, &new, ChangeSource::Run)
            });
            prop_assert_eq!(rows.nodes.len(), rows.events.len());
            let (mut parent, mut adds) = (last, 0);
            for (place, node) in (0..).zip(&rows.nodes) {
                prop_assert_eq!(node.parent, parent);
                prop_assert_eq!(node.seq, place);
                prop_assert_eq!(node.event_offset, Some(place + 1));
                let event = &rows.events[place as usize];
                prop_assert_eq!(event.message_id.as_ref(), Some(&node.message_id));
                let id = node.message_id.to_string();
                let now = new.iter().find(|message| super::id(message) == Some(&id));
                match node.kind {
                    "add" => {
                        adds += 1;
                        parent = Some(node.id);
                        prop_assert!(known.insert(id, now.unwrap().clone()).is_none());
                    }
                    "edit" => {
                        let before = known.insert(id, now.unwrap().clone());
                        prop_assert!(before.is_some() && before.as_ref() != now);
                    }
                    _ => {
                        prop_assert!(now.is_none());
                        prop_assert!(known.remove(&id).is_some());
                    }
                }
                prop_assert_eq!(node.ordinal, adds);
            }
            prop_assert_eq!(rows.last_node, parent);
            let in_state: BTreeMap<String, Value> = new
                .iter()
                .map(|message| (super::id(message).unwrap().to_owned(), message.clone()))
                .collect();
            prop_assert_eq!(&known, &in_state);
            (old, last) = (new, parent);
        }
    }
}
