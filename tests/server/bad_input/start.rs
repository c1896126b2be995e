//! Starts that are refused, and a disk that is full.

use super::*;

fn refuses(setup: Setup, code: i32, words: &[&str]) {
    let (status, text): (ExitStatus, String) = setup.refused();
    assert_eq!(status.code(), Some(code), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: "), "{text}");
    for word in words {
        assert!(last.contains(word), "`{word}` is not in: {last}");
    }
}

#[test]
fn a_data_folder_that_cannot_be_made_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "text").unwrap();
    let below = file.join("data").display().to_string();
    let setup = Setup::bundled().env("BACKSTITCH_DATA", &below);
    refuses(setup, 1, &[&below]);
}

#[test]
fn a_second_process_on_the_same_data_is_refused() {
    let place = Place::sqlite();
    let scene = Scene::new(&place);
    let data = scene._server.folder().join("data").display().to_string();
    let setup = Setup::bundled().env("BACKSTITCH_DATA", &data);
    refuses(setup, 1, &[&data, "another process"]);
    scene.unharmed();
}

#[test]
fn a_database_that_cannot_be_reached_is_refused_without_its_password() {
    let url = "postgres://somebody:hunter2@127.0.0.1:1/nowhere";
    let setup = Setup::bundled().env("DATABASE_URL", url);
    refuses(setup.clone(), 1, &["127.0.0.1", "1"]);
    let (_, text) = setup.refused();
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_port_that_is_taken_is_refused_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refuses(Setup::bundled().env("PORT", &port), 1, &[&port, "--port"]);
}

#[test]
fn settings_that_make_no_sense_are_refused_with_their_name() {
    refuses(Setup::bundled().env("PORT", "many"), 2, &["port", "many"]);
    let setup = Setup::bundled().env("DATABASE_URL", "mysql://x");
    refuses(setup, 2, &["database_url", "postgres://"]);
}

#[test]
fn what_needs_no_settings_is_done_beside_a_file_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backstitch.toml");
    std::fs::write(&file, "port = [").unwrap();
    let setup = Setup::bundled().env("BACKSTITCH_CONFIG", file.display().to_string());
    refuses(setup.clone(), 2, &["backstitch.toml"]);
    let project = folder.path().join("agents").display().to_string();
    for arguments in [&["version"][..], &["new", &project]] {
        let setup = arguments
            .iter()
            .fold(setup.clone(), |setup, one| setup.arg(*one));
        let (status, text) = setup.refused();
        assert!(status.success(), "{arguments:?}: {text}");
    }
    assert!(folder.path().join("agents/Cargo.toml").exists());
}

#[test]
fn an_administrator_without_a_key_is_told_of() {
    let keys = |setup: Setup| setup.env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = keys(Setup::bundled().env("BACKSTITCH_ADMINS", "ann,bop")).start();
    let told = server.output();
    let warned: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("BACKSTITCH_ADMINS"))
        .collect();
    assert!(matches!(*warned, [one] if one.contains("bop")), "{told}");
}

#[test]
fn a_full_disk_at_start_is_refused_and_later_fails_only_what_writes() {
    let Some(disk) = Disk::mount(1 << 20) else {
        eprintln!("NOT TESTED: a full disk, because no file system can be mounted here");
        return;
    };
    disk.fill(0);
    let data = disk.0.path().join("data").display().to_string();
    let setup = Setup::example("faulty_server").env("BACKSTITCH_DATA", &data);
    refuses(setup.clone(), 1, &[]);

    disk.empty();
    let server = setup.start();
    let client = Client::of(&server);
    let thread = client.thread();
    client.run(&thread, &good());
    let before = client.state(&thread);
    disk.fill(0);
    // The file may have room for a few rows yet.
    let failed = (0..200).any(|_| {
        let input = json!({"how": "x".repeat(10_000)});
        let body = json!({"assistant_id": "fault", "input": input});
        let answer = client.post(&format!("/threads/{}/runs/wait", thread), &body);
        answer.status >= 500 || answer.json().get("__error__").is_some()
    });
    assert!(failed, "a full disk was never noticed");
    assert_eq!(client.get("/ok").status, 200);
    let full = client.state(&thread)["values"]["done"]
        .as_array()
        .unwrap()
        .len();
    assert!(full >= before["values"]["done"].as_array().unwrap().len());
    disk.empty();
    assert!(
        client.run(&thread, &good())["done"]
            .as_array()
            .unwrap()
            .len()
            > full
    );
}

/// A small file system of its own.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(bytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(folder.path())
            .output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(Self(folder))
    }

    fn ballast(&self) -> std::path::PathBuf {
        Path::join(self.0.path(), "ballast")
    }

    /// Takes all room but `left` bytes.
    fn fill(&self, left: u64) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.ballast()).unwrap();
        let block = [0; 4096];
        while file.write_all(&block).is_ok() {}
        let size = file.metadata().unwrap().len();
        file.set_len(size.saturating_sub(left)).unwrap();
    }

    fn empty(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status()
            .ok();
    }
}
