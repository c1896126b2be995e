//! The first minute with a server: what it says when it starts, what a browser shows, what its log
//! and its settings say, and what it says where it cannot start.

use std::process::Command;

use serde_json::Value;
use test_support::client::Client;
use test_support::programs;
use test_support::server::Setup;
use test_support::talk::until;

/// What browsers send.
const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

#[test]
fn people_read_graphs_storage_manual_and_commands_that_work_when_it_starts() {
    let server = Setup::bundled().start();
    until("the greeting is there", || {
        server.output().contains("curl -N")
    });
    let output = server.output();
    let url = server.base_url();
    assert!(output.contains("graphs   chat, research"), "{output}");
    assert!(output.contains("storage  SQLite in /"), "{output}");
    assert!(output.contains(&format!("{url}/docs")), "{output}");
    let mut commands = output.lines().map(str::trim);
    let curl = commands.find(|line| line.starts_with("curl -N")).unwrap();
    let streamed = Command::new("sh").args(["-c", curl]).output().unwrap();
    let streamed = String::from_utf8_lossy(&streamed.stdout).into_owned();
    assert!(streamed.contains("event: values"), "{curl}\n{streamed}");
    let mut commands = output.lines().map(str::trim);
    let chat = commands.find(|line| line.contains(" chat chat")).unwrap();
    let chat = format!("echo 'My name is Ada.' | {chat}");
    let chatted = Command::new("sh").args(["-c", &chat]).output().unwrap();
    let chatted = String::from_utf8_lossy(&chatted.stdout).into_owned();
    assert!(
        chatted.contains("Nice to meet you, Ada!"),
        "{chat}\n{chatted}"
    );
}

#[test]
fn machines_that_read_the_log_read_json_alone() {
    let server = Setup::bundled().env("LOG_FORMAT", "json").start();
    let client = Client::of(&server);
    assert_eq!(client.get("/ok").status, 200);
    until("the log has begun", || server.output().contains('{'));
    for line in server.output().lines() {
        let is_first = line.starts_with("listening on ");
        assert!(
            is_first || serde_json::from_str::<Value>(line).is_ok(),
            "{line}"
        );
    }
}

#[test]
fn a_browser_is_shown_the_graphs_and_other_clients_see_no_change() {
    let server = Setup::bundled().start();
    let client = Client::of(&server);
    let page = client.send("GET", "/", &[BROWSER], b"");
    let text = page.text();
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("text/html")
    );
    for expected in ["<b>chat</b>", "<b>research</b>", "curl -N", "href=\"docs\""] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
    for accept in [
        &[][..],
        &[("accept", "*/*")],
        &[("accept", "application/json")],
    ] {
        let health = client.send("GET", "/", accept, b"");
        assert_eq!(health.json(), client.get("/ok").json());
        assert_eq!(health.header("vary"), client.get("/ok").header("vary"));
    }
}

#[test]
fn with_keys_the_page_names_no_graph() {
    let setup = Setup::bundled().env("BACKSTITCH_API_KEYS", "ann=key-a");
    let server = setup.start();
    let client = Client::of(&server);
    for client in [client.clone(), client.with_key("key-a")] {
        let page = client.send("GET", "/", &[BROWSER], b"");
        assert_eq!(page.status, 200);
        let text = page.text();
        assert!(
            text.contains("x-api-key") && !text.contains("research"),
            "{text}"
        );
    }
}

#[test]
fn requests_are_logged_at_debug_with_status_time_and_ids() {
    let server = Setup::bundled().env("LOG_LEVEL", "debug").start();
    let client = Client::of(&server);
    let sent = client.send(
        "GET",
        "/threads/x?secret=1",
        &[("x-request-id", "req-7")],
        b"",
    );
    assert_eq!(sent.status, 422);
    until("the request is logged", || {
        server.output().contains("req-7")
    });
    let output = server.output();
    let line = output.lines().find(|line| line.contains("req-7")).unwrap();
    for expected in ["DEBUG", "GET", "/threads/x", "status=422", "milliseconds="] {
        assert!(line.contains(expected), "{expected} is not in: {line}");
    }
    assert!(!output.contains("secret"), "{output}");
}

#[test]
fn the_settings_that_hold_are_shown_with_their_sources() {
    let output = Command::new(programs::bundled())
        .args(["config", "show", "--memory"])
        .env("OPENAI_MODEL", "tiny")
        .env_remove("BACKSTITCH_CONFIG")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |name: &str| {
        let mut lines = shown.lines().map(|line| line.split_whitespace().collect());
        lines
            .find(|words: &Vec<&str>| words[0] == name)
            .unwrap_or_else(|| panic!("{name} is not in:\n{shown}"))
            .join(" ")
    };
    assert_eq!(line("config"), "config backstitch.toml (not there) default");
    assert_eq!(
        line("openai_model"),
        "openai_model tiny environment OPENAI_MODEL"
    );
    assert_eq!(line("memory"), "memory true flag --memory");
}

#[test]
fn where_it_cannot_start_it_says_what_would_do() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let busy = Setup::bundled().start();
    let port = busy.base_url().rsplit(':').next().unwrap().to_owned();
    let of = |name, value: String| Setup::bundled().env(name, value);
    let data = file.path().display().to_string();
    for (setup, expected) in [
        (of("BACKSTITCH_DATA", data), "it is a file: name the folder"),
        (of("PORT", port), "choose another port"),
        (of("HOST", "127.0.0.1.example.invalid".into()), "in HOST"),
        (
            of("HOST", "203.0.113.7".into()).env("BACKSTITCH_ALLOW_OPEN", "true"),
            "this machine has no such address",
        ),
    ] {
        let (status, output) = setup.refused();
        assert_eq!(status.code(), Some(1), "{output}");
        assert!(output.contains(expected), "{expected} is not in:\n{output}");
    }
}

#[test]
fn a_number_that_a_setting_cannot_be_is_refused_with_its_name_and_its_range() {
    let help = Command::new(programs::bundled()).arg("--help").output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    // A line with the names of each setting, and one that ends in its default.
    let lines: Vec<&str> = help.lines().map(str::trim).collect();
    let numbers: Vec<&str> = lines
        .windows(2)
        .filter(|two| {
            let default = two[1].rsplit('[').next().unwrap().trim_end_matches(']');
            default.parse::<u64>().is_ok()
        })
        .map(|two| two[0])
        .collect();
    assert!(numbers.len() > 35, "{numbers:?}");
    for names in numbers {
        let (variable, name) = names.split_once(" (").unwrap();
        let name = name.trim_end_matches(')');
        for wrong in ["-1", "18446744073709551616"] {
            let (status, output) = Setup::bundled().env(variable, wrong).refused();
            assert_eq!(status.code(), Some(2), "{variable}: {output}");
            let begin = format!("{name} (environment {variable}): `{wrong}` ");
            assert!(output.contains(&begin), "{begin}: {output}");
            let says_what_would_do = output.contains("write ") && output.contains(" to ");
            assert!(says_what_would_do, "{output}");
        }
    }
}
