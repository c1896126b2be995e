//! The message index and the events of threads, as runs, edits, crashes and undone runs leave
//! them in the tables.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::on_both_storages;
use crate::support::{
    self,
    client::Client,
    place::{Place, serve},
    server::Server,
    tables::{self, Row},
    talk::{TURN, background, slow, turn, until},
};

on_both_storages!(
    two_turns_give_the_expected_nodes_and_gapless_events,
    tools_and_their_answers_are_messages_of_their_run,
    a_question_ends_with_its_checkpoint_and_its_answer_is_another_run,
    a_breakpoint_leaves_the_message_that_waits,
    an_edit_tells_of_messages_it_changes_adds_and_removes,
    in_exit_durability_all_messages_come_with_the_one_checkpoint,
    a_replay_of_an_old_checkpoint_grows_a_branch_from_its_message,
    a_copied_checkpoint_brings_its_messages_along,
    a_queued_run_is_told_of_before_it_starts,
    a_cancelled_run_is_told_of_with_what_it_left,
    a_run_that_is_undone_leaves_its_branch_reset,
    a_run_that_is_cancelled_with_rollback_has_its_end,
    a_stateless_run_leaves_no_trace,
    a_failed_run_says_so,
    a_killed_server_leaves_no_event_without_its_checkpoint,
    events_cannot_be_changed,
);

/// A row of `events`.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    number: i64,
    kind: &'static str,
    branch: Option<String>,
    checkpoint: Option<String>,
    run: Option<String>,
    message: Option<String>,
    payload: Option<String>,
}

/// A row of `message_nodes`.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    id: String,
    parent: Option<String>,
    ordinal: i64,
    kind: String,
    message: String,
    checkpoint: String,
    depth: i64,
    seq: i64,
    settled: Option<String>,
    branch: String,
    run: Option<String>,
    role: Option<String>,
    event: Option<i64>,
}

/// A row of `checkpoints` of the root graph.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    parent: Option<String>,
    depth: i64,
    last_node: Option<String>,
    event: i64,
}

/// What the tables say of one thread.
#[derive(Clone, Debug, PartialEq)]
struct Rows {
    last_event: i64,
    events: Vec<Event>,
    nodes: Vec<Node>,
    points: BTreeMap<String, Point>,
}

const EVENTS: &str = "SELECT CAST(event_number AS TEXT), CAST(kind AS TEXT), ID(branch_id), \
    ID(checkpoint_id), ID(run_id), message_id, CAST(payload AS TEXT) FROM events \
    WHERE ID(thread_id) = '$' ORDER BY events.event_number";
const NODES: &str = "SELECT ID(node_id), ID(parent_node_id), CAST(ordinal AS TEXT), kind, \
    message_id, ID(checkpoint_id), CAST(depth AS TEXT), CAST(seq AS TEXT), \
    ID(settled_checkpoint_id), ID(branch_id), ID(run_id), role, CAST(event_number AS TEXT) \
    FROM message_nodes WHERE ID(thread_id) = '$' ORDER BY message_nodes.event_number, message_nodes.seq";
const POINTS: &str = "SELECT ID(checkpoint_id), ID(parent_checkpoint_id), CAST(depth AS TEXT), \
    ID(last_node_id), CAST(event_number AS TEXT) FROM checkpoints \
    WHERE ID(thread_id) = '$' AND checkpoint_ns = ''";
const THREAD: &str =
    "SELECT CAST(last_event_number AS TEXT) FROM threads WHERE ID(thread_id) = '$'";

/// Reads with `ID(x)` for the text of an id and `$` for the thread's.
fn query(place: &Place, server: &Server, sql: &str, thread: &str) -> Vec<Row> {
    let mut sql = sql.replace('$', &thread.replace('-', ""));
    let (before, after) = match place.url() {
        Some(_) => ("replace(CAST(", " AS TEXT), '-', '')"),
        None => ("lower(hex(", "))"),
    };
    while let Some(at) = sql.find("ID(") {
        let end = at + sql[at..].find(')').unwrap();
        let column = sql[at + 3..end].to_owned();
        let text = match place.url() {
            Some(_) => format!("{before}{column}{after}"),
            None => format!("nullif({before}{column}{after}, '')"),
        };
        sql.replace_range(at..=end, &text);
    }
    tables::rows(place, server, &sql)
}

impl Rows {
    fn of(place: &Place, server: &Server, thread: &str) -> Self {
        let number = |text: &Option<String>| text.as_ref().unwrap().parse::<i64>().unwrap();
        let read = |sql| query(place, server, sql, thread);
        let rows = Self {
            last_event: read(THREAD).first().map_or(0, |row| number(&row[0])),
            events: read(EVENTS)
                .into_iter()
                .map(|row| Event {
                    number: number(&row[0]),
                    kind: kind(number(&row[1])),
                    branch: row[2].clone(),
                    checkpoint: row[3].clone(),
                    run: row[4].clone(),
                    message: row[5].clone(),
                    payload: row[6].clone(),
                })
                .collect(),
            nodes: read(NODES)
                .into_iter()
                .map(|row| Node {
                    id: row[0].clone().unwrap(),
                    parent: row[1].clone(),
                    ordinal: number(&row[2]),
                    kind: row[3].clone().unwrap(),
                    message: row[4].clone().unwrap(),
                    checkpoint: row[5].clone().unwrap(),
                    depth: number(&row[6]),
                    seq: number(&row[7]),
                    settled: row[8].clone(),
                    branch: row[9].clone().unwrap(),
                    run: row[10].clone(),
                    role: row[11].clone(),
                    event: row[12].as_ref().map(|text| text.parse().unwrap()),
                })
                .collect(),
            points: read(POINTS)
                .into_iter()
                .map(|row| {
                    let point = Point {
                        parent: row[1].clone(),
                        depth: number(&row[2]),
                        last_node: row[3].clone(),
                        event: number(&row[4]),
                    };
                    (row[0].clone().unwrap(), point)
                })
                .collect(),
        };
        rows.check();
        rows
    }

    /// What holds of every thread.
    fn check(&self) {
        let numbers: Vec<_> = self.events.iter().map(|event| event.number).collect();
        let expected: Vec<_> = (1..=self.last_event).collect();
        assert_eq!(numbers, expected, "without a gap");
        let nodes: BTreeMap<_, _> = self.nodes.iter().map(|node| (&node.id, node)).collect();
        for node in &self.nodes {
            let parent = node.parent.as_ref().map(|parent| nodes[parent]);
            assert!(parent.is_none_or(|parent| parent.kind == "add"), "{node:?}");
            let before = parent.map_or(0, |parent| parent.ordinal);
            let step = i64::from(node.kind == "add");
            assert_eq!(node.ordinal, before + step, "{node:?}");
            let point = &self.points[&node.checkpoint];
            assert_eq!(point.depth, node.depth);
            let event = &self.events[usize::try_from(node.event.unwrap()).unwrap() - 1];
            assert_eq!(event.message.as_ref(), Some(&node.message));
            assert_eq!(event.checkpoint.as_ref(), Some(&node.checkpoint));
            assert!(point.event >= event.number);
        }
        for point in self.points.values() {
            let last = point.last_node.as_ref();
            assert!(last.is_none_or(|last| nodes.contains_key(last)));
            if let Some(parent) = &point.parent {
                assert!(self.points[parent].event <= point.event, "along a path");
            }
        }
        // What a superstep told of came with it.
        let undone = self.kinds().contains(&"BranchHeadReset");
        for event in self.events.iter().filter(|_| !undone) {
            let told_with = event.checkpoint.as_ref();
            assert!(
                told_with.is_none_or(|id| self.points.contains_key(id)),
                "{event:?}"
            );
        }
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.events.iter().map(|event| event.kind).collect()
    }

    fn since(&self, number: usize) -> Vec<&'static str> {
        self.kinds().split_off(number)
    }

    /// Kind, role and ordinal of every node.
    fn changes(&self) -> Vec<(&str, &str, i64)> {
        self.nodes
            .iter()
            .map(|node| {
                let role = node.role.as_deref().unwrap_or("");
                (&*node.kind, role, node.ordinal)
            })
            .collect()
    }

    /// Contents of a kind of event.
    fn of_kind(&self, kind: &str) -> Vec<&Event> {
        self.events
            .iter()
            .filter(|event| event.kind == kind)
            .collect()
    }
}

fn kind(code: i64) -> &'static str {
    backstitch::tree::event::kind(i16::try_from(code).unwrap()).unwrap()
}

fn head(client: &Client, thread: &str) -> String {
    plain(&client.state(thread)["checkpoint"]["checkpoint_id"])
}

fn plain(id: &Value) -> String {
    id.as_str().unwrap().replace('-', "")
}

fn two_turns_give_the_expected_nodes_and_gapless_events(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("one"));
    let first = head(&client, &thread);
    let values = client.run(&thread, &turn("two"));
    let second = head(&client, &thread);
    let rows = Rows::of(place, &server, &thread);
    let mut expected = vec!["ThreadCreated"];
    expected.extend(TURN);
    expected.extend(TURN);
    assert_eq!(rows.kinds(), expected);
    assert_eq!(
        rows.changes(),
        [
            ("add", "human", 1),
            ("add", "ai", 2),
            ("add", "human", 3),
            ("add", "ai", 4)
        ]
    );
    for (node, message) in rows
        .nodes
        .iter()
        .zip(values["messages"].as_array().unwrap())
    {
        assert_eq!(node.message, message["id"]);
    }
    let parents: Vec<_> = rows.nodes.iter().map(|node| node.parent.clone()).collect();
    let ids: Vec<_> = rows
        .nodes
        .iter()
        .map(|node| Some(node.id.clone()))
        .collect();
    assert_eq!(parents[0], None);
    assert_eq!(parents[1..], ids[..3]);
    let settled: Vec<_> = rows.nodes.iter().map(|node| node.settled.clone()).collect();
    let (first, second) = (Some(first), Some(second));
    assert_eq!(settled, [None, first.clone(), None, second.clone()]);
    let ends: Vec<_> = rows
        .of_kind("CheckpointCreated")
        .into_iter()
        .map(|event| event.checkpoint.clone())
        .collect();
    assert_eq!(ends, [first, second]);
    // The facts are in columns.
    assert!(rows.events.iter().all(|event| event.payload.is_none()));
    let answers = rows.of_kind("LLMResponseGenerated");
    let finished = rows.of_kind("RunFinished");
    assert_eq!(answers[0].run, finished[0].run);
    assert_eq!(answers[0].run, rows.nodes[1].run);
    assert_ne!(answers[0].run, answers[1].run);
    // A bare input does not hold its message yet.
    let inputs: Vec<_> = rows
        .points
        .values()
        .filter(|point| point.last_node.is_none())
        .collect();
    assert_eq!(inputs.len(), 1);
}

fn tools_and_their_answers_are_messages_of_their_run(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("tool: 2 3"));
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(
        rows.changes(),
        [
            ("add", "human", 1),
            ("add", "ai", 2),
            ("add", "tool", 3),
            ("add", "ai", 4)
        ]
    );
    let tool = rows.of_kind("MessageAdded");
    assert!(tool[0].payload.as_ref().unwrap().contains("tool"));
    let settled = rows.nodes.iter().filter(|node| node.settled.is_some());
    assert_eq!(settled.count(), 1);
    assert!(rows.nodes[3].settled.is_some());
}

fn a_question_ends_with_its_checkpoint_and_its_answer_is_another_run(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "approve", "input": {"request": "x"}}),
    );
    let rows = Rows::of(place, &server, &thread);
    let run = [
        "RunEnqueued",
        "RunStarted",
        "CheckpointCreated",
        "RunFinished",
    ];
    assert_eq!(rows.since(1), run);
    client.run(
        &thread,
        &json!({"assistant_id": "approve", "command": {"resume": "yes"}}),
    );
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.since(5), run);
    let ends = rows.of_kind("CheckpointCreated");
    assert_ne!(ends[0].checkpoint, ends[1].checkpoint);
    assert_eq!(ends[1].checkpoint, Some(head(&client, &thread)));
}

fn a_breakpoint_leaves_the_message_that_waits(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let mut body = turn("wait");
    body["interrupt_before"] = json!(["model"]);
    client.run(&thread, &body);
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.changes(), [("add", "human", 1)]);
    assert_eq!(rows.nodes[0].settled, Some(head(&client, &thread)));
    client.run(&thread, &json!({"assistant_id": "agent", "input": null}));
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.changes(), [("add", "human", 1), ("add", "ai", 2)]);
    assert_ne!(rows.nodes[0].run, rows.nodes[1].run);
    assert_ne!(rows.nodes[0].settled, rows.nodes[1].settled);
}

fn an_edit_tells_of_messages_it_changes_adds_and_removes(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let values = client.run(&thread, &turn("one"));
    let (human, ai) = (&values["messages"][0]["id"], &values["messages"][1]["id"]);
    let edit = |messages: Value| {
        let body = json!({"values": {"messages": messages}, "as_node": "model"});
        let answer = client.post(&format!("/threads/{thread}/state"), &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        plain(&answer.json()["checkpoint_id"])
    };
    let made = edit(json!([
        {"type": "human", "id": human, "content": "changed"},
        {"type": "ai", "id": "own", "content": "by hand"},
        {"type": "remove", "id": ai, "content": ""},
    ]));
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(
        rows.since(7),
        [
            "MessageRemoved",
            "MessageEdited",
            "MessageAdded",
            "CheckpointCreated"
        ]
    );
    assert_eq!(
        rows.changes()[2..],
        [("remove", "ai", 2), ("edit", "human", 2), ("add", "ai", 3)]
    );
    let about: Vec<_> = rows.nodes[2..].iter().map(|node| &*node.message).collect();
    assert_eq!(
        about,
        [ai.as_str().unwrap(), human.as_str().unwrap(), "own"]
    );
    for event in &rows.events[7..] {
        assert_eq!(event.checkpoint.as_ref(), Some(&made));
        assert_eq!(event.run, None);
    }
    // One that changes no message.
    edit(json!([]));
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.since(11), ["CheckpointCreated"]);
}

fn in_exit_durability_all_messages_come_with_the_one_checkpoint(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let mut body = turn("tool: 1 2");
    body["durability"] = json!("exit");
    client.run(&thread, &body);
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.points.len(), 1);
    let places: Vec<_> = rows.nodes.iter().map(|node| node.seq).collect();
    assert_eq!(places, [0, 1, 2, 3]);
    let roles: Vec<_> = rows.nodes.iter().map(|node| node.role.as_deref()).collect();
    assert_eq!(roles, ["human", "ai", "tool", "ai"].map(Some));
    client.run(&thread, &body);
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.nodes.len(), 8);
    assert_eq!(rows.nodes[7].ordinal, 8);
}

fn a_replay_of_an_old_checkpoint_grows_a_branch_from_its_message(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("one"));
    let first = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
    client.run(&thread, &turn("two"));
    let mut body = turn("again");
    body["checkpoint_id"] = first;
    client.run(&thread, &body);
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(
        rows.since(13),
        [
            "RunEnqueued",
            "RunStarted",
            "BranchCreated",
            "BranchActivated",
            "UserMessageAdded",
            "LLMResponseGenerated",
            "CheckpointCreated",
            "RunFinished"
        ]
    );
    let made = &rows.of_kind("BranchCreated")[0];
    let facts: Value = serde_json::from_str(made.payload.as_ref().unwrap()).unwrap();
    let expected = json!({"branch": "main-v2", "origin": "checkpoint", "source_branch": "main"});
    assert_eq!(facts, expected);
    let node = &rows.nodes[4];
    assert_eq!(node.parent.as_ref(), Some(&rows.nodes[1].id));
    assert_eq!(
        (node.ordinal, &node.branch),
        (3, made.branch.as_ref().unwrap())
    );
    assert_ne!(node.branch, rows.nodes[0].branch);
}

fn a_copied_checkpoint_brings_its_messages_along(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("one"));
    let answer = client.post(
        &format!("/threads/{thread}/state"),
        &json!({"values": null, "as_node": "__copy__"}),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    let made = plain(&answer.json()["checkpoint_id"]);
    let rows = Rows::of(place, &server, &thread);
    // Its parent holds the question; the answer comes with the copy once more.
    let (answer, copied) = (&rows.nodes[1], &rows.nodes[2]);
    assert_eq!(
        (&copied.message, &copied.parent, copied.ordinal),
        (&answer.message, &answer.parent, 2)
    );
    assert_eq!(copied.checkpoint, made);
    assert_eq!(rows.points[&made].last_node.as_ref(), Some(&copied.id));
    client.run(&thread, &turn("two"));
    Rows::of(place, &server, &thread);
}

fn a_queued_run_is_told_of_before_it_starts(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let first = background(&client, &thread, &slow(300, 3));
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

fn a_stateless_run_leaves_no_trace(place: &Place) {
    let (server, client) = serve(place);
    let answer = client.post("/runs/wait", &turn("one"));
    assert_eq!(answer.status, 200, "{}", answer.text());
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
    let (mut server, mut client) = serve(place);
    let thread = client.thread();
    for round in 0..4 {
        for part in 0..3 {
            background(&client, &thread, &turn(&format!("tool: {round} {part}")));
        }
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
    assert_eq!(ended, rows.of_kind("RunStarted").len());
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
