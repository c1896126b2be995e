//! What a page costs does not grow with the path it is on: rows that Postgres reads, bytes that
//! SQLite reads, at 500 checkpoints and at 50,000.

use serde_json::{Value, json};

use test_support::client::Client;
use test_support::invariants::Tables;
use test_support::on_both_storages;
use test_support::place::{Place, block_on};
use test_support::server::{Server, Setup};

mod cost;
mod rows;

on_both_storages!(
    a_page_costs_as_much_on_a_path_of_500_as_on_one_of_50_000,
    a_fork_of_a_path_of_more_than_100_000_checkpoints_misses_none_of_it,
);

const SHALLOW: usize = 500;
const DEEP: usize = 50_000;

/// A conversation with a path of about so many checkpoints, half of which hold a message more,
/// and what is read of it.
struct Talk {
    thread: String,
    fork: String,
    /// The cursor of the second page from the end.
    before: String,
    /// A checkpoint near the end.
    near: String,
}

fn posted(client: &Client, thread: &str, name: &str) -> Value {
    let messages: Vec<Value> = (0..60)
        .map(|n| json!({"id": format!("{name}{n}"), "role": "assistant", "content": "text"}))
        .collect();
    let path = format!("/threads/{thread}/messages");
    let answer = client.post(&path, &json!({"messages": messages}));
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

/// A thread with a path of about so many checkpoints, and an early one of them.
fn long(place: &Place, server: &mut Server, depth: usize) -> (String, String) {
    let client = Client::of(server);
    let new = json!({"metadata": {"graph_id": "agent"}});
    let thread = client.post("/threads", &new).json();
    let thread = thread["thread_id"].as_str().unwrap().to_owned();
    let head = posted(&client, &thread, "first");
    let head = head["checkpoint_id"].as_str().unwrap().to_owned();
    server.kill();
    rows::prolong(place, server, &thread, &head, depth);
    server.restart();
    (thread, head)
}

fn talk(place: &Place, server: &mut Server, depth: usize) -> Talk {
    let (thread, _) = long(place, server, depth);
    let client = Client::of(server);
    let middle = posted(&client, &thread, "middle");
    let said = json!([{"role": "user", "content": "hello"}]);
    let run = json!({"assistant_id": "agent", "input": {"messages": said}});
    for _ in 0..20 {
        client.run(&thread, &run);
    }
    let side = client.post(&format!("/threads/{thread}/btw"), &json!({}));
    assert_eq!(side.status, 201, "{}", side.text());
    let fork = client.post(&format!("/threads/{thread}/fork"), &json!({}));
    let fork = fork.json()["thread_id"].as_str().unwrap().to_owned();
    client.run(&fork, &run);
    let page = client.get(&format!("/threads/{thread}/messages?tail=true&limit=50"));
    let before = page.json()["prev"].as_str().unwrap().to_owned();
    Talk {
        thread,
        fork,
        before,
        near: middle["checkpoint_id"].as_str().unwrap().to_owned(),
    }
}

impl Talk {
    /// Requests for a page, by name.
    fn pages(&self) -> Vec<(&'static str, String)> {
        let Self {
            thread,
            fork,
            before,
            near,
        } = self;
        let of = |name, path: &str| (name, format!("/threads/{thread}/{path}"));
        let of_fork = |name, path: &str| (name, format!("/threads/{fork}/{path}"));
        vec![
            of("newest messages", "messages?tail=true&limit=50"),
            of(
                "messages before",
                &format!("messages?before={before}&limit=50"),
            ),
            of(
                "a branch's messages",
                "messages?branch=main-v2&tail=true&limit=50",
            ),
            of(
                "messages with siblings",
                "messages?tail=true&limit=50&siblings=true",
            ),
            of("history", "history?limit=50"),
            of("a branch's history", "history?limit=50&branch=main"),
            of("history before", &format!("history?limit=50&before={near}")),
            of("branches", "branches"),
            of("state", "state"),
            of("head", "head"),
            of("tags", "tags"),
            of("events", "events?limit=50"),
            of_fork("a fork's newest messages", "messages?tail=true&limit=50"),
            of_fork("a fork's history", "history?limit=50"),
            of_fork("a fork's branches", "branches"),
        ]
    }
}

fn a_page_costs_as_much_on_a_path_of_500_as_on_one_of_50_000(place: &Place) {
    let mut server = place.start(Setup::example("reference_server"));
    let shallow = talk(place, &mut server, SHALLOW);
    // What was put into the tables is what runs and posts would have written.
    let tables = match place.url() {
        Some(url) => Tables::Url(url.to_owned()),
        None => Tables::File(server.folder().join("data/backstitch.db")),
    };
    block_on(tables.check(false));
    let deep = talk(place, &mut server, DEEP);
    let counter = cost::Counter::new(place, &mut server);
    for ((name, small), (_, large)) in shallow.pages().into_iter().zip(deep.pages()) {
        let small = counter.least(&mut server, &small);
        let most = small + small / 2 + counter.spare();
        // A page that costs more does so every time.
        let mut costs = vec![];
        while costs.len() < 9 && costs.iter().all(|cost| *cost > most) {
            costs.push(counter.of(&mut server, &large));
        }
        assert!(
            costs.iter().any(|cost| *cost <= most),
            "{name}: {small} at {SHALLOW}, {costs:?} at {DEEP}"
        );
    }
    // Reading from the beginning walks the whole path: the counter sees it.
    let oldest = format!("/threads/{}/messages?limit=50", deep.thread);
    let walk = counter.of(&mut server, &oldest);
    assert!(walk > counter.walk(DEEP / 2), "{walk}");
}

fn a_fork_of_a_path_of_more_than_100_000_checkpoints_misses_none_of_it(place: &Place) {
    let mut server = place.start(Setup::example("reference_server"));
    let (thread, early) = long(place, &mut server, 100_100);
    let client = Client::of(&server);
    let fork = client.post(&format!("/threads/{thread}/fork"), &json!({}));
    let fork = fork.json()["thread_id"].as_str().unwrap().to_owned();
    // The beginning is seen from the end, however far that is.
    let path = format!("/threads/{fork}/state/{early}");
    assert_eq!(client.get(&path).status, 200);
    // A list that would begin in the middle says so, and where it can begin.
    let tree = format!("/threads/{fork}/tree?format=checkpoints&limit=10");
    let refused = client.get(&tree);
    let detail = refused.refused(409);
    assert_eq!(refused.json()["code"], "path_too_deep");
    let after = detail.split("`after_depth` ").nth(1).unwrap();
    let after: i64 = after.split(' ').next().unwrap().parse().unwrap();
    let page = client.get(&format!("{tree}&after_depth={after}"));
    assert_eq!(page.status, 200, "{}", page.text());
    assert_eq!(page.json()["nodes"][0]["depth"], after + 1);
    // Its messages are half as many.
    let messages = client.get(&format!("/threads/{fork}/tree?limit=10"));
    assert_eq!(messages.json()["nodes"][0]["depth"], 1);
}
