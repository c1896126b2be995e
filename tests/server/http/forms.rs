//! Forms of requests that are refused or understood, and where a slash too many leads.

use super::*;
use test_support::talk::{create, extend, ok, patch};

const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

#[test]
fn fields_of_a_wrong_form_are_refused() {
    let (_server, client) = serve(&Place::sqlite());
    let paths = |count: usize| -> Value {
        let path = |index| (format!("a{index}"), json!("values.x"));
        Value::Object((0..count).map(path).collect())
    };
    let thread = client.thread();
    let runs = format!("/threads/{thread}/runs");
    for (path, body) in [
        ("/threads", json!({"ttl": "x"})),
        ("/threads", json!({"ttl": {"ttl": "x"}})),
        ("/threads", json!({"ttl": {"ttl": 1, "strategy": "bogus"}})),
        ("/runs/batch", json!([])),
        (&*runs, with(counter(), "feedback_keys", "x")),
        (&*runs, with(counter(), "feedback_keys", json!([1]))),
        ("/threads/search", json!({"extract": {"a b": "values.x"}})),
        ("/threads/search", json!({"extract": {"1a": "values.x"}})),
        ("/threads/search", json!({"extract": {"": "values.x"}})),
        ("/threads/search", json!({"extract": paths(11)})),
    ] {
        let answer = client.post(path, &body);
        assert_eq!(answer.status, 422, "{path} {body}: {}", answer.text());
    }
    for (path, body) in [
        ("/threads", json!({"thread_id": ""})),
        ("/threads", json!({"ttl": {"ttl": 1, "strategy": "delete"}})),
        ("/threads/search", json!({"extract": paths(10)})),
        (&*runs, with(counter(), "feedback_keys", json!(["k"]))),
    ] {
        ok(client.post(path, &body), 200);
    }
}

/// As one that is null: the input counts.
#[test]
fn an_empty_command_is_none() {
    let (_server, client) = serve(&Place::sqlite());
    let run = |more: Value| {
        let path = format!("/threads/{}/runs/wait", client.thread());
        ok(client.post(&path, &extend(counter(), more)), 200)
    };
    let plain = run(json!({}));
    assert_eq!(plain["log"][0], "in", "{plain}");
    for command in [json!({}), json!(null)] {
        assert_eq!(run(json!({"command": command})), plain, "{command}");
    }
}

/// Those that name services which this server does not call, and one of an older form of an address.
#[test]
fn fields_without_effect_change_no_stream() {
    let (_server, client) = serve(&Place::sqlite());
    let stream = |body: &Value| -> Vec<(String, Value)> {
        let mut open = client.open_stream(&client.thread(), body);
        let mut events = vec![];
        while let Some(event) = open.event() {
            if event.name != "metadata" {
                events.push((event.name.clone(), event.data.clone()));
            }
        }
        events
    };
    let plain = stream(&counter());
    assert!(plain.len() > 1, "{plain:?}");
    for (field, value) in [
        ("feedback_keys", json!(["good", "bad"])),
        (
            "langsmith_tracer",
            json!({"project_name": "p", "example_id": NOBODY}),
        ),
        ("langsmith_tracer", json!({})),
        ("strict_resume", json!(true)),
        ("strict_resume", json!(false)),
        (
            "checkpoint",
            json!({"checkpoint_ns": "", "checkpoint_map": {}}),
        ),
        ("checkpoint", json!({})),
        ("nobody_knows", json!([1])),
    ] {
        assert_eq!(
            stream(&with(counter(), field, value.clone())),
            plain,
            "{field} {value}"
        );
    }
}

#[test]
fn empty_lists_of_a_search_leave_everything_in() {
    let (_server, client) = serve(&Place::sqlite());
    let thread = create(&client, &json!({"metadata": {"a": 1}}));
    let found = client
        .post("/threads/search", &json!({"ids": [], "select": []}))
        .json();
    assert_eq!(found[0], client.get(&format!("/threads/{thread}")).json());
}

#[test]
fn inputs_that_do_not_fit_fail_the_run_in_langgraphs_words() {
    let (_server, client) = serve(&Place::sqlite());
    let run = |body: Value| client.run(&client.thread(), &body)["__error__"].clone();
    for (input, shown) in [
        (json!("abc"), "abc"),
        (json!(true), "True"),
        (json!(["a", true, null]), "['a', True, None]"),
    ] {
        let error = run(with(counter(), "input", input));
        let message = format!("Expected dict, got {shown}");
        assert_eq!(
            error,
            json!({"error": "InvalidUpdateError", "message": message})
        );
    }
    for limit in [0, -1] {
        let error = run(with(counter(), "config", json!({"recursion_limit": limit})));
        let message = "recursion_limit must be at least 1";
        assert_eq!(
            error,
            json!({"error": "ValueError", "message": message}),
            "{limit}"
        );
    }
    for (messages, class) in [
        (json!([5]), "NotImplementedError"),
        (json!([["a"]]), "NotImplementedError"),
        (json!([{"a": 1}]), "ValueError"),
    ] {
        let error = run(json!({"assistant_id": "agent", "input": {"messages": messages}}));
        assert_eq!(error["error"], class, "{messages}");
    }
}

#[test]
fn what_is_missing_is_named_as_langgraph_names_it() {
    let (_server, client) = serve(&Place::sqlite());
    let nobody = format!("/threads/{NOBODY}");
    let no_thread = format!("Thread with ID {NOBODY} not found");
    let here = format!("/threads/{}/runs/{NOBODY}", client.thread());
    for (answer, detail) in [
        (client.get(&format!("{nobody}/runs/{NOBODY}")), &*no_thread),
        (client.get(&here), "Not Found"),
        (
            patch(&client, &nobody, &json!({"metadata": {}})),
            "Not Found",
        ),
        (client.get(&nobody), &*no_thread),
    ] {
        assert_eq!(answer.refused(404), detail);
    }
}

#[test]
fn a_slash_too_many_leads_to_the_path_without_it() {
    let (_server, client) = serve(&Place::sqlite());
    for (method, path, there) in [
        ("POST", "/threads/", Some("/threads")),
        ("POST", "/threads/search/?a=b", Some("/threads/search?a=b")),
        ("GET", "/threads/x/", Some("/threads/x")),
        ("GET", "/nope/", None),
        ("GET", "//evil.example/", None),
    ] {
        let answer = client.send(method, path, &[], b"{}");
        assert_eq!(answer.header("location"), there, "{path}");
        assert_eq!(
            answer.status,
            if there.is_some() { 307 } else { 404 },
            "{path}"
        );
    }
}

#[test]
fn whole_messages_from_inside_a_graph_name_its_namespace() {
    let (_server, client) = serve(&Place::sqlite());
    for (graph, nested) in [("chatsub", true), ("agent", false)] {
        let body = json!({
            "assistant_id": graph, "stream_mode": ["messages-tuple"], "stream_subgraphs": true,
            "input": {"messages": [{"role": "user", "content": "tool:1 2"}]},
        });
        let events = client.stream(&client.thread(), &body);
        let tools = events
            .iter()
            .filter(|event| event.name.starts_with("messages"));
        let tool = tools
            .map(|event| event.data.clone())
            .find(|data| data[0]["type"] == "tool");
        let said = tool.unwrap()[1].clone();
        let around = said["checkpoint_ns"].as_str().unwrap_or_default();
        assert_eq!(around.starts_with("inner:"), nested, "{said}");
        assert_eq!(said.get("checkpoint_ns").is_some(), nested, "{said}");
    }
}
