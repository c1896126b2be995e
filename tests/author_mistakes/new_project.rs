//! What `backstitch new` writes: it compiles with nothing but this library and tokio, its test passes, and its
//! server does what its Dockerfile and its README say.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use test_support::{client::Client, programs, server::Setup};

use super::{dockerfile, library};

fn new(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(programs::bundled());
    let command = command.arg("new").args(words).current_dir(folder);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compiles the project against the libraries that Cargo built for this test, which are those that its
/// Cargo.toml names.
fn compile(project: &Path, options: &[&str], program: &Path) {
    let dependencies = library("backstitch");
    let folder = dependencies.parent().unwrap().display();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc
        .args(["--edition", "2024", "--crate-name", "harbour_agent"])
        .args(["--deny", "warnings", "-L", &format!("dependency={folder}")])
        .args(options)
        .env("CARGO_PKG_NAME", "harbour-agent")
        .env("CARGO_PKG_VERSION", "0.1.0")
        .current_dir(project);
    for name in ["backstitch", "tokio"] {
        let library = library(name);
        rustc
            .arg("--extern")
            .arg(format!("{name}={}", library.display()));
    }
    rustc.arg("-o").arg(program).arg("src/main.rs");
    let output = rustc.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_new_project_compiles_passes_its_test_and_serves_with_keys() {
    let folder = tempfile::tempdir().unwrap();
    let made = new(folder.path(), &["harbour-agent"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stdout).contains("cd harbour-agent\n  cargo test"));
    let project = folder.path().join("harbour-agent");
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let dependencies = manifest["dependencies"].as_table().unwrap();
    let names: Vec<_> = dependencies.keys().map(String::as_str).collect();
    assert_eq!(names, ["backstitch", "tokio"]);
    let checkout = dependencies["backstitch"]["path"].as_str().unwrap();
    assert!(
        Path::new(checkout).join("src/lib.rs").is_file(),
        "{checkout}"
    );

    // Cargo itself reads the manifest, outside of any workspace, and takes the versions of the checkout.
    let mut cargo = Command::new(env!("CARGO"));
    let tree = cargo.args([
        "tree",
        "--offline",
        "--all-features",
        "--depth",
        "1",
        "--prefix",
        "none",
    ]);
    let tree = tree.current_dir(&project).output().unwrap();
    let complaint = text(&tree.stderr);
    assert!(tree.status.success(), "{complaint}");
    assert!(!complaint.contains("warning"), "{complaint}");
    let tree = text(&tree.stdout);
    assert!(
        tree.contains("\nbackstitch v") && tree.contains("\ntokio v"),
        "{tree}"
    );
    fs::create_dir(project.join("target")).unwrap();

    let (tests, server) = (folder.path().join("tests"), folder.path().join("server"));
    compile(&project, &["--test"], &tests);
    let tested = Command::new(&tests).output().unwrap();
    let report = text(&tested.stdout);
    assert!(
        tested.status.success() && report.contains("2 passed"),
        "{report}"
    );

    let image = folder.path().join("image");
    let built = dockerfile::build(&project, &image, |folder, program| {
        // What `cargo build --release` does, against the libraries of this test.
        assert!(!folder.join("target").exists(), "nothing was copied of it");
        compile(folder, &[], program);
    });
    fs::copy(&built.program, &server).unwrap();
    let version = Command::new(&server).arg("--version").output().unwrap();
    assert_eq!(text(&version.stdout), "harbour-agent 0.1.0\n");
    let mut setup = Setup::program(&server);
    for (name, value) in built.settings {
        // A free port, and a folder of the test.
        if !matches!(&*name, "PORT" | "BACKSTITCH_DATA") {
            setup = setup.env(&name, value);
        }
    }
    let (_, complaint) = setup.clone().refused();
    assert!(complaint.contains("set BACKSTITCH_API_KEYS"), "{complaint}");
    let server = setup.env("BACKSTITCH_API_KEYS", "me=secret").start();
    let url = server.base_url().replace("0.0.0.0", "127.0.0.1");
    let chat = format!(
        "echo Hello | {} chat --url {url}",
        programs::bundled().display()
    );
    let mut chatted = Command::new("sh");
    chatted
        .args(["-c", &chat])
        .env("BACKSTITCH_API_KEY", "secret");
    let chatted = text(&chatted.output().unwrap().stdout);
    assert!(chatted.contains("You said: Hello"), "{chatted}");
    assert_eq!(Client::of(&server).get("/info").status, 401);
}

#[test]
fn tools_and_states_compile_with_nothing_but_the_library() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    let program = r##"
        /// Books a table.
        #[backstitch::prelude::tool]
        async fn book(people: u32, #[doc = "When."] at: Option<String>) -> backstitch::Result<String> {
            Ok(format!("{people} at {at:?}"))
        }

        /// A stay.
        #[backstitch::prelude::data]
        struct Stay {
            nights: u32,
        }

        #[backstitch::prelude::tool]
        async fn stay(stay: Stay) -> u32 {
            stay.nights
        }

        fn main() {
            let (book, stay) = (book(), stay());
            println!("{} {}", book.description(), book.parameters()["required"]);
            println!("{}", stay.parameters()["required"]);
        }
    "##;
    fs::write(folder.path().join("src/main.rs"), program).unwrap();
    let binary = folder.path().join("program");
    compile(folder.path(), &[], &binary);
    let shown = text(&Command::new(&binary).output().unwrap().stdout);
    assert_eq!(shown, "Books a table. [\"people\"]\n[\"stay\"]\n");
}

#[test]
fn a_repository_of_the_library_takes_the_place_of_the_checkout() {
    let folder = tempfile::tempdir().unwrap();
    let url = "https://git.example/\"back\"stitch";
    assert!(
        new(folder.path(), &["agent", "--git", url])
            .status
            .success()
    );
    let project = folder.path().join("agent");
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    assert_eq!(
        manifest["dependencies"]["backstitch"]["git"].as_str(),
        Some(url)
    );
    for file in [
        "Cargo.toml",
        "Dockerfile",
        "README.md",
        "src/main.rs",
        "src/graph.rs",
    ] {
        let text = fs::read_to_string(project.join(file)).unwrap();
        for word in ["name", "dependency", "checkout", "build"] {
            assert!(
                !text.contains(&format!("{{{word}}}")),
                "{word} in {file}:\n{text}"
            );
        }
    }
}

#[test]
fn what_cannot_be_a_project_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("taken")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (name, expected) in [
        ("taken", "exists already"),
        ("file", "exists already"),
        ("file/agent", "cannot write the project"),
        ("missing/agent", "cannot write the project"),
        // Not even the administrator may write there.
        ("/proc/agent", "cannot write the project"),
        ("9lives", "begin with a letter"),
        ("my agent", "begin with a letter"),
        ("Ärger", "begin with a letter"),
        ("fn", "is a word of Rust or Cargo"),
        ("test", "is a word of Rust or Cargo"),
        ("..", "has no name at its end"),
    ] {
        let refused = new(folder.path(), &[name]);
        let reason = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{name}: {reason}");
        assert!(reason.contains(expected), "{name}: {reason}");
    }
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["file", "taken"]);
}
