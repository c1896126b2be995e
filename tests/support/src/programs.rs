//! Where the programs are that Cargo built beside the tests.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of the repository.
pub fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("it is tests/support")
}

/// The bundled server. Cargo builds it for every integration test.
pub fn bundled() -> PathBuf {
    built("backstitch", "--bin backstitch")
}

/// The program of `examples/<name>.rs`. `cargo test` and `cargo nextest run` build it, unless
/// they were told to build one test alone.
pub fn example(name: &str) -> PathBuf {
    built(&format!("examples/{name}"), &format!("--example {name}"))
}

/// A folder that outlives the tests and goes with everything else that was built.
pub fn scratch() -> PathBuf {
    let profile = profile();
    profile
        .parent()
        .expect("a profile has a parent")
        .join("tmp")
}

/// The folder of what is installed once for all tests, which is locked: every test is a process of
/// its own, so the first installs it and the others wait.
pub(crate) fn home(name: &str) -> Result<(PathBuf, File), String> {
    let home = scratch().join(name);
    fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    let lock = File::create(home.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    Ok((home, lock))
}

/// Changes whenever a migration of a storage does, so that no template outlives its schema.
pub(crate) fn schema(storage: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let folder = repository().join("sql").join(storage);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    files.sort();
    for file in files {
        file.file_name().hash(&mut hasher);
        fs::read(&file).unwrap().hash(&mut hasher);
    }
    hasher.finish()
}

fn built(name: &str, target: &str) -> PathBuf {
    let program = profile().join(name);
    assert!(
        program.exists(),
        "{program:?} is missing: cargo build {target}"
    );
    program
}

/// The folder of this profile, `target/debug`: the tests are in `deps` below it.
fn profile() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let profile = test.ancestors().nth(2);
    profile.expect("a test lies in `deps`").to_owned()
}

/// What a test of the official clients needs. Where it cannot be had the reason is printed and the
/// caller ends its test; under `CI=true` that is a failure of the test instead.
pub(crate) fn required<T>(what: &str, prepared: Result<T, String>) -> Option<T> {
    match prepared {
        Ok(prepared) => Some(prepared),
        Err(reason) if std::env::var("CI").is_ok_and(|ci| ci == "true") => {
            panic!("no {what} for the official clients: {reason}")
        }
        Err(reason) => {
            eprintln!("NOT TESTED: no {what} for the official clients: {reason}");
            None
        }
    }
}

/// Runs a command; what it wrote if it fails.
pub(crate) fn step(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let (out, err) = texts(&output);
    if output.status.success() {
        return Ok(out);
    }
    Err(format!(
        "{command:?} ended with {}\n{out}{err}",
        output.status
    ))
}

/// Runs a script to its end and fails the test, with its output, if the script fails.
pub(crate) fn succeed(name: &str, command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) = texts(&output);
    let status = output.status;
    assert!(status.success(), "{name} ended with {status}\n{out}\n{err}");
    out
}

fn texts(output: &Output) -> (String, String) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}
