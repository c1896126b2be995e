//! Heads and bodies of answers.

use super::*;

/// Each request with its answer, without the date.
async fn transcript(running: &Running, calls: &[(&str, &str, &[&str], Option<&str>)]) -> String {
    let mut text = String::new();
    for (method, path, headers, body) in calls {
        let answer = running.ask(method, path, headers, *body).await;
        text += &format!(
            ">>> {method} {path} {} {}\n",
            headers.join(" "),
            body.unwrap_or("-")
        );
        let lines = answer.lines().filter(|line| !line.starts_with("date: "));
        text += &lines.map(|line| format!("{line}\n")).collect::<String>();
        text += "\n\n";
    }
    text
}

#[tokio::test]
async fn threads_answer_as_langgraph_does() {
    let running = Running::start(Options::default()).await;
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
async fn runs_answer_as_langgraph_does() {
    let running = Running::start(Options::default()).await;
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
        ("GET", &on("?select=bogus"), &[], None),
        ("GET", &on("/nope"), &[], None),
        ("GET", &on(&format!("/{NOWHERE}")), &[], None),
        ("DELETE", &of(""), &[], None),
        ("POST", &of("/cancel"), &[], None),
        ("POST", &of("/cancel?wait=1&action=rollback"), &[], None),
        ("POST", &of("/cancel?action=bogus"), &[], None),
        ("GET", &of("/join"), &[], None),
        ("GET", &of("/stream"), &[], None),
    ];
    insta::assert_snapshot!(transcript(&running, calls).await);
}

#[tokio::test]
async fn web_pages_are_answered_as_langgraph_does() {
    let running = Running::start(Options::default()).await;
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
        cors: crate::http::Cors::Origins(vec!["https://app.example".into()]),
        ..Options::default()
    };
    let running = Running::start(options).await;
    let answer = running
        .ask("GET", "/ok", &["origin: https://app.example"], None)
        .await;
    assert!(answer.contains("access-control-allow-origin: https://app.example\r\n"));
    let answer = running
        .ask("GET", "/ok", &["origin: https://evil.example"], None)
        .await;
    assert!(!answer.contains("access-control-allow-origin"));
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_process_lives_on() {
    let running = Running::start(Options::default()).await;
    let answer = running.ask("GET", "/ok?check_db=1", &[], None).await;
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(answer.contains("content-type: text/plain; charset=utf-8\r\n"));
    assert!(answer.ends_with("\r\n\r\nInternal Server Error"));
    let answer = running.ask("GET", "/ok", &[], None).await;
    assert!(answer.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn state_and_history_requests_are_read_in_every_spelling() {
    let running = Running::start(Options::default()).await;
    let id = "1f1e52d3-b51d-655d-8000-078d7d9aa83f";
    let path = format!("/threads/{THREAD}/history");
    let count = |answer: &str| answer.matches("\"n\":").count();
    for body in [
        format!(r#"{{"limit":2,"before":"{id}"}}"#),
        format!(r#"{{"limit":2,"before":{{"checkpoint_id":"{id}","checkpoint_ns":""}}}}"#),
        format!(r#"{{"limit":2,"before":{{"configurable":{{"checkpoint_id":"{id}"}}}}}}"#),
    ] {
        let answer = running.ask("POST", &path, &[], Some(&body)).await;
        assert_eq!(count(&answer), 2, "{answer}");
        let asked = running.fake.asked.lock().clone();
        assert!(asked.contains(&format!("before: Some({id})")), "{asked}");
    }
    let get = |query: &str| format!("{path}{query}");
    assert_eq!(count(&running.ask("GET", &get(""), &[], None).await), 10);
    assert_eq!(
        count(&running.ask("POST", &path, &[], Some("{}")).await),
        10
    );
    assert_eq!(
        count(&running.ask("GET", &get("?limit=-1"), &[], None).await),
        0
    );
    let answer = running.ask("GET", &get("?limit=abc"), &[], None).await;
    assert!(answer.ends_with(r#"{"detail":"Invalid limit abc"}"#));
    for body in [
        r#"{"limit":0}"#,
        r#"{"limit":1001}"#,
        r#"{"before":"x"}"#,
        r#"{"before":1}"#,
    ] {
        let answer = running.ask("POST", &path, &[], Some(body)).await;
        assert!(answer.starts_with("HTTP/1.1 422"), "{body}: {answer}");
    }

    let path = format!("/threads/{THREAD}/state");
    for body in [
        r#"{"values":{"a":1}}"#,
        r#"{"values":[1]}"#,
        r#"{"values":null}"#,
        "{}",
    ] {
        let answer = running.ask("POST", &path, &[], Some(body)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{body}: {answer}");
    }
    for body in [
        r#"{"values":"x"}"#,
        r#"{"values":1}"#,
        r#"{"checkpoint_id":"x"}"#,
    ] {
        let answer = running.ask("POST", &path, &[], Some(body)).await;
        assert!(answer.starts_with("HTTP/1.1 422"), "{body}: {answer}");
    }
    let answer = running
        .ask("POST", &format!("{path}/checkpoint"), &[], Some("{}"))
        .await;
    assert!(
        answer.contains(r#"\"checkpoint\" is a required property"#),
        "{answer}"
    );
    running
        .ask("GET", &format!("{path}/{id}?subgraphs=true"), &[], None)
        .await;
    let asked = running.fake.asked.lock().clone();
    assert!(asked.contains(id) && asked.ends_with("true)"), "{asked}");
}

#[tokio::test]
async fn lists_of_runs_are_checked_whole_before_any_is_created() {
    let running = Running::start(Options::default()).await;
    let good = r#"[{"assistant_id":"counter"},{"assistant_id":"counter"}]"#;
    let answer = running.ask("POST", "/runs/batch", &[], Some(good)).await;
    assert_eq!(answer.matches("\"run_id\"").count(), 2, "{answer}");
    running.fake.asked.lock().clear();
    let half = r#"[{"assistant_id":"counter"},{}]"#;
    let answer = running.ask("POST", "/runs/batch", &[], Some(half)).await;
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    assert_eq!(*running.fake.asked.lock(), "");
}

#[tokio::test]
async fn watching_a_thread_checks_modes_and_the_last_event() {
    let running = Running::start(Options::default()).await;
    let path = |query: &str| format!("/threads/{THREAD}/stream{query}");
    for (query, header, status) in [
        ("?stream_modes=bogus", "x: y", 422),
        ("", "last-event-id: bogus", 422),
        ("", "last-event-id: 1-", 422),
        (
            "?stream_mode=lifecycle,state_update",
            "last-event-id: -",
            200,
        ),
        (
            "?stream_modes=run_modes",
            "last-event-id: 1795212072667-0",
            200,
        ),
    ] {
        let answer = running.ask("GET", &path(query), &[header], None).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{query} {header}: {answer}"
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
        // Valid, but not something this program of paper can do.
        (r#"{"graph_id":"agent","name":"x","context":{"b":2}}"#, 501),
    ] {
        let answer = running.ask("POST", "/assistants", &[], Some(body)).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{body}: {answer}"
        );
    }
    for path in ["", "/schemas", "/subgraphs", "/subgraphs/child"] {
        let path = format!("/assistants/agent{path}");
        let named = running.ask("GET", &path, &[], None).await;
        assert!(
            named.starts_with("HTTP/1.1 422"),
            "a graph's name is no assistant here: {named}"
        );
    }
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
        let answer = running.ask("GET", &path, &[], None).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{query}: {answer}"
        );
    }
}
