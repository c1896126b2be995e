//! What rows of lists weigh before they are read: both storages say the same, also of values of many tiny items.

use std::sync::Arc;

use backstitch::{
    assistants::{
        Content,
        request::{Columns, Filter, Search, SortBy},
        store::{NewAssistant, Subject, VersionQuery},
    },
    crons::{CronRow, request as of_crons},
    id::{AssistantId, RunId, ThreadId, WorkerId},
    runs::{NewRun, Recover, RequestSlots},
    tree::{
        NewThread,
        search::{SortBy as ThreadOrder, ThreadPage},
        store::rows::NewEvent,
    },
    value,
    value::{Map, Value},
};
use test_support::invariants::Tables;

use super::{
    backend::*,
    crons::{assistant, create, row},
    queue::dead,
    sessions::{begin, reader},
};

fn nulls(count: usize) -> Value {
    Value::list(vec![Value::Null; count])
}

/// A thousand items that have one byte each where they are stored, and 24 in memory.
///
/// In the binary form it has 1009 bytes: one each for the format, the kind of the map, its length, the length of its
/// key and that itself, four for the kind and the length of the list, and one for each item. The list has room for 1024
/// items in memory: with 3.5 times its bytes for the bytes and the JSON text that is more than four times and less than
/// five times 6 * 1009, so that its tag is `b5`.
fn tiny() -> Value {
    value!({"t": nulls(1000)})
}

/// What [`tiny`] weighs in the binary form: 1009 * 5.
const TINY: u64 = 5_045;

/// Maps in maps: `{"t":[{"a":{}},...]}`.
fn nested() -> Value {
    value!({"t": Value::list(vec![value!({"a": {}}); 700])})
}

/// The first of two figures on SQLite, which stores JSON as it is written, and the second on Postgres, whose `jsonb`
/// has a space behind each colon and comma.
fn either(b: &Backend, [sqlite, postgres]: [u64; 2]) -> u64 {
    match b.tables {
        Tables::File(_) => sqlite,
        Tables::Url(_) => postgres,
    }
}

/// What the JSON text of [`tiny`] weighs: 12 times 5007 bytes, or with 1000 spaces 6007.
const TINY_TEXT: [u64; 2] = [60_084, 72_084];

/// The same of [`nested`]: 6307 bytes, or with 1400 spaces 7707.
const NESTED_TEXT: [u64; 2] = [75_684, 92_484];

pub async fn listed_threads_weigh_their_metadata_and_the_first_ones_are_whole(b: &Backend) {
    // With the first one, and two bytes of a config each, it has the 524,288 bytes that are read at once: of a text in
    // metadata all but 8 are its own, or with a space all but 9.
    let fits = either(b, [519_269, 518_268]);
    let text = value!({"t": "x".repeat(usize::try_from(fits).unwrap())});
    for metadata in [tiny(), text, nested()] {
        let new = NewThread {
            metadata: map(metadata),
            ..new_thread(ThreadId::mint())
        };
        b.trees.create_thread(new).await.unwrap().unwrap();
    }
    let page = ThreadPage {
        sort_by: ThreadOrder::CreatedAt,
        ascending: true,
        limit: 10,
        ..ThreadPage::default()
    };
    let found = b.trees.search(page).await.unwrap();
    let seen: Vec<_> = found.iter().map(|one| (one.weight, one.is_whole)).collect();
    let expected = [
        (either(b, TINY_TEXT) + 24, true),
        (either(b, [6_231_348, 6_219_348]), true),
        (either(b, NESTED_TEXT) + 24, false),
    ];
    assert_eq!(seen, expected);
    assert!(found[2].thread.metadata.is_empty());
}

pub async fn events_weigh_their_payloads(b: &Backend) {
    let slot = b.slot().await;
    let of = |payload| NewEvent {
        kind: "TagSet",
        payload: map(payload),
        ..NewEvent::default()
    };
    let text = value!({"t": "x".repeat(5_000)});
    let mut tx = begin(b, slot.tree).await;
    let log = vec![of(tiny()), of(text), of(nested())];
    tx.append(slot.tree, slot.thread, log).await.unwrap();
    tx.commit().await.unwrap();
    let mut rows = reader(b).await;
    let found = rows.event_weights(slot.tree, slot.thread, 0, 9).await;
    // The first event, of the new thread, has no payload. The text has 5008 bytes, or 5009.
    let expected = [
        (1, 0),
        (2, either(b, TINY_TEXT)),
        (3, either(b, [60_096, 60_108])),
        (4, either(b, NESTED_TEXT)),
    ];
    assert_eq!(found.unwrap(), expected);
}

pub async fn runs_weigh_their_requests_and_metadata(b: &Backend) {
    let thread = b.thread().await;
    let waiting = async |kwargs, metadata| {
        let new = NewRun {
            claim: None,
            kwargs,
            metadata: map(metadata),
            ..new_run(thread)
        };
        b.queue(new).await.id
    };
    let m = value!({"m": 1});
    let large = value!({"input": nulls(5_000), "config": {"metadata": m.clone()}});
    let ids = [
        waiting(value!({"input": nulls(1_000)}), value!({})).await,
        waiting(value!({"input": "x".repeat(5_000)}), tiny()).await,
        waiting(large, m).await,
    ];
    let whole = b.runs.run_weights(thread, None, 9, 0).await.unwrap();
    let of_metadata = b.runs.metadata_weights(thread, None, 9, 0).await.unwrap();
    let newest_first = || ids.iter().rev().copied();
    assert!(whole.iter().map(|(id, _)| *id).eq(newest_first()));
    assert!(of_metadata.iter().map(|(id, _)| *id).eq(newest_first()));
    for (id, weight) in &whole {
        let alone = b.runs.run_weight(thread, *id).await.unwrap();
        assert_eq!(alone, Some(*weight));
    }
    let none = b.runs.run_weight(thread, RunId::mint()).await.unwrap();
    assert_eq!(none, None);
    // The name of the input takes a byte, and three more say that it does: 1012 * 5, and 12 for each byte of `{}`.
    assert_eq!(whole[2].1, 5_060 + 24);
    // The 5012 bytes of one with a text weigh no more than that.
    assert_eq!(whole[1].1, 5_012 + either(b, TINY_TEXT));
    // Where a row does not have the metadata beside the request, that is read for it.
    assert_eq!(of_metadata[1..], whole[1..]);
    // A large one has it: `[{"m":1}]` is 9 bytes, or with a space 10. The request has a few more than 5000 bytes, and
    // each weighs 8: the list has room for 8192 items.
    assert_eq!(of_metadata[0].1, either(b, [108, 120]));
    let request = whole[0].1 - of_metadata[0].1;
    assert!((40_080..41_600).contains(&request), "{request}");
}

pub async fn lost_runs_take_slots_by_what_their_requests_weigh(b: &Backend) {
    let dead = dead(b).await;
    let mut lost = vec![];
    for kwargs in [value!({"input": nulls(25_000)}), Value::Null] {
        let new = NewRun {
            claim: Some(dead),
            kwargs,
            ..new_run(b.thread().await)
        };
        lost.push(b.start(new).await.0.id);
    }
    let me = WorkerId::mint();
    // The first request takes two slots, since its list has room for 32,768 items, and by half of its bytes one.
    for run in lost {
        let by = Recover {
            worker: me,
            busy: vec![],
            limit: 2,
            slots: RequestSlots {
                bytes: 20_000 * size_of::<Value>(),
                most: 4,
            },
            failed: vec![],
        };
        let found = b.runs.recover(by).await.unwrap();
        let taken: Vec<RunId> = found.taken.iter().map(|taken| taken.run.id).collect();
        assert_eq!(taken, [run]);
    }
}

pub async fn assistants_and_their_versions_weigh_what_is_read_of_them(b: &Backend) {
    let id = AssistantId::mint();
    let content = Content {
        graph: "agent".into(),
        name: "n".to_owned(),
        description: Some("dd".to_owned()),
        metadata: map(tiny()),
        config: map(tiny()),
        context: Map::new(),
    };
    let new = NewAssistant {
        id,
        owner: "ann".into(),
        content,
    };
    b.assistants.create_assistant(new, 100).await.unwrap();
    // One tag is stored for both: the three bytes of the empty context weigh five times that too.
    let (names, context, metadata) = (3, 15, either(b, TINY_TEXT));
    let all = names + TINY + context + metadata;
    let graphs: Arc<[Arc<str>]> = ["agent".into()].into();
    let subject = Subject {
        id,
        viewer: None,
        graphs: graphs.clone(),
    };
    let query = VersionQuery {
        metadata: Map::new(),
        limit: 9,
        offset: 0,
    };
    let found = b.assistants.assistant_versions(subject, query).await;
    assert_eq!(found.unwrap(), Some(vec![(1, all)]));
    let only = |choose: fn(&mut Columns)| {
        let mut columns = Columns::NONE;
        choose(&mut columns);
        columns
    };
    for (columns, weight) in [
        (Columns::default(), all),
        (Columns::NONE, names),
        (only(|columns| columns.config = true), names + TINY),
        (only(|columns| columns.context = true), names + context),
        (only(|columns| columns.metadata = true), names + metadata),
    ] {
        let search = Search {
            filter: Filter {
                graphs: graphs.to_vec(),
                ..Filter::default()
            },
            sort_by: SortBy::CreatedAt,
            ascending: true,
            limit: 9,
            offset: 0,
        };
        let found = b.assistants.search_assistants(search, columns).await;
        assert_eq!(found.unwrap(), [(id, weight)], "{columns:?}");
    }
}

pub async fn crons_weigh_what_is_read_of_them(b: &Backend) {
    let new = CronRow {
        metadata: map(tiny()),
        payload: map(tiny()),
        ..row(assistant(b).await, None)
    };
    let id = create(b, new).await.id;
    let (metadata, payload) = (either(b, TINY_TEXT), TINY);
    let of_metadata = of_crons::Columns {
        metadata: true,
        ..of_crons::Columns::NONE
    };
    let of_payload = of_crons::Columns {
        payload: true,
        ..of_crons::Columns::NONE
    };
    for (columns, weight) in [
        (of_crons::Columns::default(), metadata + payload),
        (of_metadata, metadata),
        (of_payload, payload),
        (of_crons::Columns::NONE, 0),
    ] {
        let search = of_crons::Search {
            limit: 9,
            ..of_crons::Search::default()
        };
        let found = b.crons.search_crons(search, columns).await.unwrap();
        assert_eq!(found, [(id, weight)], "{columns:?}");
    }
}
