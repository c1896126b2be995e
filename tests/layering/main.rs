//! The rooms of the library: who may import whom, and what every source file owes its reader.
//!
//! The table below is the architecture. A new room is entered here, with a height; a room may
//! name rooms of its own height and below. Code under `#[cfg(test)]` may name anything.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Heights of the rooms.
const ROOMS: [(&str, u8); 29] = [
    ("value", 0),
    ("id", 0),
    ("error", 0),
    ("time", 0),
    ("failpoint", 0),
    ("cache", 0),
    ("channel", 1),
    ("state", 1),
    ("message", 1),
    ("checkpoint", 2),
    ("graph", 3),
    ("extract", 3),
    ("task", 3),
    ("engine", 4),
    ("llm", 4),
    ("tree", 5),
    ("stream", 5),
    ("store", 5),
    ("runs", 6),
    ("storage", 7),
    ("http", 7),
    ("config", 8),
    ("telemetry", 8),
    ("server", 8),
    ("local", 8),
    ("cli", 8),
    // Graphs of the bundled server, modules of the binary alone.
    ("demo", 9),
    ("main", 9),
    // The author's door shows things of many rooms and is used by none.
    ("prelude", 9),
];

/// Rooms that only these others may name, whatever their heights.
const CLOSED_ROOMS: [(&str, &[&str]); 1] = [("storage", &["storage", "cli", "server", "local"])];

/// Foreign crates that stay behind one door: (crate, the only paths that may name it).
const CLOSED_CRATES: [(&str, &[&str]); 11] = [
    ("tokio_postgres", &["storage/postgres"]),
    ("deadpool_postgres", &["storage/postgres"]),
    ("rusqlite", &["storage/sqlite"]),
    ("refinery", &["storage"]),
    ("hyper", &["http"]),
    ("hyper_util", &["http"]),
    ("http_body_util", &["http"]),
    ("bincode", &["checkpoint/codec"]),
    ("async_openai", &["llm"]),
    ("clap", &["cli", "config"]),
    ("quick_cache", &["cache"]),
];

/// Files past this are to be divided.
const MOST_LINES: usize = 500;

#[test]
fn no_room_imports_a_room_above_it() {
    let heights = BTreeMap::from(ROOMS);
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
            if !inside && named.contains(foreign) {
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
        let roots = [format!("{folder}.rs"), format!("{folder}/main.rs")];
        if folder != "tests" && !tests.iter().any(|test| roots.contains(&test.path)) {
            wrong.insert(format!("{} is missing", roots[0]));
        }
    }
    assert!(wrong.is_empty(), "{}", list(&wrong));
}

/// The checks above see what they are meant to see.
#[test]
fn names_are_found_in_every_form_and_not_in_comments_strings_or_tests() {
    let text = r#"
        //! crate::commented
        use crate::{a::B, c::{self, D}, e};
        use rusqlite::Connection;
        fn f(x: &crate::g::H) { tracing::info!(n = crate::i::J, "crate::quoted"); super::k::l(); }
        use backstitch::m;
        mod inner { use super::o::P; use super::super::q; }
        #[cfg(test)] mod tests { use crate::tested; use bincode::config; }
        #[cfg(test)] use crate::imported;
        fn g() { ::tokio_postgres::connect() }
    "#;
    let names = Names::read(text, 1);
    let rooms: Vec<_> = names.rooms.iter().map(String::as_str).collect();
    assert_eq!(rooms, ["a", "c", "e", "g", "i", "k", "m", "q"]);
    assert!(names.crates.contains("rusqlite") && names.crates.contains("tokio_postgres"));
    assert!(!names.crates.contains("bincode"));
}

struct Source {
    /// Under `src/`; of a test from `tests/` on.
    path: String,
    text: String,
}

impl Source {
    /// The first part of its module path; none for `lib.rs`, which names every room.
    fn room(&self) -> Option<&str> {
        let room = self.path.split('/').next().unwrap().trim_end_matches(".rs");
        (room != "lib").then_some(room)
    }

    fn names(&self) -> Names {
        let depth = match self.path.as_str() {
            "lib.rs" | "main.rs" => 0,
            path => path.split('/').count(),
        };
        Names::read(&self.text, depth)
    }
}

/// The files of Rust below a folder of the package but in `but`, with paths from `from` on.
fn files(folder: &str, but: &str, from: &str) -> Vec<Source> {
    fn visit(folder: &Path, but: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path != but {
                visit(&path, but, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    visit(&root.join(folder), &root.join(but), &mut paths);
    paths.sort();
    let from = root.join(from);
    let source = |path: &PathBuf| Source {
        path: path.strip_prefix(&from).unwrap().display().to_string(),
        text: fs::read_to_string(path).unwrap(),
    };
    paths.iter().map(source).collect()
}

/// Every test but the programs that must not compile.
fn tests() -> Vec<Source> {
    files("tests", "tests/ui", "")
}

/// Every source of the library but the derive crate and the files that only tests compile.
fn sources() -> Vec<Source> {
    let sources = files("src", "src/derive", "src");
    let of_tests: Vec<String> = sources
        .iter()
        .flat_map(|source| {
            let folder = match source.path.as_str() {
                "lib.rs" | "main.rs" => String::new(),
                path => format!("{}/", path.trim_end_matches(".rs")),
            };
            source
                .names()
                .test_modules
                .into_iter()
                .map(move |module| format!("{folder}{module}"))
        })
        .collect();
    let compiled = |path: &str| {
        let place = path.trim_end_matches(".rs");
        !of_tests
            .iter()
            .any(|test| place == test || place.starts_with(&format!("{test}/")))
    };
    sources
        .into_iter()
        .filter(|source| compiled(&source.path))
        .collect()
}

/// What a file names outside its tests.
#[derive(Default)]
struct Names {
    /// First parts of paths from this crate's root.
    rooms: BTreeSet<String>,
    /// First parts of paths, and what is named alone in a `use`.
    crates: BTreeSet<String>,
    /// Modules declared for tests only, in files of their own.
    test_modules: BTreeSet<String>,
}

impl Names {
    /// Reads a file whose module lies `depth` below the crate's root.
    fn read(text: &str, depth: usize) -> Self {
        let tokens: TokenStream = text.parse().unwrap();
        let mut names = Self::default();
        names.walk(tokens, depth);
        names
    }

    fn walk(&mut self, tokens: TokenStream, depth: usize) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_attribute(&tokens[at..]) {
                at = self.skip_item(&tokens, at + 2);
                continue;
            }
            match &tokens[at] {
                TokenTree::Group(group) => {
                    self.walk(group.stream(), depth + in_module(&tokens[..at]))
                }
                TokenTree::Ident(ident) if !follows_path(&tokens[..at]) => {
                    self.path(&ident.to_string(), &tokens[at + 1..], depth);
                    let used = matches!(tokens[..at].last(), Some(TokenTree::Ident(word)) if word == "use");
                    if used || is_path(&tokens[at + 1..]) {
                        self.crates.insert(ident.to_string());
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Records the room that a path names, if it begins at the crate's root.
    fn path(&mut self, first: &str, rest: &[TokenTree], depth: usize) {
        let (mut first, mut rest, mut ups) = (first.to_owned(), rest, 0);
        while first == "super" && is_path(rest) {
            ups += 1;
            match rest.get(2) {
                Some(TokenTree::Ident(next)) if next == "super" => {
                    first = next.to_string();
                    rest = &rest[3..];
                }
                _ => break,
            }
        }
        let from_root = first == "crate" || first == "backstitch" || (ups > 0 && ups == depth);
        if !from_root || !is_path(rest) {
            return;
        }
        match rest.get(2) {
            Some(TokenTree::Ident(room)) => drop(self.rooms.insert(room.to_string())),
            Some(TokenTree::Group(group)) => {
                let mut at_start = true;
                for token in group.stream() {
                    match token {
                        TokenTree::Ident(room) if at_start => {
                            self.rooms.insert(room.to_string());
                            at_start = false;
                        }
                        TokenTree::Punct(punct) if punct.as_char() == ',' => at_start = true,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// The place after the item at `at`, which only tests compile.
    fn skip_item(&mut self, tokens: &[TokenTree], mut at: usize) -> usize {
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Ident(word) if word == "mod" => {
                    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(_))) =
                        (tokens.get(at), tokens.get(at + 1))
                    {
                        self.test_modules.insert(name.to_string());
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => break,
                // A braced list of a `use` is followed by its semicolon.
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let more = matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ';');
                    return at + usize::from(more);
                }
                _ => {}
            }
        }
        at
    }
}

/// `#[cfg(test)]`, also with `all(..)` around it.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = tokens else {
        return false;
    };
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    hash.as_char() == '#' && (text == "cfg(test)" || text.starts_with("cfg(all(test,"))
}

/// 1 if these tokens end with `mod name`, whose body comes next.
fn in_module(before: &[TokenTree]) -> usize {
    match before {
        [.., TokenTree::Ident(word), TokenTree::Ident(_)] if word == "mod" => 1,
        _ => 0,
    }
}

fn is_path(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(a), TokenTree::Punct(b), ..] if a.as_char() == ':' && b.as_char() == ':')
}

/// True in the middle of a path: `x::` or `>::` comes before, not `::` alone.
fn follows_path(before: &[TokenTree]) -> bool {
    let [rest @ .., TokenTree::Punct(a), TokenTree::Punct(b)] = before else {
        return false;
    };
    a.as_char() == ':'
        && b.as_char() == ':'
        && match rest.last() {
            Some(TokenTree::Ident(word)) => word != "use",
            Some(TokenTree::Punct(punct)) => punct.as_char() == '>',
            _ => false,
        }
}

fn list(findings: &BTreeSet<String>) -> String {
    findings
        .iter()
        .map(|finding| format!("\n  {finding}"))
        .collect()
}
