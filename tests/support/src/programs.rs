//! Where the programs are that Cargo built beside the tests.

use std::path::{Path, PathBuf};

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
