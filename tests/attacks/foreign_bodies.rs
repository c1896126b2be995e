//! Ids of one principal in bodies and paths of another's requests: what they name is as unknown as what there is not.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use test_support::access::{SECRET, bystander, furnished, people, seen, send, serve};
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::routes::{Names, Route, all};
use test_support::talk::{self, ok};

use crate::foreign_queries::Foreign;
use crate::siege::{MIB, Watch};

on_both_storages!(ids_of_somebody_else_in_bodies_and_paths_name_nothing,);

/// What many small requests may take.
const MOST: u64 = 64 * MIB;

/// Fields that name nothing of anybody, or something that the request makes.
const NAMELESS: [&str; 74] = [
    "activate",
    "after_seconds",
    "as_node",
    "cancel_running",
    "channels",
    "checkpoint_during",
    "command",
    "content",
    "context",
    "depth",
    "description",
    "durability",
    "enabled",
    "end_time",
    "event_number",
    "extract",
    "feedback_keys",
    "filter",
    "graph_id",
    "id",
    "if_exists",
    "if_not_exists",
    "index",
    "input",
    "interrupt_after",
    "interrupt_before",
    "jsonrpc",
    "key",
    "langsmith_tracer",
    "level",
    "limit",
    "max_depth",
    "messages",
    "metadata",
    "method",
    "min_event",
    "mode",
    "multitask_strategy",
    "name",
    "namespace",
    "namespace_prefix",
    "namespaces",
    "offset",
    "on_completion",
    "on_disconnect",
    "on_existing",
    "on_run_completed",
    "pending",
    "position",
    "prefix",
    "projection",
    "query",
    "refresh_ttl",
    "role",
    "schedule",
    "select",
    "since",
    "sort_by",
    "sort_order",
    "status",
    "strategy",
    "stream_mode",
    "stream_resumable",
    "stream_subgraphs",
    "strict_resume",
    "subgraphs",
    "suffix",
    "supersteps",
    "timezone",
    "ttl",
    "value",
    "values",
    "version",
    "webhook",
];

/// Fields of an address, of which a request has one.
const ADDRESS: [&str; 3] = ["message_id", "tag", "checkpoint"];

/// Routes that read the same bodies as those that end with `/wait`, which are tested.
const AS_WAIT: [&str; 4] = [
    "/runs",
    "/runs/stream",
    "/threads/{thread_id}/runs",
    "/threads/{thread_id}/runs/stream",
];

/// The status and text of a response, without the names that its request had.
fn without(answer: &Answer, named: &Foreign) -> (u16, String) {
    let mut text = answer.text().to_owned();
    let ids = [
        &named.names.thread,
        &named.names.run,
        &named.names.checkpoint,
        &named.message,
        &named.branch,
        &named.tag,
        &named.assistant,
    ];
    for id in ids {
        text = text.replace(&**id, "NAME");
    }
    (answer.status, text)
}

/// A body that is accepted.
fn body_of(route: &Route, own: &Names) -> Value {
    match (route.method, route.path) {
        // Its name would be taken the second time.
        ("POST", "/threads/{thread_id}/branches") => json!({}),
        ("POST", "/runs/crons") => talk::with(talk::turn("x"), "schedule", "0 0 1 1 *"),
        (_, path) if path.starts_with("/runs/crons") => json!({}),
        _ => route.body(own),
    }
}

/// The fields of the body of an operation of the document.
fn fields(document: &Value, route: &Route) -> BTreeSet<String> {
    let method = route.method.to_ascii_lowercase();
    let body = &document["paths"][route.path][method]["requestBody"];
    let mut found = BTreeSet::new();
    collect(
        document,
        &body["content"]["application/json"]["schema"],
        &mut found,
    );
    found
}

fn collect(document: &Value, schema: &Value, found: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let pointer = name.trim_start_matches('#');
        collect(document, document.pointer(pointer).unwrap(), found);
    }
    for kind in ["anyOf", "oneOf", "allOf"] {
        for one in schema[kind].as_array().into_iter().flatten() {
            collect(document, one, found);
        }
    }
    if let Some(properties) = schema["properties"].as_object() {
        found.extend(properties.keys().cloned());
    }
}

/// Fields that name something in a field of a body; the same number of them for everybody.
fn naming(route: &Route, name: &str, named: &Foreign, own: &Names) -> Vec<Value> {
    let (thread, run) = (&named.names.thread, &named.names.run);
    let checkpoint = &named.names.checkpoint;
    let at = json!({"checkpoint_id": checkpoint});
    let mapped = json!({"checkpoint_map": {"": checkpoint}});
    let inside = json!({"checkpoint_ns": "x:1", "checkpoint_map": {"x:1": checkpoint}});
    let turn = |more: Value| talk::extend(talk::turn("x"), more);
    let named_object = || [at.clone(), mapped.clone(), inside.clone()];
    match (route.path, name) {
        // A new one, whose id may not be that of another: a test of `foreign_ids`.
        ("/threads" | "/commands/create-thread", "thread_id")
        | ("/commands/fork-thread" | "/threads/{thread_id}/fork", "thread_id")
        | ("/assistants", "assistant_id")
        | ("/commands/send-message", "message_id") => vec![],
        (_, "checkpoint_id") => vec![at.clone(), talk::with(at, "branch", "main")],
        (_, "checkpoint") => named_object().map(|one| json!({"checkpoint": one})).into(),
        (_, "config") => [at, inside]
            .map(|one| json!({"config": {"configurable": one}}))
            .into(),
        (_, "before") => vec![
            json!({"before": checkpoint}),
            json!({"before": at}),
            json!({"before": {"configurable": at}}),
        ],
        (_, "branch") => vec![
            json!({"branch": named.branch}),
            json!({"branch": named.branch, "checkpoint_id": own.checkpoint}),
        ],
        (_, "tag") => vec![json!({"tag": named.tag})],
        (
            _,
            "message_id"
            | "parent_id"
            | "expected_head"
            | "forkedAtEntryId"
            | "forked_at_message_id",
        ) => vec![json!({name: named.message})],
        (
            _,
            "forkedAtConversationId" | "forked_at_thread_id" | "source_thread_id" | "thread_id",
        ) => {
            vec![json!({name: thread})]
        }
        (_, "thread_ids" | "ids") => vec![json!({name: [thread]})],
        (_, "run_ids") => vec![
            json!({"run_ids": [run]}),
            json!({"run_ids": [run], "thread_id": thread}),
        ],
        (_, "assistant_id") => vec![json!({"assistant_id": named.assistant})],
        (_, "run") => [
            at,
            json!({"branch": named.branch}),
            json!({"tag": named.tag}),
        ]
        .map(|more| json!({"run": turn(more)}))
        .into(),
        ("/threads/{thread_id}/commands", "params") => vec![
            json!({"params": turn(json!({"config": {"configurable": at}}))}),
            json!({"params": turn(json!({"assistant_id": named.assistant}))}),
            json!({"method": "input.respond", "params": {"interrupt_id": run, "response": 1}}),
        ],
        ("/mcp", "params") => vec![
            json!({"method": "tools/call", "params": {"name": named.assistant, "arguments": {}}}),
        ],
        ("/a2a/{assistant_id}", "params") => {
            let task = format!("{thread}:{run}");
            vec![
                json!({"params": {"id": task}}),
                json!({"method": "tasks/cancel", "params": {"id": task}}),
                to_agent(json!({"taskId": task})),
                to_agent(json!({"taskId": task, "contextId": own.thread})),
            ]
        }
        _ => panic!("say what {name} of {} {} names", route.method, route.path),
    }
}

/// The message of somebody to an agent.
fn to_agent(more: Value) -> Value {
    let parts = json!([{"kind": "text", "text": "x"}]);
    let message = json!({"role": "user", "messageId": "m", "parts": parts});
    json!({"method": "message/send", "params": {"message": talk::extend(message, more)}})
}

/// The path of a route below one's own thread, with what somebody has there.
fn path_of(route: &Route, named: &Foreign, own: &Names) -> String {
    let name = if route.path.contains("/tags/") {
        &named.tag
    } else {
        &named.branch
    };
    route
        .path
        .replace("{thread_id}", &own.thread)
        .replace("{run_id}", &named.names.run)
        .replace("{checkpoint_id}", &named.names.checkpoint)
        .replace("{name}", name)
}

/// Whether a route only shows what there is.
fn is_read(route: &Route) -> bool {
    let ends = ["/search", "/count", "/history", "/state/checkpoint"];
    ends.iter().any(|end| route.path.ends_with(end))
}

/// Sends what names something of hers, and the same that names nothing: the responses are the same.
fn compare(client: &Client, route: &Route, [hers, none]: [(&Foreign, String, Value); 2]) {
    let request = format!("{} {} {}", route.method, hers.1, hers.2);
    let [of_hers, of_none] = [hers, none].map(|(named, path, body)| {
        let answer = send(client, route.method, &path, &body);
        let shown = answer.text();
        assert!(!shown.contains(SECRET), "{request}: {shown}");
        without(&answer, named)
    });
    assert_eq!(
        of_hers.0, of_none.0,
        "{request}: {} {}",
        of_hers.1, of_none.1
    );
    // What says nothing there is ignored, and what is made has an id of its own.
    if is_read(route) || of_hers.0 >= 400 {
        assert_eq!(of_hers.1, of_none.1, "{request}");
    }
}

fn ids_of_somebody_else_in_bodies_and_paths_name_nothing(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let hers = Foreign::of(&ann);
    let both = [&hers, &hers.nowhere()];
    let own = furnished(&bob, "of-bob");
    let before = seen(&ann, &hers.names.thread);
    let document = ok(bob.get("/openapi.json"), 200);
    let mut met = BTreeSet::new();
    for route in all() {
        let parts = ["{name}", "{checkpoint_id}", "{run_id}"];
        let is_below = route.path.starts_with("/threads/{thread_id}");
        // A tag that is put is a new one.
        let is_new = route.method == "PUT" || !is_below;
        if !is_new && parts.iter().any(|part| route.path.contains(part)) {
            let request = |named| (named, path_of(&route, named, &own), body_of(&route, &own));
            compare(&bob, &route, both.map(request));
        }
        if AS_WAIT.contains(&route.path) {
            continue;
        }
        for name in fields(&document, &route) {
            if NAMELESS.contains(&&*name) {
                met.insert(name);
                continue;
            }
            let [of_hers, of_none] = both.map(|named| naming(&route, &name, named, &own));
            for fields in of_hers.into_iter().zip(of_none) {
                let mut body = body_of(&route, &own);
                for field in ADDRESS {
                    body.as_object_mut().unwrap().remove(field);
                }
                let path = route.path(&own);
                let request =
                    |named, fields| (named, path.clone(), talk::extend(body.clone(), fields));
                let requests = [request(both[0], fields.0), request(both[1], fields.1)];
                compare(&bob, &route, requests);
            }
        }
    }
    let unknown: Vec<_> = NAMELESS
        .iter()
        .filter(|name| !met.contains(**name))
        .collect();
    assert!(unknown.is_empty(), "no route takes {unknown:?}");
    // A message with the id of one of hers is a new one, however it comes.
    let message = talk::with(talk::user("x"), "id", &*hers.message);
    talk::store(&bob, &own.thread, &message);
    let thread = talk::agent_thread(&bob);
    let sent = json!({"thread_id": thread, "message_id": hers.message, "content": "x"});
    ok(bob.post("/commands/send-message", &sent), 202);
    assert_eq!(seen(&ann, &hers.names.thread), before);
    watch.held("ids of somebody else in bodies", MOST);
}
