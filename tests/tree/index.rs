//! The message index and the events of threads, as runs, edits, crashes and undone runs leave
//! them in the tables.

mod ends;
mod turns;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use test_support::{
    client::Client,
    place::{Place, serve},
    server::{Server, Setup},
    tables::{self, Row},
    talk::{TURN, background, slow, turn, until},
};

/// Types of events in the order of the numbers that rows hold, from 1 on.
const KINDS: [&str; 18] = [
    "ThreadCreated",
    "ThreadForked",
    "UserMessageAdded",
    "LLMResponseGenerated",
    "MessageAdded",
    "MessageEdited",
    "MessageRemoved",
    "CheckpointCreated",
    "BranchCreated",
    "BranchActivated",
    "BranchHeadReset",
    "BranchRenamed",
    "BranchDeleted",
    "TagSet",
    "TagDeleted",
    "RunEnqueued",
    "RunStarted",
    "RunFinished",
];

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

impl Event {
    /// The events of a row: two of a run that follow each other share one, with the number of the second.
    fn each(self, code: i64) -> Vec<Self> {
        let (first, second) = match code {
            19 => ((16, self.run.clone()), 17),
            20 => ((8, None), 18),
            code => {
                return vec![Self {
                    kind: kind(code),
                    ..self
                }];
            }
        };
        let first = Self {
            number: self.number - 1,
            kind: kind(first.0),
            run: first.1,
            payload: None,
            ..self.clone()
        };
        let second = Self {
            kind: kind(second),
            ..self
        };
        vec![first, second]
    }
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
                .flat_map(|row| {
                    Event {
                        number: number(&row[0]),
                        kind: "",
                        branch: row[2].clone(),
                        checkpoint: row[3].clone(),
                        run: row[4].clone(),
                        message: row[5].clone(),
                        payload: row[6].clone(),
                    }
                    .each(number(&row[1]))
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

/// The type of an event by the number that its row holds.
fn kind(code: i64) -> &'static str {
    KINDS[usize::try_from(code).unwrap() - 1]
}

fn head(client: &Client, thread: &str) -> String {
    plain(&client.state(thread)["checkpoint"]["checkpoint_id"])
}

fn plain(id: &Value) -> String {
    id.as_str().unwrap().replace('-', "")
}
