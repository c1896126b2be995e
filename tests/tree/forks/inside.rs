//! States of graphs inside on forks, branches and copies: what each sees of edits and answers of the others.

use std::{
    fs::{self, File},
    process::Command,
};

use test_support::{on_both_storages, server::Setup, talk::background};

use super::{
    questions::{answered, asked_once, copy_of, turn},
    *,
};

on_both_storages!(
    an_edit_inside_belongs_to_the_thread_on_which_it_was_made,
    an_edit_inside_is_on_forks_of_forks_and_their_copies,
    what_a_fork_answered_does_not_show_in_its_original,
    an_edit_of_an_older_state_inside_counts,
    a_copy_of_the_newest_checkpoint_keeps_what_graphs_inside_have,
    what_ended_of_a_cancelled_superstep_is_not_run_again_on_forks_and_branches,
);

/// Adds a word to what the graph inside has, as one of its nodes.
fn edit(client: &Client, thread: &str, word: &str, more: Value) -> Value {
    let values = json!({"values": {"own": [word]}, "as_node": "keep"});
    let inside = json!({"checkpoint": {"checkpoint_ns": "child"}});
    let body = extend(extend(values, inside), more);
    let edited = ok(client.post(&format!("/threads/{thread}/state"), &body), 200);
    assert_eq!(edited["checkpoint"]["checkpoint_ns"], "child");
    edited["checkpoint"].clone()
}

/// The state of the graph inside as it is now.
fn inside(client: &Client, thread: &str) -> Value {
    let path = format!("/threads/{thread}/state/checkpoint");
    let body = json!({"checkpoint": {"checkpoint_ns": "child"}});
    ok(client.post(&path, &body), 200)
}

/// What the graph inside keeps after one more turn.
fn kept(client: &Client, thread: &str, more: &Value) -> Value {
    turn(client, thread, more);
    answered(client, thread, "A", &json!({}))
}

/// That with these edits before the turn.
fn with_edits(edits: &[&str]) -> Value {
    json!([&["first", "A0"], edits, &["first", "A"]].concat())
}

/// What a graph inside keeps was stored before the checkpoint at which the forks are made.
fn an_edit_inside_belongs_to_the_thread_on_which_it_was_made(place: &Place) {
    let (_server, client, thread) = asked_once(place);
    let head = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
    let early = id_of(&fork(&client, &thread, &json!({})));
    edit(&client, &early, "fork", json!({}));
    edit(&client, &thread, "original", json!({}));
    let late = id_of(&fork(&client, &thread, &json!({})));
    let copy = copy_of(&client, &late);
    edit(&client, &late, "late fork", json!({}));
    for (thread, more, edits) in [
        (&early, json!({}), &["fork"][..]),
        (&late, json!({}), &["original", "late fork"]),
        (&copy, json!({}), &["original"]),
        (&thread, json!({}), &["original"]),
        (&thread, json!({"checkpoint_id": head}), &["original"]),
    ] {
        assert_eq!(kept(&client, thread, &more), with_edits(edits));
    }
    // Those that begin where the original was then, which has gone on.
    let then = id_of(&fork(&client, &thread, &json!({"checkpoint_id": head})));
    assert_eq!(kept(&client, &then, &json!({})), with_edits(&["original"]));
}

fn an_edit_inside_is_on_forks_of_forks_and_their_copies(place: &Place) {
    let (_server, client, root) = asked_once(place);
    let fork_of = |thread: &str| id_of(&fork(&client, thread, &json!({})));
    edit(&client, &root, "root", json!({}));
    let first = fork_of(&root);
    let second = fork_of(&first);
    edit(&client, &first, "first", json!({}));
    let third = fork_of(&first);
    let fourth = fork_of(&third);
    let branch = json!({"name": "other", "activate": true});
    ok(
        client.post(&format!("/threads/{fourth}/branches"), &branch),
        201,
    );
    let copies = [copy_of(&client, &second), copy_of(&client, &fourth)];
    for (thread, edits) in [
        (&second, &["root"][..]),
        (&fourth, &["root", "first"]),
        (&copies[0], &["root"]),
        (&copies[1], &["root", "first"]),
        (&third, &["root", "first"]),
        (&root, &["root"]),
    ] {
        assert_eq!(kept(&client, thread, &json!({})), with_edits(edits));
    }
    let main = json!({"branch": "main"});
    assert_eq!(
        kept(&client, &copies[1], &main),
        with_edits(&["root", "first"])
    );
}

/// Neither to those who read it nor to those who go on from there.
fn what_a_fork_answered_does_not_show_in_its_original(place: &Place) {
    let (_server, client, thread) = asked_once(place);
    turn(&client, &thread, &json!({}));
    edit(&client, &thread, "edit", json!({"as_node": "begin"}));
    let forked = id_of(&fork(&client, &thread, &json!({})));
    let mine = json!(["first", "A0", "first", "edit"]);
    let theirs = json!(["first", "A0", "first", "edit", "FORK"]);
    assert_eq!(answered(&client, &forked, "FORK", &json!({})), theirs);
    let state = inside(&client, &thread);
    assert_eq!(state["values"]["own"], mine);
    assert_eq!(state["next"], json!(["ask"]));
    let whole = ok(
        client.get(&format!("/threads/{thread}/state?subgraphs=true")),
        200,
    );
    assert_eq!(whole["tasks"][0]["state"]["values"]["own"], mine);
    let end = json!({"values": null, "as_node": "__end__"});
    edit(&client, &thread, "", end);
    assert_eq!(inside(&client, &thread)["values"]["own"], mine);
}

fn an_edit_of_an_older_state_inside_counts(place: &Place) {
    let (_server, client, thread) = asked_once(place);
    let before = inside(&client, &thread)["checkpoint"].clone();
    edit(&client, &thread, "first edit", json!({}));
    edit(
        &client,
        &thread,
        "second edit",
        json!({"checkpoint": before}),
    );
    let own = inside(&client, &thread)["values"]["own"].clone();
    assert_eq!(own, json!(["first", "A0", "second edit"]));
    assert_eq!(
        kept(&client, &thread, &json!({})),
        with_edits(&["second edit"])
    );
}

fn a_copy_of_the_newest_checkpoint_keeps_what_graphs_inside_have(place: &Place) {
    let (_server, client, thread) = asked_once(place);
    edit(&client, &thread, "edit", json!({}));
    let body = json!({"values": null, "as_node": "__copy__"});
    ok(client.post(&format!("/threads/{thread}/state"), &body), 200);
    let own = inside(&client, &thread)["values"]["own"].clone();
    assert_eq!(own, json!(["first", "A0", "edit"]));
    assert_eq!(kept(&client, &thread, &json!({})), with_edits(&["edit"]));
}

/// One of two guests of a graph inside has been counted when the run is cancelled: the pipe into which both write stops the
/// other one. Forks and branches count what the original does.
fn what_ended_of_a_cancelled_superstep_is_not_run_again_on_forks_and_branches(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    // The folder stays, for the guests go on writing there.
    let (thread, _folder) = loop {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        let input = json!({"assistant_id": "inn", "input": {"trace": trace}});
        let made = Command::new("mkfifo").arg(&trace).status().unwrap();
        assert!(made.success());
        let thread = client.thread();
        let run = background(&client, &thread, &input);
        // Whoever writes opens it anew, so that a reading ends; it may go on with what the next one writes.
        let mut lines = String::new();
        while lines.lines().count() < 2 {
            lines += &fs::read_to_string(&trace).unwrap();
        }
        let cancel = format!("/threads/{thread}/runs/{run}/cancel");
        client.post(&cancel, &json!({}));
        let end = client.end_of(&thread, &run);
        // Lets go of who waits for a reader.
        let both_ends = File::options().read(true).write(true).open(&trace);
        fs::remove_file(&trace).unwrap();
        drop(both_ends);
        if end == "interrupted" {
            break (thread, folder);
        }
    };
    let forked = id_of(&fork(&client, &thread, &json!({})));
    let other = json!({"name": "other"});
    ok(
        client.post(&format!("/threads/{thread}/branches"), &other),
        201,
    );
    let starts = [(&forked, "main"), (&thread, "other"), (&thread, "main")];
    let totals = starts.map(|(thread, branch)| {
        let body = json!({"assistant_id": "inn", "input": null, "branch": branch});
        client.run(thread, &body)["total"].clone()
    });
    // However far the first guest had come.
    let original = &totals[2];
    assert!(original.is_number());
    assert_eq!(totals, [original, original, original].map(Clone::clone));
}
