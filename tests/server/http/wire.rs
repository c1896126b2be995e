//! Frames and headers, byte by byte.

use std::io::{Read, Write};

use test_support::server::Setup;

use super::*;

#[test]
fn frames_are_event_then_data_ended_by_crlf() {
    let (_server, client) = serve(&Place::sqlite());
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &counter());
    let run = open.run();
    let body = String::from_utf8(open.rest()).unwrap();
    let expected = format!(
        "event: metadata\r\ndata: {{\"run_id\":\"{run}\",\"attempt\":1}}\r\n\r\n\
         event: values\r\ndata: {{\"count\":0,\"log\":[\"in\"]}}\r\n\r\n\
         event: values\r\ndata: {{\"count\":1,\"log\":[\"in\",\"first\"]}}\r\n\r\n\
         event: values\r\ndata: {{\"count\":111,\"log\":[\"in\",\"first\",\"left\",\"right\"]}}\r\n\r\n\
         event: values\r\ndata: {{\"count\":1111,\"log\":[\"in\",\"first\",\"left\",\"right\",\"last\"]}}\r\n\r\n"
    );
    assert_eq!(body, expected);
}

#[test]
fn ids_come_last_in_a_frame_and_only_in_resumable_streams() {
    let (_server, client) = serve(&Place::sqlite());
    let body = with(counter(), "stream_resumable", true);
    let mut open = client.open_stream(&client.thread(), &body);
    let text = String::from_utf8(open.rest()).unwrap();
    let frames: Vec<&str> = text.split_terminator("\r\n\r\n").collect();
    assert_eq!(frames.len(), 5);
    let mut last = None;
    for frame in frames {
        let names: Vec<&str> = frame
            .split("\r\n")
            .map(|line| line.split(':').next().unwrap())
            .collect();
        assert_eq!(names, ["event", "data", "id"]);
        let id: u64 = frame.rsplit("id: ").next().unwrap().parse().unwrap();
        assert!(Some(id) > last, "{id:?} after {last:?}");
        last = Some(id);
    }
}

#[test]
fn a_stream_says_where_it_is_and_that_nobody_may_keep_it() {
    let (_server, client) = serve(&Place::sqlite());
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &counter());
    let path = format!(
        "/threads/{thread}/runs/{}",
        open.event().unwrap().data["run_id"].as_str().unwrap()
    );
    for (name, value) in [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),
        ("connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("vary", "Origin"),
        ("content-location", &path),
        ("location", &format!("{path}/stream")),
    ] {
        assert_eq!(open.header(name), Some(value), "{name}");
    }
    assert_eq!(open.header("access-control-allow-origin"), None);
}

#[test]
fn runs_say_where_they_are() {
    let (_server, client) = serve(&Place::sqlite());
    let thread = client.thread();
    let created = client.post(&format!("/threads/{thread}/runs"), &counter());
    let run = created.json()["run_id"].as_str().unwrap().to_owned();
    let path = format!("/threads/{thread}/runs/{run}");
    assert_eq!(
        (created.status, created.header("content-location")),
        (200, Some(&*path))
    );

    let waited = client.post(&format!("/threads/{thread}/runs/wait"), &counter());
    let path = waited.header("content-location").unwrap();
    assert!(
        path.starts_with(&format!("/threads/{thread}/runs/")),
        "{path}"
    );
    assert_eq!(waited.header("location"), Some(&*format!("{path}/join")));
    assert_eq!(waited.header("content-type"), Some("application/json"));

    let stateless = client.post("/runs", &counter());
    let run = stateless.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(
        stateless.header("content-location"),
        Some(&*format!("/runs/{run}"))
    );
}

#[test]
fn a_silent_stream_and_a_silent_wait_show_that_they_live() {
    let (_server, client) = serve(&Place::sqlite());
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || {
            let body = slow(8500, 0);
            let thread = client.thread();
            client.post(&format!("/threads/{thread}/runs/wait"), &body)
        })
    };
    let mut open = client.open_stream(&client.thread(), &slow(8500, 0));
    let text = String::from_utf8(open.rest()).unwrap();
    assert!(
        text.contains("\r\n\r\n: heartbeat\r\n\r\nevent: "),
        "{text}"
    );
    let waited = waiting.join().unwrap();
    let text = waited.text();
    let body = text.trim_start_matches('\n');
    assert!(text.starts_with('\n') && body.starts_with('{'), "{text}");
    assert_eq!(waited.json()["seen"], json!(["work", "rest"]));
}

#[test]
fn pages_of_other_origins_may_call_and_read_where_a_run_is() {
    let setup = Setup::example("reference_server").env("BACKSTITCH_CORS_ORIGINS", "*");
    let server = setup.start();
    let client = Client::of(&server);
    let preflight = client.send(
        "OPTIONS",
        "/threads",
        &[
            ("origin", "http://page.test"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type, x-api-key"),
            ("access-control-request-private-network", "true"),
        ],
        b"",
    );
    assert!(
        matches!(preflight.status, 200 | 204),
        "{}",
        preflight.status
    );
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-headers", "content-type, x-api-key"),
        ("access-control-max-age", "600"),
        ("access-control-allow-private-network", "true"),
    ] {
        assert_eq!(preflight.header(name), Some(value), "{name}");
    }
    let methods = preflight.header("access-control-allow-methods").unwrap();
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        assert!(methods.contains(method), "{methods}");
    }
    let answer = client.send("GET", "/ok", &[("origin", "http://page.test")], b"");
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let exposed = answer
        .header("access-control-expose-headers")
        .unwrap()
        .to_ascii_lowercase();
    for name in [
        "content-location",
        "location",
        "x-pagination-total",
        "x-pagination-next",
    ] {
        assert!(exposed.contains(name), "{exposed}");
    }
}

#[test]
fn health_and_facts_are_there() {
    let (_server, client) = serve(&Place::sqlite());
    assert_eq!(client.get("/ok").json()["ok"], true);
    assert_eq!(client.get("/ok?check_db=1").json()["ok"], true);
    let info = client.get("/info").json();
    assert!(
        info["version"].is_string() && info["flags"].is_object(),
        "{info}"
    );
    // What it says of itself is so.
    assert_eq!(info["flags"]["assistants"], true);
    let found = client.post("/assistants/search", &json!({})).json();
    assert!(!found.as_array().unwrap().is_empty());
    let claims_crons = info["flags"]["crons"] == true;
    let has_crons = client.post("/runs/crons/search", &json!({})).status == 200;
    assert_eq!(claims_crons, has_crons, "{info}");
    for (flag, claimed) in info["flags"].as_object().unwrap() {
        let there = ["assistants", "crons"].contains(&flag.as_str());
        assert!(there || claimed == false, "{flag}: {info}");
    }
    assert_eq!(client.get("/nothing").refused(404), "Not Found");
    // The JavaScript client repeats what is answered with 501 for twenty seconds.
    for path in [
        "/ui/agent",
        "/assistants/agent/nothing",
        "/threads/nothing/at/all",
        "/store",
    ] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let answer = client.send(method, path, &[], b"{}");
            assert_eq!(answer.refused(404), "Not Found", "{method} {path}");
        }
    }
    let put = client.send("PUT", "/threads", &[], b"{}");
    assert_eq!(put.refused(405), "Method Not Allowed");
}

#[test]
fn requests_that_are_sent_ahead_have_their_responses_in_that_order() {
    let (_server, client) = serve(&Place::sqlite());
    let run = format!("/threads/{}/runs/wait", client.thread());
    let mut connection = client.begin("POST", &run, &[], counter().to_string().as_bytes());
    let last = "GET /info HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let next = format!("GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n{last}");
    connection.write_all(next.as_bytes()).unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    let begins = ["\"count\":1111", "{\"ok\":true", "\"version\""].map(|part| text.find(part));
    assert!(
        begins.iter().all(Option::is_some) && begins.is_sorted(),
        "{text}"
    );
    assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{text}");
}
