//! What commands say where they cannot work: no server, another key, what is not there, a closed pipe.

use super::chat::free_port;
use super::*;

/// What a command says on stderr that fails.
fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{command:?}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn without_a_server_a_command_names_the_address_and_what_would_do() {
    let url = format!("http://127.0.0.1:{}", free_port());
    for words in [
        &["threads"][..],
        &["tree", THREAD],
        &["chat"],
        &["graph", "chat"],
    ] {
        let refusal = refused(command(words).args(["--url", &url]));
        for expected in ["error: no server at ", &url, "--url"] {
            assert!(
                refusal.contains(expected),
                "{expected} is not in: {refusal}"
            );
        }
    }
    for (words, expected) in [
        (
            &["threads", "--url", "ftp://x"][..],
            "is no address of a server",
        ),
        (
            &["threads", "--url", "nonsense"],
            "is no address of a server",
        ),
    ] {
        let refusal = refused(&mut command(words));
        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[test]
fn a_key_comes_from_the_environment_and_another_one_is_refused() {
    let setup = Setup::bundled().env("BACKSTITCH_API_KEYS", "ann=key-a");
    let server = setup.start();
    let with = |key: &str| {
        let mut command = at(&server, &["threads"]);
        command.env("BACKSTITCH_API_KEY", key);
        command
    };
    assert!(shown(&mut with("key-a")).contains("no threads yet"));
    for key in ["", "key-b"] {
        let refusal = refused(&mut with(key));
        assert!(refusal.contains("set BACKSTITCH_API_KEY"), "{refusal}");
        assert!(!refusal.contains("key-b"), "{refusal}");
    }
    assert!(refused(&mut with("a\nb")).contains("characters"));
}

#[test]
fn what_is_not_there_is_named() {
    let (server, client) = bundled();
    client.post("/threads", &json!({"thread_id": THREAD}));
    let unknown = "0199aaaa-0000-7000-8000-000000000009";
    for (words, expected) in [
        (&["tree", unknown][..], unknown),
        (&["tree", "../assistants"], "Invalid thread ID"),
        (&["state", unknown], unknown),
        (&["tail", unknown], unknown),
        (&["state", THREAD, "--checkpoint", unknown], unknown),
        (&["diff", THREAD, "main", "nope"], "`nope` is neither"),
        (&["diff", THREAD, "1", "2"], "`1` is neither"),
        (&["diff", THREAD, "tag:a", "tag:b"], "404"),
        (&["graph", "nope"], "chat, research"),
        (&["chat", "nope"], "it has chat, research"),
        (&["chat", "chat", "--thread", unknown], unknown),
    ] {
        let refusal = refused(&mut at(&server, words));
        assert!(refusal.contains(expected), "{words:?}: {refusal}");
    }
}

#[test]
fn a_reader_who_has_enough_is_no_failure() {
    let (server, client) = bundled();
    for _ in 0..3 {
        client.thread();
    }
    for words in [
        &["threads"][..],
        &["graph", "chat", "--mermaid"],
        &["threads", "--json"],
    ] {
        let mut command = at(&server, words);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{}",
            text(&output.stderr)
        );
    }
}
