//! The commands that people type: what each one shows, and what it says where it cannot work.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::programs;
use test_support::server::{Server, Setup};
use test_support::talk::until;

mod chat;
mod refusals;
mod screens;
#[cfg(unix)]
mod terminal;

/// A thread whose id is written as THREAD on screens.
const THREAD: &str = "0199aaaa-0000-7000-8000-000000000001";

fn bundled() -> (Server, Client) {
    let server = Setup::bundled().env("BACKSTITCH_MEMORY", "true").start();
    let client = Client::of(&server);
    (server, client)
}

/// The command of the bundled program with these words, without what a developer's shell sets.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new(programs::bundled());
    for (name, _) in std::env::vars_os() {
        let is_setting = name.as_encoded_bytes().starts_with(b"BACKSTITCH_");
        if is_setting {
            command.env_remove(name);
        }
    }
    for name in [
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "DATABASE_URL",
        "HOST",
        "PORT",
    ] {
        command.env_remove(name);
    }
    command.env_remove("COLUMNS").args(words);
    command.stdin(Stdio::null());
    command
}

/// The same, at a server.
fn at(server: &Server, words: &[&str]) -> Command {
    let mut command = command(words);
    command.args(["--url", server.base_url()]);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command shows that works.
fn shown(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{errors}");
    text(&output.stdout)
}

/// What a command shows of these lines.
fn shown_of_lines(command: &mut Command, lines: &str) -> String {
    let output = typed(command, lines);
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{errors}");
    text(&output.stdout)
}

fn typed(command: &mut Command, lines: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
    // Who ends at once reads nothing.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    child.wait_with_output().unwrap()
}

/// A screen without what differs each time: times, ids of checkpoints, where the program is.
fn steady(screen: &str) -> String {
    let program = programs::bundled().display().to_string();
    let screen = screen
        .replace(&program, "backstitch")
        .replace(THREAD, "THREAD");
    let mut lines = vec![];
    for line in screen.lines() {
        let words = line.split(' ').map(|word| {
            let is_time = word.len() == 8 && word.as_bytes()[2] == b':';
            let is_date = word.len() == 10 && word.as_bytes()[4] == b'-' && word.starts_with("20");
            let is_id = word.len() == 36 && word.matches('-').count() == 4;
            if is_time {
                "TIME"
            } else if is_date {
                "DATE"
            } else if is_id {
                "ID"
            } else {
                word
            }
        });
        lines.push(words.collect::<Vec<_>>().join(" "));
    }
    lines.join("\n")
}
