//! Large requests of runs of which a few fields are looked up: where there is no memory left they are read one at a time.

use super::*;
use crate::{
    budget::Reservation,
    channel::{Kind, Reducer},
    graph::{Graph, Output, START},
    runs::{
        self,
        request::{Assistant, Requester, Run},
    },
    stream::Mode,
    value,
};
use server::Setup;

/// A server that retains nothing of runs which wait, with a graph of messages.
async fn running() -> Running {
    let chat = Graph::untyped()
        .channel("messages", Kind::Aggregate(Reducer::messages()))
        .node("only", |_| async { Ok(Output::default()) })
        .edge(START, "only");
    let setup = Setup {
        runs: runs::Options {
            known_waiting: 0,
            ..runs::Options::default()
        },
        more: Some(("chat", chat.build().unwrap())),
        ..Setup::default()
    };
    Running::start_as(setup).await
}

fn large() -> String {
    "x".repeat(1_200_000)
}

/// A run on [`THREAD`] with a large request, which waits for long.
async fn waiting(running: &Running, graph: &str) -> String {
    let body = format!(
        r#"{{"assistant_id": "{graph}", "input": {{"count": 1, "more": "{}"}}, "after_seconds": 1000}}"#,
        large()
    );
    let path = format!("/threads/{THREAD}/runs");
    let created = json(&running.send("POST", &path, &[], Some(&body)).await);
    created["run_id"].as_str().unwrap().to_owned()
}

/// All memory for states, once responses that clients have taken give back theirs.
async fn all_memory(running: &Running) -> (Reservation, Reservation) {
    let budget = running.services.runs().states().budget();
    let share = |payer: &str| budget.reserve(&payer.into(), budget.share()).ok();
    let free = async {
        loop {
            if let Some(all) = share("a").zip(share("b")) {
                break all;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let all = timeout(Duration::from_secs(10), free).await;
    all.expect("the memory is free")
}

/// What a request gets whose transaction is given up when nothing happens in it for a second, as on a machine that has
/// too much to do.
async fn unless_given_up<F: Future<Output = String>>(send: impl Fn() -> F) -> String {
    let mut response = String::new();
    for _ in 0..10 {
        response = send().await;
        if !response.contains("The database is not available") {
            break;
        }
    }
    response
}

/// Sends a request that waits while another one is looked up and there is no memory: what it gets then, up to `end`.
async fn once_it_is_its_turn(
    running: &Running,
    (method, path): (&str, &str),
    header: &str,
    body: Option<&str>,
    end: &str,
) -> String {
    let states = running.services.runs().states();
    let _all = all_memory(running).await;
    let other = states.for_request(2 << 20).await;
    let mut socket = running.connect().await;
    let text = request(method, path, &[header], body);
    socket.write_all(text.as_bytes()).await.unwrap();
    let mut reads = std::pin::pin!(read_until(&mut socket, end));
    let early = timeout(Duration::from_millis(300), reads.as_mut()).await;
    assert!(early.is_err(), "it does not wait: {early:?}");
    drop(other);
    reads.await
}

#[tokio::test]
async fn joining_a_stream_looks_up_whether_it_is_logged() {
    let running = running().await;
    let run = waiting(&running, "counter").await;
    // In its place this one is known to the process.
    waiting(&running, "counter").await;
    let path = format!("/threads/{THREAD}/runs/{run}/stream");
    let head = once_it_is_its_turn(&running, ("GET", &path), "x-a: b", None, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

#[tokio::test]
async fn an_answer_to_an_interrupt_looks_for_others() {
    let running = running().await;
    waiting(&running, "counter").await;
    let path = format!("/threads/{THREAD}/runs");
    let body = r#"{"assistant_id": "counter", "command": {"resume": 1}}"#;
    let answer = ("POST", &*path);
    let head = once_it_is_its_turn(&running, answer, "x-a: b", Some(body), "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

#[tokio::test]
async fn while_an_answer_looks_for_others_the_thread_can_be_changed() {
    let running = running().await;
    waiting(&running, "chat").await;
    let path = format!("/threads/{THREAD}/runs");
    let answer = r#"{"assistant_id": "chat", "command": {"resume": 1}}"#;
    let states = running.services.runs().states();
    let _all = all_memory(&running).await;
    let other = states.for_request(2 << 20).await;
    let mut socket = running.connect().await;
    let text = request("POST", &path, &[], Some(answer));
    socket.write_all(text.as_bytes()).await.unwrap();
    let mut answered = std::pin::pin!(read_until(&mut socket, "\r\n\r\n"));
    let early = timeout(Duration::from_millis(300), answered.as_mut()).await;
    assert!(early.is_err(), "it does not wait: {early:?}");
    let post = format!("/threads/{THREAD}/messages");
    let message = r#"{"role": "user", "content": "hello"}"#;
    let posted = running.send("POST", &post, &[], Some(message));
    let posted = timeout(Duration::from_secs(5), posted).await;
    let posted = posted.expect("nobody holds the tree while it waits for memory");
    assert!(posted.starts_with("HTTP/1.1 201"), "{posted}");
    drop(other);
    let head = answered.await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

#[tokio::test]
async fn events_of_a_thread_look_up_the_graphs_of_runs() {
    let running = running().await;
    let feed = running.feed();
    let request = Run {
        input: Some(value!({"count": 1, "more": large()})),
        stream_resumable: true,
        stream_mode: vec![Mode::Custom],
        ..Run::of(Assistant::Graph("agent".into()), Requester::unrestricted())
    };
    let runs = running.services.runs();
    let thread = Some(THREAD.parse().unwrap());
    runs.create(thread, request, false).await.unwrap();
    feed.send(value!("fed")).unwrap();
    let path = format!("/threads/{THREAD}/stream/events");
    let body = r#"{"channels": ["custom"]}"#;
    let accept = "accept: text/event-stream";
    let events = once_it_is_its_turn(&running, ("POST", &path), accept, Some(body), "fed").await;
    assert!(events.contains("fed"), "{events}");
}

#[tokio::test]
async fn messages_that_wait_are_looked_up_for_events_and_for_repeats() {
    let running = running().await;
    let (_, _feed) = running.begin().await;
    // Of many small parts, which take much more memory than bytes.
    let content = vec![r#"{"type":"text","text":"small"}"#; 25_000].join(",");
    let body = format!(
        r#"{{"thread_id": "{THREAD}", "assistant_id": "chat", "message_id": "m", "content": [{content}]}}"#
    );
    let send = || running.send("POST", "/commands/send-message", &[], Some(&body));
    let sent = send().await;
    assert!(sent.starts_with("HTTP/1.1 202"), "{sent}");
    let path = format!("/threads/{THREAD}/events");
    let page = once_it_is_its_turn(&running, ("GET", &path), "x-a: b", None, "}").await;
    // What the page has of it takes memory, of which there was none.
    assert!(page.starts_with("HTTP/1.1 503"), "{page}");
    let page = running.send("GET", &path, &[], None).await;
    assert!(page.contains(&content));
    // A repeat holds a connection, and goes on beside the memory if no other change does.
    let all = all_memory(&running).await;
    let beside = running.services.runs().states().beside().await;
    let refused = unless_given_up(send).await;
    assert!(refused.contains("Too many large states"), "{refused}");
    drop(beside);
    let repeated = unless_given_up(send).await;
    assert!(repeated.starts_with("HTTP/1.1 202"), "{repeated}");
    drop(all);
}
