//! Streams of whole threads: every run of a thread and the edits of its state, over one connection.

use serde_json::{Value, json};
use test_support::client::{Client, Event, Open};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk;

on_both_storages!(
    runs_and_edits_are_shown_in_one_order,
    a_watcher_who_comes_back_gets_what_it_missed_of_runs_that_can_be_resumed,
    a_thread_that_does_not_exist_yet_is_waited_for,
    wrong_modes_and_ids_are_refused,
);

fn counter(resumable: bool) -> Value {
    json!({
        "assistant_id": "counter",
        "input": {"count": 1, "log": []},
        "stream_resumable": resumable,
    })
}

fn watch(client: &Client, thread: &str, query: &str, after: Option<&str>) -> Open {
    let path = format!("/threads/{thread}/stream{query}");
    let headers: Vec<_> = after.map(|id| ("last-event-id", id)).into_iter().collect();
    let open = client.open("GET", &path, &headers, b"");
    assert_eq!(open.status, 200, "{path}");
    assert_eq!(
        open.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    open
}

/// The events up to the end of the n-th run.
fn runs(open: &mut Open, count: usize) -> Vec<Event> {
    let mut events = vec![];
    let mut ended = 0;
    while ended < count {
        let event = open.event().unwrap();
        ended += usize::from(event.data["status"] == "run_done");
        events.push(event);
    }
    events
}

/// The two numbers of an id.
fn position(event: &Event) -> (u64, u64) {
    let id = event.id.as_deref().unwrap();
    let (number, between) = id.split_once('-').unwrap_or((id, "0"));
    (number.parse().unwrap(), between.parse().unwrap())
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

fn runs_and_edits_are_shown_in_one_order(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut all = watch(&client, &thread, "", None);
    let query = "?stream_modes=lifecycle,state_update";
    let mut ends = watch(&client, &thread, query, None);
    let query = "?stream_mode=run_modes&stream_mode=state_update";
    let mut everything = watch(&client, &thread, query, None);
    for resumable in [false, true, false] {
        client.run(&thread, &counter(resumable));
    }
    let edit = json!({"values": {"count": 5}});
    let path = format!("/threads/{thread}/state");
    let edited = talk::ok(client.post(&path, &edit), 200);

    let events = runs(&mut all, 3);
    let one = [
        "metadata", "values", "values", "values", "values", "metadata",
    ];
    assert_eq!(names(&events), [one, one, one].concat());
    for run in events.chunks(one.len()) {
        let id = run[0].data["run_id"].clone();
        assert_eq!(run[0].data, json!({"run_id": id, "attempt": 1}));
        assert_eq!(run[5].data, json!({"run_id": id, "status": "run_done"}));
    }
    assert!(events.is_sorted_by(|a, b| position(a) < position(b)));

    let shown = runs(&mut ends, 3);
    let lifecycle: Vec<_> = events
        .iter()
        .filter(|event| event.name == "metadata")
        .collect();
    assert!(shown.iter().eq(lifecycle));
    let last = ends.event().unwrap();
    assert_eq!(last.name, "state_update");
    assert_eq!(last.data["thread_id"], thread);
    let state = &last.data["state"];
    assert_eq!(state["checkpoint_id"], edited["checkpoint_id"]);
    assert_eq!(state, &client.state(&thread));

    let mut joined = runs(&mut everything, 3);
    joined.push(everything.event().unwrap());
    let expected: Vec<_> = events.iter().chain([&last]).collect();
    assert!(joined.iter().eq(expected));
}

fn a_watcher_who_comes_back_gets_what_it_missed_of_runs_that_can_be_resumed(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut first = watch(&client, &thread, "", None);
    client.run(&thread, &counter(true));
    let before = runs(&mut first, 1);
    drop(first);
    client.run(&thread, &counter(false));
    client.run(&thread, &counter(true));
    for at in [0, 2, before.len() - 1] {
        let mut back = watch(&client, &thread, "", before[at].id.as_deref());
        let rest = before.len() - at - 1;
        let events = runs(&mut back, if rest == 0 { 1 } else { 2 });
        assert_eq!(events[..rest], before[at + 1..]);
        let missed = &events[rest..];
        assert_eq!(missed.len(), before.len(), "that of one run");
        assert_ne!(missed[0].data, before[0].data);
    }
    let mut whole = watch(&client, &thread, "", Some("-"));
    assert_eq!(runs(&mut whole, 2)[..before.len()], before);
}

fn a_thread_that_does_not_exist_yet_is_waited_for(place: &Place) {
    let (_server, client) = serve(place);
    let thread = uuid::Uuid::now_v7().to_string();
    let mut open = watch(&client, &thread, "", None);
    let body = talk::with(counter(false), "if_not_exists", "create");
    client.run(&thread, &body);
    let events = runs(&mut open, 1);
    assert_eq!(events.len(), 6, "{events:?}");
}

fn wrong_modes_and_ids_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let path = format!("/threads/{thread}/stream");
    for query in [
        "stream_modes=bogus",
        "stream_mode=lifecycle,x",
        "stream_mode=values",
    ] {
        let answer = client.get(&format!("{path}?{query}"));
        assert!(answer.refused(422).contains("\"run_modes\""), "{query}");
    }
    for id in ["bogus", "", "1-", "-2", "1-2-3", "-+"] {
        let answer = client.send("GET", &path, &[("last-event-id", id)], b"");
        assert!(answer.refused(422).contains("last-event-id"), "{id}");
    }
    client.get("/threads/nope/stream").refused(422);
}
