//! Programs that serve tools to a graph end with the server, however it ends.

use serde_json::json;
use test_support::{
    client::Client,
    programs,
    server::{Server, Setup},
    talk::until,
};

/// A server whose tools come from a program that ignores requests to end, the program's processes,
/// and the folder of its notes.
fn start(way: &str) -> (Server, Vec<String>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    let script = programs::repository().join("tests/python/mcp_liar.py");
    let server = Setup::example("tools_server")
        .env("MCP_SCRIPT", script.to_str().unwrap())
        .env("MCP_WAY", way)
        .env("NOTES", notes.to_str().unwrap())
        .start();
    let processes = std::fs::read_to_string(&notes).unwrap();
    let processes: Vec<String> = processes.split_whitespace().map(str::to_owned).collect();
    assert_eq!(processes.len(), 2);
    assert!(processes.iter().all(|process| runs(process)));
    (server, processes, folder)
}

/// Whether a process is there and no zombie.
fn runs(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn gone(processes: &[String]) {
    until("the program and its child are gone", || {
        !processes.iter().any(|process| runs(process))
    });
}

fn call() -> serde_json::Value {
    let call = json!({"name": "talk", "args": {}, "id": "1", "type": "tool_call"});
    let message = json!({"type": "ai", "content": "", "tool_calls": [call]});
    json!({"assistant_id": "chat", "input": {"messages": [message]}, "stream_mode": ["tasks"]})
}

#[test]
fn programs_that_serve_tools_end_with_a_server_that_is_asked_to_stop() {
    let (mut server, processes, _folder) = start("stubborn");
    let client = Client::of(&server);
    let path = format!("/threads/{}/runs/wait", client.thread());
    let values = client.post(&path, &call()).json();
    assert_eq!(values["messages"][1]["type"], "tool", "{values}");
    assert!(server.terminate().success());
    gone(&processes);
}

#[test]
fn programs_that_serve_tools_end_with_a_server_that_is_asked_to_stop_twice() {
    let (mut server, processes, _folder) = start("stubborn_silent");
    let client = Client::of(&server);
    let mut stream = client.open_stream(&client.thread(), &call());
    stream.event_named("tasks");
    server.signal("TERM");
    until("it drains", || server.output().contains("draining"));
    server.signal("INT");
    assert_eq!(server.wait().code(), Some(130));
    gone(&processes);
}
