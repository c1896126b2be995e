//! The sources that the checks read, and which of them only tests compile.

use std::fs;
use std::path::{Path, PathBuf};

use super::names::Names;

pub struct Source {
    /// Under `src/`; of a test from `tests/` on.
    pub path: String,
    pub text: String,
}

impl Source {
    /// The first part of its module path; none for `lib.rs`, which names every room.
    pub fn room(&self) -> Option<&str> {
        let room = self.path.split('/').next().unwrap().trim_end_matches(".rs");
        (room != "lib").then_some(room)
    }

    pub fn names(&self) -> Names {
        let depth = match self.path.as_str() {
            "lib.rs" | "main.rs" => 0,
            path => path.split('/').count(),
        };
        Names::read(&self.text, depth)
    }
}

/// The files of Rust below a folder of the package but in `but`, with paths from `from` on.
pub fn files(folder: &str, but: &str, from: &str) -> Vec<Source> {
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
pub fn tests() -> Vec<Source> {
    files("tests", "tests/ui", "")
}

/// Every file of the examples.
pub fn examples() -> Vec<Source> {
    files("examples", "", "")
}

/// Every source of the library but the derive crate and the files that only tests compile.
pub fn sources() -> Vec<Source> {
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
