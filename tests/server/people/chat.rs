//! `chat`: replies, interrupts, a server of its own, and Ctrl-C.

use super::screens::interrupt;
use super::*;

fn thread(client: &Client) {
    let made = client.post("/threads", &json!({"thread_id": THREAD}));
    assert!(made.status < 300, "{}", made.text());
}

#[test]
fn replies_and_tool_calls_are_shown_and_the_thread_is_named_at_the_end() {
    let (server, client) = bundled();
    thread(&client);
    let mut chat = at(&server, &["chat", "--thread", THREAD]);
    let lines = "My name is Ada.\n\nWhat is my name?\nWhat is the weather in Oslo?\n";
    insta::assert_snapshot!(steady(&shown_of_lines(&mut chat, lines)), @r#"
    chat · Ctrl-C stops a reply, Ctrl-D ends the chat
    > My name is Ada.
    I am a scripted stand-in, not a language model: start the server with OPENAI_API_KEY (or with OPENAI_BASE_URL, for a model of your own) to talk to a real one. Nice to meet you, Ada!
    > 
    > What is my name?
    Your name is Ada.
    > What is the weather in Oslo?
    Let me look.
    → weather({"city":"Oslo"})
    · {"tool":"weather","looking_up":"Oslo"}
    ← weather: 7 °C and light rain in Oslo
    I see 7 °C and light rain in Oslo.
    > 
    to go on: backstitch chat chat --thread THREAD
    "#);
}

#[test]
fn an_interrupt_is_shown_and_the_next_line_resumes_it() {
    let (server, client) = bundled();
    thread(&client);
    let mut chat = at(&server, &["chat", "research", "--thread", THREAD]);
    let first = shown_of_lines(&mut chat, "rivers\n");
    assert!(first.contains("question: Publish this report?"), "{first}");
    assert!(!first.contains("report: "), "{first}");
    // A chat that goes on with the thread shows what it waits for.
    let mut chat = at(&server, &["chat", "research", "--thread", THREAD]);
    let second = shown_of_lines(&mut chat, "more about boats\ntrue\n");
    assert!(second.contains("(Revised: more about boats)"), "{second}");
    assert!(second.contains("\nreport: # rivers"), "{second}");
    let state = client.get(&format!("/threads/{THREAD}/state")).json();
    assert_eq!(state["next"], json!([]));
    assert!(state["values"]["report"].is_string());
}

#[test]
fn machines_read_the_events_as_lines_of_json() {
    let (server, _) = bundled();
    let mut chat = at(&server, &["chat", "chat", "--json"]);
    let output = shown_of_lines(&mut chat, "My name is Ada.\n");
    let events = output.lines().map(serde_json::from_str::<Value>);
    let events: Vec<Value> = events.map(Result::unwrap).collect();
    assert_eq!(events[0]["event"], "metadata");
    assert!(events.iter().any(|event| event["event"] == "updates"));
}

#[test]
fn without_a_server_one_runs_until_the_chat_ends_and_its_data_stay() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let chat = |words: &[&str], lines: &str| {
        let mut chat = command(words);
        chat.env("PORT", &port).current_dir(folder.path());
        shown_of_lines(&mut chat, lines)
    };
    let first = chat(&["chat"], "My name is Ada.\n");
    assert!(
        first.starts_with("no server at http://127.0.0.1:"),
        "{first}"
    );
    assert!(first.contains("Nice to meet you, Ada!"), "{first}");
    let thread = first.trim_end().rsplit(' ').next().unwrap();
    let second = chat(&["chat", "--thread", thread], "What is my name?\n");
    assert!(second.contains("Your name is Ada."), "{second}");
}

#[test]
fn ctrl_c_stops_the_reply_and_not_the_chat() {
    let (server, client) = bundled();
    thread(&client);
    let mut chat = at(&server, &["chat", "research", "--thread", THREAD]);
    let piped = chat.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut chat = piped.spawn().unwrap();
    let mut lines = chat.stdin.take().unwrap();
    let mut output = chat.stdout.take().unwrap();
    let mut shown = String::new();
    let mut read_until = |expected: &str| {
        let mut buffer = [0; 4096];
        while !shown.contains(expected) {
            let read = output.read(&mut buffer).unwrap();
            assert!(read > 0, "{expected} does not come:\n{shown}");
            shown.push_str(&text(&buffer[..read]));
        }
        std::mem::take(&mut shown)
    };
    lines.write_all(b"rivers\n").unwrap();
    read_until("search: ");
    interrupt(&chat);
    let stopped = read_until("(stopped)");
    assert!(!stopped.contains("Publish"), "{stopped}");
    until("the run has ended", || {
        let runs = client.get(&format!("/threads/{THREAD}/runs")).json();
        runs[0]["status"] == "interrupted"
    });
    lines.write_all(b"lakes\n").unwrap();
    // At the prompt, or in the middle of what is asked, it ends the chat.
    read_until("\n? ");
    interrupt(&chat);
    assert!(chat.wait().unwrap().success());
}

/// A port on which nobody listens.
pub(super) fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}
