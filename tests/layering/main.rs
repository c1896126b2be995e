//! The rooms of the library: who may import whom, and what every source file owes its reader.
//!
//! The table below is the architecture. A new room is entered here, with a height; a room may
//! name rooms of its own height and below. Code under `#[cfg(test)]` may name anything.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

mod circles;
mod crates;
mod migrations;
mod names;
mod source;
mod twins;
mod words;

use source::{examples, sources, tests};

/// Heights of the rooms.
const ROOMS: &[(&str, u8)] = &[
    ("value", 0),
    ("id", 0),
    ("error", 0),
    ("time", 0),
    ("failpoint", 0),
    ("abandon", 0),
    ("tls", 0),
    ("budget", 0),
    ("cache", 0),
    ("contention", 0),
    ("hint", 0),
    ("sorted", 0),
    ("words", 0),
    ("metrics", 0),
    ("trace", 0),
    ("channel", 1),
    ("state", 1),
    ("message", 1),
    ("checkpoint", 2),
    ("graph", 3),
    ("extract", 3),
    ("engine", 4),
    ("llm", 4),
    ("agent", 5),
    ("tree", 5),
    ("stream", 5),
    ("store", 5),
    ("assistants", 5),
    ("webhooks", 5),
    ("crons", 5),
    ("runs", 6),
    ("threads", 7),
    ("idempotency", 8),
    ("storage", 9),
    ("http", 9),
    ("client", 10),
    ("config", 10),
    ("telemetry", 10),
    ("server", 10),
    ("local", 10),
    ("cli", 10),
    // Graphs of the bundled server, modules of the binary alone.
    ("demo", 11),
    ("main", 11),
    // The author's door shows things of many rooms and is used by none.
    ("prelude", 11),
    ("run", 11),
    ("service", 11),
];

/// Rooms that only these others may name, whatever their heights.
const CLOSED_ROOMS: &[(&str, &[&str])] = &[
    ("storage", &["storage", "cli", "server", "local"]),
    ("client", &["client", "cli"]),
];

/// Foreign crates that stay behind one door: (crate, the only paths that may name it).
const CLOSED_CRATES: &[(&str, &[&str])] = &[
    ("tokio_postgres", &["storage/postgres"]),
    ("deadpool", &["storage/postgres"]),
    ("deadpool_postgres", &["storage/postgres"]),
    ("rusqlite", &["storage/sqlite"]),
    ("siphasher", &["storage/migrations"]),
    ("hyper", &["http"]),
    ("hyper_util", &["http"]),
    ("http_body_util", &["http"]),
    ("bincode", &["checkpoint/codec"]),
    ("async_openai", &["llm/openai"]),
    ("genai", &["llm/providers"]),
    ("rmcp", &["llm/mcp"]),
    ("rustls", &["tls"]),
    ("process_wrap", &["llm/mcp"]),
    ("clap", &["cli", "config"]),
    ("quick_cache", &["cache"]),
    (
        "reqwest",
        &["client", "llm", "telemetry/otel", "webhooks/sender"],
    ),
    ("opentelemetry", &["telemetry/otel", "trace/propagation"]),
    (
        "opentelemetry_sdk",
        &["telemetry/otel", "trace/propagation"],
    ),
    ("opentelemetry_otlp", &["telemetry/otel"]),
    ("opentelemetry_http", &["telemetry/otel"]),
    (
        "tracing_opentelemetry",
        &["telemetry/otel", "trace/propagation"],
    ),
    ("sse_stream", &["client"]),
    ("url", &["webhooks/policy"]),
    ("ipnet", &["webhooks/policy"]),
    ("hmac", &["webhooks/signature"]),
    (
        "sha2",
        &["assistants/factory", "http/docs", "webhooks/signature"],
    ),
    ("croner", &["crons/schedule"]),
    ("prometheus_client", &["metrics"]),
    ("tokio_tungstenite", &["http/protocol/websocket"]),
];

/// Files past this are to be divided.
const MOST_LINES: usize = 500;

/// The most files that these rooms have beside their folders, so that a newcomer can read their names at once.
const MOST_FILES: &[(&str, usize)] = &[("runs", 15)];

#[test]
fn rooms_have_few_files_at_their_top() {
    for (room, most) in MOST_FILES {
        let prefix = format!("{room}/");
        let names = sources().into_iter().filter_map(|source| {
            let name = source.path.strip_prefix(&prefix)?.to_owned();
            (!name.contains('/')).then_some(name)
        });
        let names: BTreeSet<String> = names.collect();
        assert!(names.len() <= *most, "src/{room} has {}", list(&names));
    }
}

#[test]
fn no_room_imports_a_room_above_it() {
    let heights = ROOMS.iter().copied().collect::<BTreeMap<_, _>>();
    let mut wrong = BTreeSet::new();
    for source in sources() {
        let Some(room) = source.room() else { continue };
        let Some(height) = heights.get(room) else {
            wrong.insert(format!(
                "{room} is not in the table of rooms in tests/layering/main.rs"
            ));
            continue;
        };
        for named in source.names().rooms {
            let above = heights
                .get(named.as_str())
                .is_some_and(|named| named > height);
            let closed = CLOSED_ROOMS
                .iter()
                .any(|(closed, users)| *closed == named && !users.contains(&room));
            if above || closed {
                wrong.insert(format!("{} may not import crate::{named}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", list(&wrong));
}

#[test]
fn foreign_crates_stay_behind_their_door() {
    let mut wrong = BTreeSet::new();
    for source in sources() {
        let place = source.path.trim_end_matches(".rs");
        let named = source.names().crates;
        for (foreign, doors) in CLOSED_CRATES {
            let inside = doors
                .iter()
                .any(|door| place == *door || place.starts_with(&format!("{door}/")));
            if !inside && named.contains(*foreign) {
                wrong.insert(format!(
                    "{} names {foreign}, which only {doors:?} may",
                    source.path
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", list(&wrong));
}

#[test]
fn every_folder_has_a_root_file_that_says_what_it_is_for() {
    let sources = sources();
    let mut wrong = BTreeSet::new();
    for source in &sources {
        if source.path.ends_with("/mod.rs") {
            wrong.insert(format!(
                "{}: modules are foo.rs beside foo/, not mod.rs",
                source.path
            ));
        }
        let folder = Path::new(&source.path).parent().unwrap();
        let roots = match folder.to_str().unwrap() {
            "" => vec!["lib.rs".to_owned(), "main.rs".to_owned()],
            folder => vec![format!("{folder}.rs")],
        };
        for root in roots {
            match sources.iter().find(|source| source.path == root) {
                None => drop(wrong.insert(format!("src/{root} is missing"))),
                Some(root) if !root.text.starts_with("//! ") => {
                    wrong.insert(format!(
                        "{} does not begin with //! and its purpose",
                        root.path
                    ));
                }
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", list(&wrong));
}

#[test]
fn no_source_file_is_past_five_hundred_lines() {
    let long: BTreeSet<_> = sources()
        .iter()
        .chain(&tests())
        .chain(&examples())
        .map(|source| (source.text.lines().count(), &source.path))
        .filter(|(lines, _)| *lines > MOST_LINES)
        .map(|(lines, path)| format!("{path} has {lines} lines"))
        .collect();
    assert!(long.is_empty(), "{}", list(&long));
}

#[test]
fn every_test_file_says_what_it_is_for_and_every_folder_of_them_has_a_root() {
    let tests = tests();
    let mut wrong = BTreeSet::new();
    for test in &tests {
        if !test.text.starts_with("//! ") {
            wrong.insert(format!(
                "{} does not begin with //! and its purpose",
                test.path
            ));
        }
        let folder = Path::new(&test.path).parent().unwrap().to_str().unwrap();
        if folder == "tests" {
            wrong.insert(format!("{}: a test is tests/<name>/main.rs", test.path));
        }
        let roots = [".rs", "/main.rs", "/lib.rs"].map(|end| format!("{folder}{end}"));
        if !tests.iter().any(|test| roots.contains(&test.path)) {
            wrong.insert(format!("{folder} has no root file"));
        }
        if test.text.contains(concat!("#[", "path")) {
            wrong.insert(format!("{} names the file of a module", test.path));
        }
    }
    assert!(wrong.is_empty(), "{}", list(&wrong));
}

fn list(findings: &BTreeSet<String>) -> String {
    findings
        .iter()
        .map(|finding| format!("\n  {finding}"))
        .collect()
}
