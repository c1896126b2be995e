//! States of graphs inside graphs over HTTP: read, edited, and gone back to. The expectations are
//! what LangGraph's own server answers to the same requests.

use serde_json::{Value, json};

use test_support::{
    client::Client,
    on_both_storages,
    place::Place,
    server::{Server, Setup},
};

on_both_storages!(
    states_inside_are_shown_with_addresses_that_lead_back_to_them,
    an_address_inside_may_leave_parts_out,
    an_edit_inside_answers_its_whole_address_and_takes_effect,
    an_edit_of_the_innermost_graph_answers_its_question,
    a_run_at_an_address_inside_goes_back_to_the_root_checkpoint_around_it,
    an_answer_at_an_address_inside_the_head_is_an_ordinary_answer,
    an_address_inside_without_its_map_is_the_head,
);

/// A thread that waits in the innermost of three graphs.
struct Waiting {
    _server: Server,
    client: Client,
    thread: String,
}

impl Waiting {
    fn new(place: &Place) -> Self {
        let server = place.start(Setup::example("reference_server"));
        let client = Client::of(&server);
        let thread = client.thread();
        let body = json!({"assistant_id": "subgraph", "input": {"path": [], "pause": true}});
        client.run(&thread, &body);
        Self {
            _server: server,
            client,
            thread,
        }
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.client.get(&format!("/threads/{}{path}", self.thread));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self
            .client
            .post(&format!("/threads/{}{path}", self.thread), body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    fn whole(&self) -> Value {
        self.get("/state?subgraphs=true")
    }

    fn run(&self, more: Value) -> Value {
        let mut body = json!({"assistant_id": "subgraph"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.client.run(&self.thread, &body)
    }

    /// Source, step and what is next, newest first.
    fn history(&self) -> Vec<Value> {
        let states = self.client.history(&self.thread);
        let brief = |state: &Value| {
            let meta = &state["metadata"];
            json!([meta["source"], meta["step"], state["next"]])
        };
        states.iter().map(brief).collect()
    }
}

fn inside(state: &Value) -> &Value {
    &state["tasks"][0]["state"]
}

const ENDS: [&str; 7] = [
    "before", "before", "enter", "before", "enter", "leaf:go", "after",
];

fn states_inside_are_shown_with_addresses_that_lead_back_to_them(place: &Place) {
    let waiting = Waiting::new(place);
    let root = waiting.whole();
    let child = inside(&root);
    let grand = inside(child);
    assert_eq!(
        [&root["next"], &child["next"], &grand["next"]],
        [&json!(["child"]), &json!(["grand"]), &json!(["leaf"])]
    );
    // The question is everywhere the same.
    for state in [&root, child, grand] {
        assert_eq!(state["interrupts"], root["interrupts"]);
        assert_eq!(state["tasks"][0]["interrupts"], root["interrupts"]);
    }
    let id = |state: &Value| state["checkpoint"]["checkpoint_id"].clone();
    let ns = |state: &Value| {
        state["checkpoint"]["checkpoint_ns"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let task = |state: &Value| state["tasks"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(ns(child), format!("child:{}", task(&root)));
    assert_eq!(ns(grand), format!("{}|grand:{}", ns(child), task(child)));
    let map = json!({"": id(&root), (ns(child)): id(child), (ns(grand)): id(grand)});
    assert_eq!(grand["checkpoint"]["checkpoint_map"], map);

    // By id the same; without the states inside, their addresses.
    let by_id = format!("/state/{}", id(&root).as_str().unwrap());
    assert_eq!(
        inside(&waiting.get(&format!("{by_id}?subgraphs=true"))),
        child
    );
    let plain = waiting.get(&by_id);
    assert_eq!(plain["tasks"][0]["state"], Value::Null);
    assert_eq!(
        plain["tasks"][0]["checkpoint"]["checkpoint_ns"],
        json!(ns(child))
    );
    for state in [child, grand] {
        let body = json!({"checkpoint": state["checkpoint"], "subgraphs": true});
        assert_eq!(waiting.post("/state/checkpoint", &body), *state);
    }
    let page = waiting.post(
        "/history",
        &json!({"checkpoint": {"checkpoint_ns": ns(child)}}),
    );
    let next: Vec<_> = page
        .as_array()
        .unwrap()
        .iter()
        .map(|state| &state["next"])
        .collect();
    assert_eq!(
        next,
        [&json!(["grand"]), &json!(["enter"]), &json!(["__start__"])]
    );
    assert_eq!(page[0]["checkpoint"], child["checkpoint"]);
}

fn an_address_inside_may_leave_parts_out(place: &Place) {
    let waiting = Waiting::new(place);
    let root = waiting.whole();
    let full = &inside(&root)["checkpoint"];
    let old = waiting.post(
        "/history",
        &json!({"checkpoint": {"checkpoint_ns": full["checkpoint_ns"]}}),
    );
    let read = |address: Value| waiting.post("/state/checkpoint", &json!({"checkpoint": address}));
    for keys in [
        &["checkpoint_ns"][..],
        &["checkpoint_ns", "checkpoint_id"],
        &["checkpoint_ns", "checkpoint_map"],
    ] {
        let part = keys
            .iter()
            .map(|key| ((*key).to_owned(), full[key].clone()));
        assert_eq!(
            read(Value::Object(part.collect()))["checkpoint"],
            *full,
            "{keys:?}"
        );
    }
    // The map alone names an older one as well.
    let address = &old[1]["checkpoint"];
    let by_map = json!({
        "checkpoint_ns": address["checkpoint_ns"], "checkpoint_map": address["checkpoint_map"],
    });
    assert_eq!(read(by_map)["next"], json!(["enter"]));
    for nowhere in ["nowhere:1", "child"] {
        let state = read(json!({"checkpoint_ns": nowhere}));
        assert_eq!(
            (&state["values"], &state["checkpoint"]),
            (&json!({}), &Value::Null)
        );
    }
    let edit = json!({"values": {"path": ["x"]}, "checkpoint": {"checkpoint_ns": "nowhere:1"}});
    waiting
        .client
        .post(&format!("/threads/{}/state", waiting.thread), &edit)
        .refused(400);
}

fn an_edit_inside_answers_its_whole_address_and_takes_effect(place: &Place) {
    let waiting = Waiting::new(place);
    let root = waiting.whole();
    let child = &inside(&root)["checkpoint"];
    let edit = json!({"values": {"path": ["x"]}, "checkpoint": child, "as_node": "enter"});
    let made = waiting.post("/state", &edit);
    let ns = child["checkpoint_ns"].as_str().unwrap();
    let map = json!({"": root["checkpoint"]["checkpoint_id"], (ns): made["checkpoint_id"]});
    assert_eq!(made["checkpoint"]["checkpoint_map"], map);
    assert_eq!(made["checkpoint"], made["configurable"]);
    // The root stays where it is and waits; the graph inside has the edit before it.
    let after = waiting.whole();
    assert_eq!(after["checkpoint"], root["checkpoint"]);
    assert_eq!(inside(&after)["checkpoint"], made["checkpoint"]);
    assert_eq!(
        inside(&after)["values"]["path"],
        json!(["before", "enter", "x"])
    );
    assert_eq!(inside(&after)["next"], json!(["grand"]));
    // Its own graph inside has not run since.
    assert_eq!(inside(inside(&after))["values"], json!({}));
    assert_eq!(inside(inside(&after))["checkpoint"], Value::Null);
    waiting.run(json!({"input": null}));
    let done = waiting.run(json!({"command": {"resume": "go"}}));
    let path: Vec<&str> = done["path"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(path.contains(&"x") && path.contains(&"leaf:go"), "{path:?}");
}

fn an_edit_of_the_innermost_graph_answers_its_question(place: &Place) {
    let waiting = Waiting::new(place);
    let grand = inside(inside(&waiting.whole()))["checkpoint"].clone();
    let edit = json!({"values": {"path": ["by hand"]}, "checkpoint": grand, "as_node": "leaf"});
    let made = waiting.post("/state", &edit);
    assert_eq!(
        made["checkpoint"]["checkpoint_map"]
            .as_object()
            .unwrap()
            .len(),
        3
    );
    let done = waiting.run(json!({"input": null}));
    assert_eq!(done.get("__interrupt__"), None);
    let path = done["path"].as_array().unwrap();
    assert!(
        path.contains(&json!("by hand")) && !path.contains(&json!("leaf")),
        "{done}"
    );
    assert_eq!(waiting.whole()["next"], json!([]));
}

fn a_run_at_an_address_inside_goes_back_to_the_root_checkpoint_around_it(place: &Place) {
    for depth in [1, 2] {
        let waiting = Waiting::new(place);
        let root = waiting.whole();
        let mut state = &root;
        for _ in 0..depth {
            state = inside(state);
        }
        let done = waiting.run(json!({"command": {"resume": "go"}}));
        assert_eq!(done["path"], json!(ENDS));
        let asked = waiting.run(json!({"input": null, "checkpoint": state["checkpoint"]}));
        // Everything inside starts anew, under a fork of the root, and asks again.
        let question = &asked["__interrupt__"][0];
        assert_eq!(question["value"], json!({"where": "leaf"}));
        assert_ne!(question["id"], root["interrupts"][0]["id"]);
        let history = waiting.history();
        assert_eq!(history[0], json!(["fork", 2, ["child"]]));
        let now = waiting.whole();
        assert_eq!(
            now["parent_checkpoint"]["checkpoint_id"],
            root["checkpoint"]["checkpoint_id"]
        );
        assert_eq!(inside(inside(&now))["next"], json!(["leaf"]));
        let done = waiting.run(json!({"command": {"resume": "again"}}));
        assert_eq!(done["path"][5], "leaf:again");
        // The first way is still there.
        assert_eq!(waiting.history().len(), history.len() + 2);
    }
}

fn an_answer_at_an_address_inside_the_head_is_an_ordinary_answer(place: &Place) {
    let waiting = Waiting::new(place);
    let child = inside(&waiting.whole())["checkpoint"].clone();
    let done = waiting.run(json!({"command": {"resume": "go"}, "checkpoint": child}));
    assert_eq!(done["path"], json!(ENDS));
    let sources: Vec<Value> = waiting.history().iter().map(|one| one[0].clone()).collect();
    assert_eq!(sources, ["loop", "loop", "loop", "loop", "input"]);
}

fn an_address_inside_without_its_map_is_the_head(place: &Place) {
    let waiting = Waiting::new(place);
    let root = waiting.whole();
    let child = &inside(&root)["checkpoint"];
    let part = json!({
        "checkpoint_ns": child["checkpoint_ns"], "checkpoint_id": child["checkpoint_id"],
    });
    let asked = waiting.run(json!({"input": null, "checkpoint": part}));
    assert_eq!(asked["__interrupt__"][0]["id"], root["interrupts"][0]["id"]);
    assert_eq!(waiting.whole()["checkpoint"], root["checkpoint"]);
}
