//! The guide in `docs`: its commands run as they stand there, and its side-by-side page is as short as it
//! claims. Its Rust code is compiled and run with the examples of the library.

use std::path::PathBuf;
use std::process::Command;

use test_support::{client::Client, server::Setup};

mod links;

/// Commands that are shown and not run, each with a reason in the text.
const MARKED: usize = 5;

/// What stands before a block of commands that is not run.
const MARK: &str = "<!-- not run: ";

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// The pages in their order.
fn pages() -> Vec<(String, String)> {
    let summary = std::fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    let names = summary
        .split('(')
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap());
    let pages = names.map(|name| {
        let text = std::fs::read_to_string(docs().join(name)).unwrap();
        (name.to_owned(), text)
    });
    pages.collect()
}

/// The blocks of a language in a page, each with the line before it.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut blocks = vec![];
    let mut before = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let block = lines.by_ref().take_while(|line| *line != "```").collect();
            if kind.split(',').next() == Some(language) {
                blocks.push((before, block));
            }
        }
        before = line;
    }
    blocks
}

#[test]
fn commands_of_the_guide_run_as_they_stand_there() {
    let server = Setup::bundled().env("BACKSTITCH_MEMORY", "true").start();
    let address = server.base_url().strip_prefix("http://").unwrap();
    let program = test_support::programs::bundled();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let mut marked = 0;
    for (name, page) in pages() {
        for (before, block) in blocks(&page, "sh") {
            if before.starts_with(MARK) {
                marked += 1;
                continue;
            }
            let script = block.join("\n").replace("localhost:2024", address);
            let output = Command::new("bash")
                .args(["-euo", "pipefail", "-c", &script])
                .env("PATH", &path)
                .current_dir(server.folder())
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&output.stdout);
            let complaints = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{name}: {script}\n{printed}\n{complaints}"
            );
            assert!(
                !printed.contains("\"detail\""),
                "{name}: {script}\n{printed}"
            );
        }
    }
    assert_eq!(marked, MARKED);
}

#[test]
fn requests_of_the_readme_run_in_their_order_as_they_stand_there() {
    let server = Setup::bundled().env("BACKSTITCH_MEMORY", "true").start();
    let address = server.base_url().strip_prefix("http://").unwrap();
    let client = Client::of(&server);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let mut variables = String::new();
    let mut printed = String::new();
    for (_, block) in blocks(&readme, "sh") {
        let block = block.join("\n");
        if !block.contains("curl") {
            continue;
        }
        let script = with_ids(&block, &client)
            // This one goes on until somebody ends it.
            .replace(
                "curl -N localhost:2024/threads/$T/events",
                "a_while localhost:2024/threads/$T/events",
            )
            .replace("localhost:2024", address);
        let function = "a_while() { curl -N --max-time 2 \"$@\" || test $? = 28; }";
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c"])
            .arg(format!("{function}\n{variables}{script}"))
            .current_dir(server.folder())
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        let complaints = String::from_utf8_lossy(&output.stderr);
        let is_right = output.status.success() && !shown.contains("\"detail\"");
        assert!(is_right, "{script}\n{shown}\n{complaints}");
        printed.push_str(&shown);
        let set = block.lines().filter(|line| line.get(1..2) == Some("="));
        variables.extend(set.flat_map(|line| [line, "\n"]));
    }
    for expected in ["__interrupt__", "Ada", "\"tools\""] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

/// A block with ids of the first thread in place of what stands for them.
fn with_ids(block: &str, client: &Client) -> String {
    if !block.contains("<an id") {
        return block.to_owned();
    }
    let thread = "/threads/0199aaaa-0000-7000-8000-000000000001";
    let history = client.get(&format!("{thread}/history")).json();
    let checkpoint = &history[0]["checkpoint"]["checkpoint_id"];
    let messages = client.get(&format!("{thread}/messages")).json();
    let messages = messages["messages"]
        .as_array()
        .unwrap_or_else(|| panic!("{messages}"));
    let ids: Vec<_> = messages
        .iter()
        .map(|one| one["message_id"].as_str().unwrap())
        .collect();
    let block = block.replace("<an id of the history>", checkpoint.as_str().unwrap());
    // Before a message the conversation is taken back to, and another one is written after the first.
    block
        .replacen("<an id>", ids[2], 1)
        .replacen("<an id>", ids[1], 1)
}

#[test]
fn programs_of_python_on_the_side_by_side_page_do_what_ours_do() {
    let Some(python) = test_support::python::python() else {
        return;
    };
    let server = Setup::bundled().env("BACKSTITCH_MEMORY", "true").start();
    let page = docs().join("from-langgraph.md");
    let shown = python.run("programs.py", &[page.to_str().unwrap(), server.base_url()]);
    assert!(shown.contains("rivers"), "{shown}");
}

/// The programs of the side-by-side page, and the most lines of each.
const PROGRAMS: [(&str, usize); 5] = [
    ("A post with approval", 20),
    ("An agent", 25),
    ("Map and reduce", 30),
    ("Subgraphs", 20),
    ("A test in process", 22),
];

#[test]
fn programs_beside_python_are_as_short_as_the_guide_promises() {
    let page = std::fs::read_to_string(docs().join("from-langgraph.md")).unwrap();
    for (title, most) in PROGRAMS {
        let heading = format!("\n## {title}\n");
        let section = page.split(&heading).nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        assert_eq!(blocks(section, "python").len(), 1, "{title}");
        let rust = blocks(section, "rust").remove(0).1;
        // The others stand in for what calls the program.
        let shown: Vec<_> = rust.iter().filter(|line| !line.starts_with("# ")).collect();
        assert!(shown.len() <= most, "{title}: {} lines", shown.len());
        assert!(shown.iter().all(|line| line.len() <= 100), "{title}");
    }
}

/// rustdoc leaves functions with `#[test]` out of what it compiles, unless another one takes the attribute.
#[test]
fn tests_in_the_guide_are_compiled() {
    for (name, page) in pages() {
        for (_, block) in blocks(&page, "rust") {
            let marks = block.iter().zip(block.iter().skip(1));
            for (line, next) in marks {
                let is_test = line.starts_with("#[tokio::test]") || line.starts_with("#[test]");
                assert!(
                    !is_test || *next == "# async fn hidden() {}",
                    "{name}: {block:?}"
                );
            }
        }
    }
}

/// The library names each page with code, which is how the code is compiled.
#[test]
fn code_of_every_page_is_compiled() {
    let library = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let library = std::fs::read_to_string(library).unwrap();
    for (name, page) in pages() {
        let has_code = !blocks(&page, "rust").is_empty();
        assert!(
            !has_code || library.contains(&format!("docs/{name}")),
            "{name}"
        );
    }
}

#[test]
fn settings_that_the_guide_names_are_there() {
    let help = Command::new(test_support::programs::bundled())
        .arg("--help")
        .output()
        .unwrap();
    let manual = String::from_utf8(help.stdout).unwrap();
    for (name, page) in pages() {
        let words = page.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        for word in words.filter(|word| word.starts_with("BACKSTITCH_")) {
            assert!(manual.contains(word), "{name} names {word}");
        }
    }
}

#[test]
fn every_page_of_the_guide_is_in_its_list() {
    let pages = pages();
    let listed: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
    for file in std::fs::read_dir(docs()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let is_page = name.ends_with(".md") && name != "SUMMARY.md";
        assert!(!is_page || listed.contains(&name.as_str()), "{name}");
    }
}
