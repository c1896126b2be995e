//! Clients of agents and tools that leave while their call waits for the database: what only reads stops, and what
//! writes goes on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{get, ok, until};

use crate::locks::{locked, patient, waiting_statements};
use crate::siege::{MIB, Watch, rounds};

const AGENT: &str = "agent";

/// What calls may take that wait.
const MOST: u64 = 64 * MIB;

/// A request that a client sends before it has the response to the one before.
const NEXT: &[u8] = b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// When a server has noticed at the latest that a client has left.
const NOTICED: Duration = Duration::from_secs(5);

fn call(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn serve(place: &Place) -> (Server, Client) {
    let setup = Setup::example("reference_server").env("DATABASE_URL", patient(place));
    let server = setup.start();
    let client = Client::of(&server);
    (server, client)
}

fn agent(client: &Client) -> String {
    let found = ok(
        client.post("/assistants/search", &json!({"graph_id": AGENT})),
        200,
    );
    format!("/a2a/{}", found[0]["assistant_id"].as_str().unwrap())
}

/// The statements of requests that wait for a table. Those of whoever looks for runs that wait or are lost do so too,
/// and begin with rows that they name or search among runs that are behind others, and so do those that remove what
/// is old. The beginning of a transaction waits for nothing: the database reads statements before locks, and the one
/// behind it is shown the next time.
fn waiting(place: &Place) -> Vec<String> {
    let own = |statement: &String| {
        let text = statement.trim_start();
        let behind = "SELECT r.thread_id FROM runs r WHERE r.status = 'pending' AND r.behind";
        ["WITH ", "DELETE ", "START TRANSACTION", behind]
            .iter()
            .any(|begin| text.starts_with(begin))
    };
    let mut statements = waiting_statements(place);
    statements.retain(|one| !own(one));
    statements
}

/// Leaves a call, and waits until the server has noticed that: it closes the connection, and has not answered.
fn leave(mut call: TcpStream) {
    call.shutdown(Shutdown::Write).unwrap();
    call.set_read_timeout(Some(NOTICED)).unwrap();
    let mut answer = vec![];
    call.read_to_end(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "");
}

/// Leaves a call whose statement waits for a table, and has the table locked anew behind that statement: whatever the
/// call would read after it waits too, as long as what this returns is there.
///
/// The client may have sent its next request already.
fn left(
    place: &Place,
    client: &Client,
    table: &str,
    path: &str,
    call: &Value,
    next: Option<&[u8]>,
) {
    let url = place.url().unwrap();
    let lock = format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
    let first = locked(url, &lock);
    scope(|scope| {
        let begun = client.begin("POST", path, &[], call.to_string().as_bytes());
        let is_there = || waiting(place).len() == 1;
        until("its statement is with the database", is_there);
        (&begun).write_all(next.unwrap_or_default()).unwrap();
        leave(begun);
        assert!(is_there(), "its statement is still with the database");
        let second = scope.spawn(|| locked(url, &lock));
        until("the lock is behind it", || waiting(place).len() == 2);
        drop(first);
        let _second = second.join().unwrap();
        // Whatever waits behind the lock is still there when it is looked for the next time.
        let pause = Duration::from_millis(if rounds() < 10 { 50 } else { 10 });
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) {
            assert_eq!(waiting(place), [""; 0], "{call}");
            sleep(pause);
        }
    });
}

#[test]
fn reads_of_agents_and_tools_stop_when_their_client_leaves() {
    let place = Place::postgres();
    let (server, client) = serve(&place);
    let path = agent(&client);
    let made = json!({"graph_id": AGENT, "name": "mine"});
    ok(client.post("/assistants", &made), 200);
    let message =
        json!({"role": "user", "parts": [{"kind": "text", "text": "hi"}], "messageId": "m1"});
    let sent = client.post(&path, &call("message/send", json!({"message": message})));
    let task = ok(sent, 200)["result"].clone();
    let reads = [
        ("runs", call("tasks/get", json!({"id": task["id"]}))),
        ("runs", call("GetTask", json!({"id": task["id"]}))),
        (
            "runs",
            call("ListTasks", json!({"contextId": task["contextId"]})),
        ),
    ];
    // Another client's reads would take connections that have these statements prepared.
    let watch = Watch::probing(&server);
    for (table, read) in &reads {
        assert!(ok(client.post(&path, read), 200)["result"].is_object());
        left(&place, &client, table, &path, read, None);
    }
    // hyper reads nothing of a connection, and so no end of it, while another request is in its buffer.
    let (table, read) = &reads[0];
    left(&place, &client, table, &path, read, Some(NEXT));
    let read = call("tools/list", json!({}));
    // No connection has its statement prepared yet.
    left(&place, &client, "assistants", "/mcp", &read, None);
    assert!(ok(client.post("/mcp", &read), 200)["result"].is_object());
    left(&place, &client, "assistants", "/mcp", &read, None);
    watch.held("reads that are left", MOST);
}

#[test]
fn what_a_call_to_an_agent_writes_is_written_when_its_client_has_left() {
    let place = Place::postgres();
    let (server, client) = serve(&place);
    let path = agent(&client);
    let thread = client.thread();
    let watch = Watch::probing(&server);
    let lock = locked(
        place.url().unwrap(),
        "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE",
    );
    let message = json!({
        "role": "user", "parts": [{"kind": "text", "text": "hi"}], "messageId": "m1", "contextId": thread,
    });
    let send = call("message/send", json!({"message": message}));
    let begun = client.begin("POST", &path, &[], send.to_string().as_bytes());
    until("its statement waits", || waiting(&place).len() == 1);
    (&begun).write_all(NEXT).unwrap();
    leave(begun);
    assert_eq!(waiting(&place).len(), 1);
    drop(lock);
    until("the message has a run", || {
        !get(&client, &thread, "runs").as_array().unwrap().is_empty()
    });
    watch.held("a message that is left", MOST);
}
