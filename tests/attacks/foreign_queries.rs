//! Ids of one principal in queries and headers of another's requests: what they name is as unknown as what there is not.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use test_support::access::{SECRET, bystander, furnished, people, seen, serve};
use test_support::client::{Answer, Client, Open};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::routes::{Names, Route, all};
use test_support::talk::{self, ok};

use crate::siege::{MIB, Watch};

on_both_storages!(
    ids_of_somebody_else_in_queries_and_headers_name_nothing,
    event_ids_of_somebody_elses_streams_show_ones_own_events_alone,
    an_idempotency_key_of_somebody_else_is_a_new_one,
);

/// What many small requests may take.
const MOST: u64 = 64 * MIB;

/// Parameters that name nothing of anybody, or whose numbers count within what the path names.
const NAMELESS: [&str; 34] = [
    "Prefer",
    "action",
    "after_depth",
    "cancel_on_disconnect",
    "check_db",
    "delete_threads",
    "dry_run",
    "event_number",
    "format",
    "include",
    "inherited",
    "leaf",
    "limit",
    "mode",
    "offset",
    "position",
    "recurse",
    "refresh_ttl",
    "scope",
    "select",
    "siblings",
    "status",
    "stream_mode",
    "stream_modes",
    "subgraphs",
    "tail",
    "traceparent",
    "view",
    "wait",
    "x-request-id",
    "xray",
    // Tests of their own: below, and `foreign_ids` for the number of an event that is waited for.
    "Idempotency-Key",
    "Last-Event-ID",
    "min_event",
];

/// What somebody has, and nothing of the same form.
pub struct Foreign {
    pub names: Names,
    pub message: String,
    pub branch: String,
    pub tag: String,
    pub assistant: String,
    pub key: String,
    pub fork_page: String,
}

impl Foreign {
    /// What ann has beside what `furnished` makes, which has the same names for everybody.
    pub fn of(ann: &Client) -> Self {
        let names = furnished(ann, SECRET);
        let thread = &names.thread;
        let (message, branch, tag, key) = ("u-hers", "b-hers", "t-hers", "k-hers");
        let post = json!({"id": message, "role": "user", "content": SECRET});
        talk::store(ann, thread, &post);
        let at = json!({"name": branch, "message_id": message});
        ok(ann.post(&format!("/threads/{thread}/branches"), &at), 201);
        let path = format!("/threads/{thread}/tags/{tag}");
        ok(talk::put(ann, &path, &json!({"message_id": message})), 201);
        let item = json!({"namespace": ["hers"], "key": key, "value": {"word": SECRET}});
        ok(talk::put(ann, "/store/items", &item), 204);
        let made = json!({"graph_id": "agent", "name": SECRET});
        let assistant = ok(ann.post("/assistants", &made), 200)["assistant_id"].clone();
        for _ in 0..2 {
            talk::fork(ann, thread, &json!({}));
        }
        let page = talk::get(ann, thread, "forks?limit=1");
        Self {
            message: message.into(),
            branch: branch.into(),
            tag: tag.into(),
            assistant: assistant.as_str().unwrap().into(),
            key: key.into(),
            fork_page: page["next"].as_str().unwrap().into(),
            names,
        }
    }

    /// The same names of nothing.
    pub fn nowhere(&self) -> Self {
        Self {
            names: Names::of(&uuid::Uuid::now_v7().to_string()),
            message: "u-none".into(),
            branch: "b-none".into(),
            tag: "t-none".into(),
            assistant: uuid::Uuid::now_v7().to_string(),
            key: "k-none".into(),
            // The time of a fork, and its id.
            fork_page: format!(
                "{}-{}",
                self.fork_page.split_once('-').unwrap().0,
                uuid::Uuid::now_v7().simple()
            ),
        }
    }

    /// Texts for a parameter of a route; the same number of them for everybody.
    fn texts(&self, path: &str, name: &str) -> Vec<String> {
        let checkpoint = &self.names.checkpoint;
        match (path, name) {
            ("/threads/{thread_id}/messages", "after" | "before" | "leaf_id")
            | (_, "message_id" | "parent_id") => vec![self.message.clone()],
            ("/threads/{thread_id}/history", "before") | (_, "checkpoint_id") => {
                vec![checkpoint.clone()]
            }
            (_, "branch") => vec![self.branch.clone()],
            (_, "tag") => vec![self.tag.clone()],
            ("/threads/{thread_id}/diff", "from" | "to") => vec![
                format!("branch:{}", self.branch),
                format!("tag:{}", self.tag),
                format!("checkpoint:{checkpoint}"),
                format!("message:{}", self.message),
            ],
            ("/threads/{thread_id}/forks", "after") => vec![self.fork_page.clone()],
            // Numbers of the thread's own events.
            ("/threads/{thread_id}/events", "after") => vec![],
            (_, "assistant_id") => vec![self.assistant.clone()],
            ("/store/items", "namespace") => vec!["hers".into()],
            ("/store/items", "key") => vec![self.key.clone()],
            _ => panic!("say what {name} of {path} names"),
        }
    }
}

/// What a response is without the name that was asked for.
fn without(answer: &Answer, name: &str) -> (u16, String) {
    let name = name.split_once(':').map_or(name, |(_, name)| name);
    (answer.status, answer.text().replace(name, "NAME"))
}

/// The parameters of an operation of the document, in queries and headers.
fn parameters(document: &Value, route: &Route) -> Vec<String> {
    let method = route.method.to_ascii_lowercase();
    let all = document["paths"][route.path][method]["parameters"].as_array();
    let all = all.into_iter().flatten();
    let named = all.filter(|one| one["in"] != "path");
    named
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

fn ids_of_somebody_else_in_queries_and_headers_name_nothing(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let hers = Foreign::of(&ann);
    let none = hers.nowhere();
    let own = furnished(&bob, "of-bob");
    let before = seen(&ann, &hers.names.thread);
    let document = ok(bob.get("/openapi.json"), 200);
    let mut met = BTreeSet::new();
    for route in all() {
        let path = route.path(&own);
        let path = path.split('?').next().unwrap();
        for name in parameters(&document, &route) {
            if NAMELESS.contains(&&*name) {
                met.insert(name);
                continue;
            }
            let texts = hers.texts(route.path, &name);
            for (theirs, nothing) in texts.into_iter().zip(none.texts(route.path, &name)) {
                // What else the operation takes.
                let more = match (route.path, &*name) {
                    ("/threads/{thread_id}/diff", "from") => "&to=branch:main",
                    ("/threads/{thread_id}/diff", "to") => "&from=branch:main",
                    ("/store/items", "namespace") => "&key=k-hers",
                    ("/store/items", "key") => "&namespace=hers",
                    _ => "",
                };
                let ask = |text: &str| {
                    let path = format!("{path}?{name}={text}{more}");
                    let answer = bob.send(route.method, &path, &[], b"");
                    let shown = answer.text();
                    assert!(!shown.contains(SECRET), "{} {path}: {shown}", route.method);
                    without(&answer, text)
                };
                let (of_hers, of_none) = (ask(&theirs), ask(&nothing));
                assert_eq!(of_hers, of_none, "{} {path}?{name}={theirs}", route.method);
            }
        }
    }
    let unknown: Vec<_> = NAMELESS
        .iter()
        .filter(|name| !met.contains(**name))
        .collect();
    assert!(unknown.is_empty(), "no route takes {unknown:?}");
    assert_eq!(seen(&ann, &hers.names.thread), before);
    watch.held("ids of somebody else in queries", MOST);
}

/// What a stream shows before there is nothing more for a while.
fn until_silent(stream: &mut Open) -> String {
    let mut shown = String::new();
    while !shown.ends_with(": heartbeat\r\n\r\n") {
        let piece = stream.chunk().unwrap();
        shown += std::str::from_utf8(&piece).unwrap();
    }
    shown
}

fn event_ids_of_somebody_elses_streams_show_ones_own_events_alone(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let run = |client: &Client, word: &str, turns: usize| {
        let thread = talk::agent_thread(client);
        let mut ids = vec![];
        let mut last = String::new();
        for _ in 0..turns {
            let turn = talk::with(talk::turn(word), "stream_resumable", true);
            let mut open = client.open_stream(&thread, &turn);
            last = open.run();
            ids.extend(std::iter::from_fn(|| open.event()).filter_map(|event| event.id));
        }
        (thread, last, ids)
    };
    // Hers has more events, so that some of their ids are of none of his.
    let (hers, _, of_runs) = run(&ann, SECRET, 3);
    let (thread, last, _) = run(&bob, "of-bob", 1);
    let path = format!("/threads/{hers}/stream");
    let mut open = ann.open("GET", &path, &[("last-event-id", "-")], b"");
    let of_thread: Vec<_> = (0..4).filter_map(|_| open.event().unwrap().id).collect();
    assert!(!of_thread.is_empty());
    let end = talk::last_event(&ann, &hers);
    let numbers = (1..=end).map(|number| number.to_string());
    let mut ids: BTreeSet<String> = of_runs.into_iter().collect();
    ids.extend(of_thread.into_iter().chain(numbers));
    assert!(ids.len() > 10, "{ids:?}");
    let mut streams = vec![];
    for id in &ids {
        let headers = [("last-event-id", &**id), ("accept", "text/event-stream")];
        for path in [
            format!("/threads/{thread}/runs/{last}/stream"),
            format!("/runs/{last}/stream"),
        ] {
            let answer = bob.send("GET", &path, &headers, b"");
            assert!([200, 404].contains(&answer.status), "{}", answer.text());
            assert!(!answer.text().contains(SECRET), "{path} {id}");
        }
        for end in ["stream", "events"] {
            let path = format!("/threads/{thread}/{end}");
            streams.push((
                format!("{path} {id}"),
                bob.open("GET", &path, &headers, b""),
            ));
        }
    }
    println!("{} ids, {} streams", ids.len(), streams.len());
    // Those of the thread go on with what happens on it next.
    bob.run(&thread, &talk::turn("of-bob-at-the-end"));
    let mut shown = 0;
    for (asked, mut stream) in streams {
        if stream.status != 200 {
            assert_eq!(stream.status, 422, "{asked}");
            continue;
        }
        let text = until_silent(&mut stream);
        assert!(
            !text.contains(SECRET) && !text.contains(&hers),
            "{asked}: {text}"
        );
        shown += usize::from(text.contains(&*thread) || text.contains("of-bob"));
    }
    assert!(shown > 0, "no stream showed anything");
    watch.held("ids of somebody else's events", MOST);
}

fn an_idempotency_key_of_somebody_else_is_a_new_one(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let threads = json!({"metadata": {"graph_id": "agent"}});
    let turn = talk::turn("x");
    for (path, body, id) in [
        ("/threads", &threads, "thread_id"),
        ("/runs", &turn, "run_id"),
        (
            "/runs/crons",
            &talk::with(turn.clone(), "schedule", "0 0 1 1 *"),
            "cron_id",
        ),
        ("/assistants", &json!({"graph_id": "agent"}), "assistant_id"),
    ] {
        let key = [("idempotency-key", path)];
        let ask = |client: &Client| {
            let answer = client.send("POST", path, &key, body.to_string().as_bytes());
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            let is_repeated = answer.header("idempotency-replayed").is_some();
            (answer.json()[id].clone(), is_repeated)
        };
        let (hers, first) = ask(&ann);
        let (his, of_bob) = ask(&bob);
        assert!(!first && !of_bob, "{path}");
        assert_ne!(hers, his, "{path}");
        assert_eq!(
            [ask(&ann), ask(&bob)],
            [(hers, true), (his, true)],
            "{path}"
        );
    }
    watch.held("keys of somebody else", MOST);
}
