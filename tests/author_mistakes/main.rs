//! Programs of graph authors: the project that `new` writes, and the mistakes they make most, with what the
//! compiler, `build` and a run say about them.
//! After a deliberate change: `OVERWRITE=1 cargo test --test author_mistakes`.
//!
//! The programs are compiled against the library that Cargo built for this very test. `trybuild`
//! would build the library and all that it stands on once more, which takes as long as all other
//! tests together.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is the failure of the test"
)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use serde_json::{Deserializer, Value};

mod dockerfile;
mod new_project;
mod runs;

#[test]
fn common_mistakes_get_helpful_compile_errors() {
    let library = library("backstitch");
    let overwrite = env::var_os("OVERWRITE").is_some();
    let mut wrong = String::new();
    let programs = programs();
    assert_eq!(programs.len(), 21);
    for program in programs {
        let found = complaints(&program, &library);
        let frozen = program.with_extension("stderr");
        if overwrite {
            fs::write(&frozen, found).unwrap();
            continue;
        }
        let expected = fs::read_to_string(&frozen).unwrap();
        if without_margin(&found) != without_margin(&expected) {
            wrong.push_str(&format!(
                "{}\n--- expected\n{expected}--- found\n{found}",
                program.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn programs() -> Vec<PathBuf> {
    let entries = fs::read_dir("tests/ui").unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.sort();
    paths
}

/// A library as the build of this test made it.
fn library(name: &str) -> PathBuf {
    static BUILT: LazyLock<Vec<Value>> = LazyLock::new(built);
    let mut libraries = BUILT.iter().filter_map(|message| {
        let target = &message["target"];
        let this = target["name"] == name && target["kind"][0] == "lib";
        let files = message["filenames"].as_array().filter(|_| this)?.iter();
        let mut files = files.filter_map(Value::as_str);
        files
            .find(|file| file.ends_with(".rlib"))
            .map(PathBuf::from)
    });
    libraries.next().unwrap()
}

/// What Cargo says of the build of this test: it finds everything fresh and names its files.
fn built() -> Vec<Value> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "test",
            "--no-run",
            "--workspace",
            "--test",
            "author_mistakes",
        ])
        .args(["--message-format", "json", "--target-dir"])
        .arg(target);
    if cfg!(feature = "internals") {
        cargo.arg("--all-features");
    }
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // Set for tests; build scripts that watch them would run again.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    let output = cargo.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let messages = Deserializer::from_slice(&output.stdout).into_iter();
    messages.map(Result::unwrap).collect()
}

/// What the compiler says against a program, but how many errors there are, and where in the files
/// of the library and among how many others it found something.
fn complaints(program: &Path, library: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "bin",
            "-A",
            "dead_code",
        ])
        .args(["--emit", "metadata", "--diagnostic-width", "140"])
        .arg("--out-dir")
        .arg(folder.path())
        .arg("-L")
        .arg(format!(
            "dependency={}",
            library.parent().unwrap().display()
        ))
        .arg("--extern")
        .arg(format!("backstitch={}", library.display()))
        .arg(program)
        .output()
        .unwrap();
    assert!(!output.status.success(), "{program:?} compiles");
    let mut in_library = false;
    let mut lines = Vec::new();
    for line in String::from_utf8(output.stderr).unwrap().lines() {
        if line.starts_with("error: aborting due to") {
            break;
        }
        let (margin, text) = margin(line);
        lines.push(if let Some(position) = text.strip_prefix("--> ") {
            in_library = position.starts_with("src/");
            match position.split_once(':') {
                Some((file, _)) if in_library => format!("{margin}--> {file}"),
                _ => line.to_owned(),
            }
        } else if in_library && text.starts_with('|') {
            format!("{}{text}", " ".repeat(margin.len()))
        } else if text.starts_with("and ") && text.ends_with(" others") {
            format!("{margin}and $N others")
        } else {
            line.to_owned()
        });
    }
    format!("{}\n", lines.join("\n").trim_end())
}

/// A line without its margin, which is as wide as the largest number of a line in the message.
fn without_margin(text: &str) -> Vec<String> {
    let line = |line| {
        let (margin, text) = margin(line);
        format!("{} {text}", margin.trim())
    };
    text.lines().map(line).collect()
}

/// The number of a line, with blanks around it, and what follows.
fn margin(line: &str) -> (&str, &str) {
    let number = |found: char| found.is_ascii_digit() || found == ' ';
    let end = line.find(|found| !number(found)).unwrap_or(line.len());
    line.split_at(end)
}
