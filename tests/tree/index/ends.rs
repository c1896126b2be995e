//! What runs leave that wait, fail, are cancelled, undone or killed.

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    a_queued_run_is_told_of_before_it_starts,
    a_cancelled_run_is_told_of_with_what_it_left,
    a_run_that_is_undone_leaves_its_branch_reset,
    a_run_that_is_cancelled_with_rollback_has_its_end,
    scenario_04_a_stateless_run_leaves_no_trace,
    a_failed_run_says_so,
    a_killed_server_leaves_no_event_without_its_checkpoint,
    events_cannot_be_changed,
);

fn a_queued_run_is_told_of_before_it_starts(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let first = background(&client, &thread, &slow(1000, 3));
    let second = background(&client, &thread, &turn("later"));
    client.end_of(&thread, &first);
    client.end_of(&thread, &second);
    let rows = Rows::of(place, &server, &thread);
    let (first, second) = (first.replace('-', ""), second.replace('-', ""));
    let of_second: Vec<_> = rows
        .events
        .iter()
        .filter(|event| event.run.as_ref() == Some(&second))
        .map(|event| event.kind)
        .collect();
    assert_eq!(
        of_second,
        [
            "RunEnqueued",
            "RunStarted",
            "LLMResponseGenerated",
            "RunFinished"
        ]
    );
    let number = |kind: &str, run: &String| {
        let found = rows.of_kind(kind);
        let found = found.iter().find(|event| event.run.as_ref() == Some(run));
        found.unwrap().number
    };
    assert!(number("RunEnqueued", &second) < number("RunFinished", &first));
    assert!(number("RunFinished", &first) < number("RunStarted", &second));
    // Nobody knew the branch yet.
    let enqueued = rows.of_kind("RunEnqueued");
    assert!(enqueued[0].branch.is_some() && enqueued[1].branch.is_none());
}

fn status(event: &Event) -> String {
    match &event.payload {
        Some(text) => {
            let facts: Value = serde_json::from_str(text).unwrap();
            facts["status"].as_str().unwrap().to_owned()
        }
        None => "success".to_owned(),
    }
}

fn a_cancelled_run_is_told_of_with_what_it_left(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let run = background(&client, &thread, &slow(20_000, 100));
    until("its input is stored", || {
        !client.history(&thread).is_empty()
    });
    let path = format!("/threads/{thread}/runs/{run}/cancel?wait=true");
    let answer = client.post(&path, &json!({}));
    assert!(answer.status < 300, "{}", answer.text());
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.since(3), ["CheckpointCreated", "RunFinished"]);
    let end = rows.events.last().unwrap();
    assert_eq!(status(end), "interrupted");
    assert_eq!(end.checkpoint, Some(head(&client, &thread)));
}

fn a_run_that_is_undone_leaves_its_branch_reset(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("one"));
    let base = head(&client, &thread);
    background(&client, &thread, &slow(20_000, 100));
    until("the run moves its branch", || {
        head(&client, &thread) != base
    });
    let mut body = turn("instead");
    body["multitask_strategy"] = json!("rollback");
    client.run(&thread, &body);
    let rows = Rows::of(place, &server, &thread);
    let mut expected = vec![
        "RunEnqueued",
        "RunStarted",
        "RunFinished",
        "BranchHeadReset",
    ];
    expected.extend(TURN);
    assert_eq!(rows.since(7), expected);
    assert_eq!(status(&rows.events[9]), "interrupted");
    assert_eq!(rows.events[10].checkpoint, Some(base));
    let ordinals: Vec<_> = rows.nodes.iter().map(|node| node.ordinal).collect();
    assert_eq!(ordinals, [1, 2, 3, 4]);
}

fn a_run_that_is_cancelled_with_rollback_has_its_end(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let run = background(&client, &thread, &slow(20_000, 100));
    until("its input is stored", || {
        !client.history(&thread).is_empty()
    });
    let path = format!("/threads/{thread}/runs/{run}/cancel?wait=true&action=rollback");
    let answer = client.post(&path, &json!({}));
    assert!(answer.status < 300, "{}", answer.text());
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.since(3), ["RunFinished", "BranchHeadReset"]);
    assert_eq!(status(&rows.events[3]), "interrupted");
    assert_eq!(rows.events[4].checkpoint, None);
    assert!(rows.points.is_empty());
}

fn scenario_04_a_stateless_run_leaves_no_trace(place: &Place) {
    let (server, client) = serve(place);
    let waited = client.post("/runs/wait", &turn("one"));
    assert_eq!(waited.status, 200, "{}", waited.text());
    assert_eq!(waited.json()["messages"][1]["content"], "echo: one");
    let streamed = client.post("/runs/stream", &turn("two"));
    assert!(streamed.text().contains("echo: two"), "{}", streamed.text());
    let left = client.post("/runs", &turn("three")).json();
    let thread = format!("/threads/{}", left["thread_id"].as_str().unwrap());
    until("it has ended", || client.get(&thread).status == 404);
    for table in ["threads", "checkpoints", "message_nodes", "events", "runs"] {
        let rows = query(
            place,
            &server,
            &format!("SELECT CAST(count(*) AS TEXT) FROM {table}"),
            "",
        );
        assert_eq!(rows[0][0].as_deref(), Some("0"), "{table}");
    }
    // One that is kept has a log from its thread's creation on.
    let mut body = turn("two");
    body["on_completion"] = json!("keep");
    let answer = client.post("/runs/wait", &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let threads = query(place, &server, "SELECT ID(thread_id) FROM threads", "");
    let thread = threads[0][0].clone().unwrap();
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.kinds()[0], "ThreadCreated");
    assert_eq!(rows.since(1), TURN);
}

fn a_failed_run_says_so(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let body = json!({"assistant_id": "agent",
        "input": {"messages": [{"type": "human", "content": "tool: x y"}]}});
    let run = background(&client, &thread, &body);
    assert_eq!(client.end_of(&thread, &run), "error");
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(
        rows.since(3),
        ["UserMessageAdded", "CheckpointCreated", "RunFinished"]
    );
    assert_eq!(status(rows.events.last().unwrap()), "error");
}

fn a_killed_server_leaves_no_event_without_its_checkpoint(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "2");
    let mut server = place.start(setup);
    let mut client = Client::of(&server);
    let thread = client.thread();
    for round in 0..4 {
        for part in 0..3 {
            background(&client, &thread, &turn(&format!("tool: {round} {part}")));
        }
        // The process dies at another moment in each round.
        std::thread::sleep(Duration::from_millis(7 * round));
        server.kill();
        Rows::of(place, &server, &thread);
        server.restart();
        client = Client::of(&server);
    }
    // A process that is gone counts as such after a while, and what waited behind it goes on.
    let run = background(&client, &thread, &turn("the end"));
    assert_eq!(client.end_of(&thread, &run), "success");
    let rows = Rows::of(place, &server, &thread);
    let ended = rows.of_kind("RunFinished").len();
    assert_eq!(ended, rows.of_kind("RunEnqueued").len());
    // Those that were cut off were started again.
    assert!(ended <= rows.of_kind("RunStarted").len());
    assert_eq!(ended, 13);
}

fn events_cannot_be_changed(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    for sql in ["UPDATE events SET message_id = 'x'", "DELETE FROM events"] {
        let refused = tables::execute(place, &server, sql).unwrap_err();
        assert!(refused.contains("immutable"), "{refused}");
    }
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.kinds(), ["ThreadCreated"]);
    assert_eq!(client.delete(&format!("/threads/{thread}")).status, 204);
    assert!(Rows::of(place, &server, &thread).events.is_empty());
}
