//! How many crates a program compiles that runs graphs by itself.

use std::{collections::BTreeSet, process::Command};

/// The most crates of the library with one storage and no server, with itself and its macros.
const MOST: usize = 105;

#[test]
fn a_program_without_a_server_compiles_few_crates() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let tree = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
        ])
        .args([
            "--package",
            "backstitch",
            "--no-default-features",
            "--features",
            "sqlite",
        ])
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{problem}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let crates: BTreeSet<_> = tree
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert!(crates.len() > 20, "{crates:?}");
    assert!(crates.len() <= MOST, "{}: {crates:#?}", crates.len());
}
