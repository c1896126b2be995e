//! Requests and the heads and bodies of their responses.

use super::*;
use crate::{
    id::{AssistantId, ThreadId},
    value,
};

/// Each request with its response, without what differs from run to run.
async fn transcript(running: &Running, calls: &[(&str, &str, &[&str], Option<&str>)]) -> String {
    let mut text = String::new();
    for (method, path, headers, body) in calls {
        let response = running.send(method, path, headers, *body).await;
        text += &format!(
            ">>> {method} {path} {} {}\n",
            headers.join(" "),
            body.unwrap_or("-")
        );
        let response = unchunked(&response);
        let lines = response.lines().filter(|line| !line.starts_with("date: "));
        text += &lines
            .map(|line| format!("{}\n", redacted(line)))
            .collect::<String>();
        text += "\n\n";
        running.ended().await;
    }
    text
}

/// A response without the lengths of its chunks, which depend on how fast frames come.
fn unchunked(response: &str) -> String {
    let Some((head, body)) = response.split_once("\r\n\r\n") else {
        return response.to_owned();
    };
    if !head.contains("transfer-encoding: chunked") {
        return response.to_owned();
    }
    let (mut text, mut rest) = (format!("{head}\r\n\r\n"), body);
    while let Some((length, chunk)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        text += &chunk[..length];
        rest = &chunk[length + 2..];
    }
    text
}

/// A line with `<id>` and `<time>` in place of ids and times that are new in every run.
fn redacted(line: &str) -> String {
    let known = [
        THREAD.to_owned(),
        RUN.to_owned(),
        NOWHERE.to_owned(),
        AssistantId::of_graph("counter").to_string(),
    ];
    let mut text = String::new();
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let id = rest
            .get(..36)
            .filter(|id| uuid::Uuid::parse_str(id).is_ok());
        if let Some(id) = id {
            text += if known.iter().any(|known| known == id) {
                id
            } else {
                "<id>"
            };
            rest = &rest[36..];
        } else if rest.get(..32).is_some_and(|time| time.ends_with("+00:00")) {
            text += "<time>";
            rest = &rest[32..];
        } else {
            text.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    text
}

#[tokio::test]
async fn threads_are_served_as_langgraph_does() {
    let running = Running::start(Options::default()).await;
    for _ in 0..3 {
        running
            .thread(ThreadId::mint(), value!({"n": [1, 2]}))
            .await;
    }
    let missing = format!("/threads/{NOWHERE}");
    let thread = format!("/threads/{THREAD}");
    let calls: &[(_, &str, &[&str], _)] = &[
        ("POST", "/threads", &[], Some("{}")),
        (
            "POST",
            "/threads",
            &["content-type: text/plain"],
            Some(r#"{"metadata":{"a":1},"x":2}"#),
        ),
        ("POST", "/threads", &[], None),
        ("POST", "/threads", &[], Some("{nope")),
        ("POST", "/threads", &[], Some(r#"{"thread_id":"nope"}"#)),
        ("POST", "/threads", &[], Some(r#"{"metadata":"x"}"#)),
        ("POST", "/threads", &[], Some(r#"{"if_exists":"bogus"}"#)),
        (
            "POST",
            "/threads",
            &[],
            Some(r#"{"metadata":{"n":18446744073709551616}}"#),
        ),
        ("GET", &missing, &[], None),
        ("GET", "/threads/nope", &[], None),
        ("GET", "/threads/a%2Fb", &[], None),
        ("HEAD", &thread, &[], None),
        (
            "PATCH",
            &thread,
            &["prefer: return=minimal"],
            Some(r#"{"metadata":{"a":1}}"#),
        ),
        ("DELETE", &thread, &[], None),
        (
            "POST",
            "/threads/search",
            &[],
            Some(r#"{"limit":2,"select":["thread_id","status"]}"#),
        ),
        (
            "POST",
            "/threads/search",
            &[],
            Some(
                r#"{"limit":2,"offset":4,"select":["status"],"extract":{"l":"metadata.n[-1]","m":"values.x"}}"#,
            ),
        ),
        ("POST", "/threads/search", &[], Some(r#"{"ids":["x"]}"#)),
        (
            "POST",
            "/threads/search",
            &[],
            Some(r#"{"extract":{"a":"bogus.x"}}"#),
        ),
        ("POST", "/threads/count", &[], Some("{}")),
        ("GET", "/nope", &[], None),
        ("PUT", "/threads", &[], Some("{}")),
    ];
    insta::assert_snapshot!(transcript(&running, calls).await);
}

#[tokio::test]
async fn runs_are_served_as_langgraph_does() {
    let running = Running::start(Options::default()).await;
    running.run().await;
    let on = |rest: &str| format!("/threads/{THREAD}/runs{rest}");
    let of = |rest: &str| format!("/threads/{THREAD}/runs/{RUN}{rest}");
    let missing = format!("/threads/{NOWHERE}/runs");
    let body = Some(r#"{"assistant_id":"counter","input":{"count":1}}"#);
    let resume = Some(r#"{"assistant_id":"counter","command":{"resume":1}}"#);
    let unknown = Some(r#"{"assistant_id":"unknown"}"#);
    let calls: &[(_, &str, &[&str], _)] = &[
        ("POST", &on(""), &[], body),
        ("POST", &on("/stream"), &[], body),
        ("POST", &on("/wait"), &[], body),
        ("POST", "/runs", &[], body),
        ("POST", "/runs/stream", &[], body),
        ("POST", "/runs/wait", &[], body),
        ("POST", "/runs/wait", &[], resume),
        ("POST", &on(""), &[], unknown),
        ("POST", &on(""), &[], Some("{}")),
        ("POST", &on(""), &[], Some("[]")),
        ("POST", &missing, &[], body),
        ("POST", "/threads/nope/runs/stream", &[], body),
        ("GET", &on("?select=run_id&select=status"), &[], None),
        ("GET", &on("?status=bogus"), &[], None),
        ("GET", &on("?select=%5B%22run_id%22%5D"), &[], None),
        ("GET", &on("?select=bogus"), &[], None),
        ("GET", &on("/nope"), &[], None),
        ("GET", &on(&format!("/{NOWHERE}")), &[], None),
        ("POST", &of("/cancel?action=bogus"), &[], None),
        ("GET", &of("/join"), &[], None),
        ("GET", &of("/stream"), &[], None),
        ("DELETE", &of(""), &[], None),
    ];
    insta::assert_snapshot!(transcript(&running, calls).await);
}

#[tokio::test]
async fn running_runs_are_cancelled_as_langgraph_does() {
    let running = Running::start(Options::default()).await;
    let mut text = String::new();
    for query in ["", "?wait=1", "?wait=1&action=rollback"] {
        let (run, _feed) = running.begin().await;
        let path = format!("/threads/{THREAD}/runs/{}/cancel{query}", run.run);
        let calls: &[(_, &str, &[&str], _)] = &[("POST", &path, &[], None)];
        text += &transcript(&running, calls)
            .await
            .replace(&run.run.to_string(), "<id>");
    }
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn web_pages_are_served_as_langgraph_does() {
    let options = Options {
        cors: crate::http::Cors::Any,
        ..Options::default()
    };
    let running = Running::start(options).await;
    let origin = "origin: http://x.test";
    let asked = "access-control-request-headers: x-api-key";
    let calls: &[(_, _, &[&str], _)] = &[
        (
            "OPTIONS",
            "/threads",
            &[origin, "access-control-request-method: POST", asked],
            None,
        ),
        ("OPTIONS", "/threads", &[], None),
        ("GET", "/ok", &[origin], None),
        ("GET", "/nope", &[origin], None),
    ];
    insta::assert_snapshot!(transcript(&running, calls).await);
}

#[tokio::test]
async fn only_listed_origins_are_allowed_once_there_is_a_list() {
    let options = Options {
        cors: crate::http::Cors::parse("https://app.example").unwrap(),
        ..Options::default()
    };
    let running = Running::start(options).await;
    let response = running
        .send("GET", "/ok", &["origin: https://app.example"], None)
        .await;
    assert!(response.contains("access-control-allow-origin: https://app.example\r\n"));
    let response = running
        .send("GET", "/ok", &["origin: https://evil.example"], None)
        .await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    assert!(!response.contains("access-control-allow-origin"));
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_process_lives_on() {
    let running = Running::start(Options::default()).await;
    let response = running
        .send("POST", "/threads", &["idempotency-key: panic"], Some("{}"))
        .await;
    assert!(response.starts_with("HTTP/1.1 500"), "{response}");
    assert!(response.contains("content-type: text/plain; charset=utf-8\r\n"));
    assert!(response.ends_with("\r\n\r\nInternal Server Error"));
    let response = running.send("GET", "/ok", &[], None).await;
    assert!(response.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn state_and_history_requests_are_read_in_every_spelling() {
    let running = Running::start(Options::default()).await;
    let path = format!("/threads/{THREAD}/state");
    for body in [
        r#"{"values":{"count":1}}"#,
        r#"{"values":{"count":1},"as_node":"only"}"#,
        r#"{"values":null}"#,
        "{}",
    ]
    .repeat(3)
    {
        let response = running.send("POST", &path, &[], Some(body)).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{body}: {response}");
    }
    // A list has a right form, but is no update of this graph.
    let list = Some(r#"{"values":[1]}"#);
    let response = running.send("POST", &path, &[], list).await;
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    for body in [
        r#"{"values":"x"}"#,
        r#"{"values":1}"#,
        r#"{"checkpoint_id":"x"}"#,
    ] {
        let response = running.send("POST", &path, &[], Some(body)).await;
        assert!(response.starts_with("HTTP/1.1 422"), "{body}: {response}");
    }
    let by_object = format!("{path}/checkpoint");
    let response = running.send("POST", &by_object, &[], Some("{}")).await;
    assert!(
        response.contains(r#"\"checkpoint\" is a required property"#),
        "{response}"
    );

    let history = format!("/threads/{THREAD}/history");
    let ids = |response: &str| -> Vec<String> {
        let states = json(response);
        let states = states.as_list().unwrap().iter();
        let ids = states.map(|state| state["checkpoint"]["checkpoint_id"].as_str().unwrap());
        ids.map(str::to_owned).collect()
    };
    let all = r#"{"limit":1000}"#;
    let all = ids(&running.send("POST", &history, &[], Some(all)).await);
    assert_eq!(all.len(), 12);
    let id = &all[3];
    for body in [
        format!(r#"{{"limit":2,"before":"{id}"}}"#),
        format!(r#"{{"limit":2,"before":{{"checkpoint_id":"{id}","checkpoint_ns":""}}}}"#),
        format!(r#"{{"limit":2,"before":{{"configurable":{{"checkpoint_id":"{id}"}}}}}}"#),
    ] {
        let response = running.send("POST", &history, &[], Some(&body)).await;
        assert_eq!(ids(&response), all[4..6], "{body}");
    }
    let get = async |query: &str| {
        let path = format!("{history}{query}");
        running.send("GET", &path, &[], None).await
    };
    assert_eq!(ids(&get("").await).len(), 10);
    let response = running.send("POST", &history, &[], Some("{}")).await;
    assert_eq!(ids(&response).len(), 10);
    assert_eq!(ids(&get("?limit=-1").await).len(), 0);
    let response = get("?limit=abc").await;
    assert!(response.ends_with(r#"{"detail":"Invalid limit abc"}"#));
    for body in [
        r#"{"limit":0}"#,
        r#"{"limit":1001}"#,
        r#"{"before":"x"}"#,
        r#"{"before":1}"#,
    ] {
        let response = running.send("POST", &history, &[], Some(body)).await;
        assert!(response.starts_with("HTTP/1.1 422"), "{body}: {response}");
    }
    let by_id = format!("{path}/{id}?subgraphs=true");
    let state = json(&running.send("GET", &by_id, &[], None).await);
    assert_eq!(state["checkpoint"]["checkpoint_id"].as_str(), Some(&**id));
}

#[tokio::test]
async fn lists_of_runs_are_checked_whole_before_any_is_created() {
    let running = Running::start(Options::default()).await;
    let good = r#"{"assistant_id":"counter","on_completion":"keep"}"#;
    let count = async || {
        json(
            &running
                .send("POST", "/threads/count", &[], Some("{}"))
                .await,
        )
    };
    let body = format!("[{good},{good}]");
    let response = running.send("POST", "/runs/batch", &[], Some(&body)).await;
    assert_eq!(json(&response).as_list().unwrap().len(), 2, "{response}");
    assert_eq!(count().await, value!(3));
    let half = format!("[{good},{{}}]");
    let response = running.send("POST", "/runs/batch", &[], Some(&half)).await;
    assert!(response.starts_with("HTTP/1.1 422"), "{response}");
    assert_eq!(count().await, value!(3));
}

#[tokio::test]
async fn watching_a_thread_checks_modes_and_the_last_event() {
    let running = Running::start(Options::default()).await;
    let path = |query: &str| format!("/threads/{THREAD}/stream{query}");
    for (query, header) in [
        ("?stream_modes=bogus", "x: y"),
        ("", "last-event-id: bogus"),
        ("", "last-event-id: 1-"),
    ] {
        let response = running.send("GET", &path(query), &[header], None).await;
        assert!(
            response.starts_with("HTTP/1.1 422"),
            "{query} {header}: {response}"
        );
    }
}

#[tokio::test]
async fn assistants_are_checked_before_they_are_made() {
    let running = Running::start(Options::default()).await;
    for (body, status) in [
        (r#"{"name":"x"}"#, 422),
        (r#"{"graph_id":"agent","assistant_id":"nope"}"#, 422),
        (
            r#"{"graph_id":"agent","config":{"recursion_limit":"x"}}"#,
            422,
        ),
        (
            r#"{"graph_id":"agent","config":{"configurable":{"a":1}},"context":{"b":2}}"#,
            400,
        ),
        (r#"{"graph_id":"agent","name":"x","context":{"b":2}}"#, 200),
    ] {
        let response = running.send("POST", "/assistants", &[], Some(body)).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{body}: {response}"
        );
    }
    for path in ["", "/subgraphs", "/subgraphs/child"] {
        let path = format!("/assistants/agent{path}");
        let named = running.send("GET", &path, &[], None).await;
        assert!(
            named.starts_with("HTTP/1.1 422"),
            "a graph's name is no assistant here: {named}"
        );
    }
}

#[tokio::test]
async fn schemas_are_those_of_an_assistant_or_a_graph_by_its_name() {
    let running = Running::start(Options::default()).await;
    let id = AssistantId::of_graph("agent").to_string();
    let mut bodies = vec![];
    for name in ["agent", &id] {
        let path = format!("/assistants/{name}/schemas");
        let response = running.send("GET", &path, &[], None).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        bodies.push(response.split_once("\r\n\r\n").unwrap().1.to_owned());
    }
    assert_eq!(bodies[0], bodies[1]);
}

#[tokio::test]
async fn drawings_go_as_deep_as_asked() {
    let running = Running::start(Options::default()).await;
    for (query, status) in [
        ("", 200),
        ("?xray=", 200),
        ("?xray=false", 200),
        ("?xray=True", 200),
        ("?xray=1", 200),
        ("?xray=0", 422),
        ("?xray=-1", 422),
        ("?xray=1.5", 422),
        ("?xray=maybe", 422),
    ] {
        let path = format!("/assistants/agent/graph{query}");
        let response = running.send("GET", &path, &[], None).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{query}: {response}"
        );
    }
}
