//! A copy of a thread has the ids of its checkpoints, branches and messages. Only the tree that every look-up names
//! tells the two apart, which belong to different people.

use serde_json::{Value, json};
use test_support::access::{
    SECRET, bystander, furnished, grant, people, revoke, seen, send, serve,
};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::routes::{Names, naming_threads};
use test_support::talk::{self, get, ok};

use crate::siege::{MIB, Watch};

on_both_storages!(a_copy_and_its_original_are_apart_though_they_share_ids,);

/// What many small requests may take.
const MOST: u64 = 64 * MIB;

/// Somebody's copy of a thread that is shared for that moment only.
fn copied(from: &Client, thread: &str, by: &Client) -> String {
    grant(from, thread, "bob", "reader");
    let copy = ok(by.post(&format!("/threads/{thread}/copy"), &json!({})), 200);
    revoke(from, thread, "bob");
    talk::id_of(&copy)
}

/// A thread whose run waits for an answer.
fn waiting(client: &Client) -> String {
    let thread = talk::create(client, &json!({}));
    client.run(&thread, &resumed(json!({"input": {"request": "r"}})));
    thread
}

/// All that the owner of such a thread sees of it, which has no messages.
fn seen_of_waiting(client: &Client, thread: &str) -> Vec<Value> {
    let paths = [
        "state",
        "history",
        "branches",
        "events?limit=1000",
        "runs",
        "members",
        "head",
    ];
    let mut all: Vec<_> = paths.map(|path| get(client, thread, path)).into();
    let crons = json!({"thread_id": thread});
    all.push(ok(client.post("/runs/crons/search", &crons), 200));
    all
}

fn resumed(more: Value) -> Value {
    talk::extend(json!({"assistant_id": "approve"}), more)
}

/// Removes the newest run with all that it wrote.
fn undo(client: &Client, thread: &str) {
    let run = get(client, thread, "runs?limit=1")[0]["run_id"].clone();
    let path = format!("/threads/{thread}/runs/{}", run.as_str().unwrap());
    ok(client.delete(&path), 204);
}

/// Runs at the head and at a checkpoint, where the run opens a branch, each of which is removed again.
fn run_and_undo(client: &Client, names: &Names) {
    for at in [json!({}), json!({"checkpoint_id": names.checkpoint})] {
        let turn = talk::extend(talk::turn("undone"), at);
        client.run(&names.thread, &turn);
        undo(client, &names.thread);
    }
}

/// Changes everything that a thread shares with its copy.
fn change(client: &Client, names: &Names) {
    let thread = &names.thread;
    let path = |end: &str| format!("/threads/{thread}/{end}");
    let said = talk::with(talk::user(SECRET), "id", "u3");
    talk::store(client, thread, &said);
    talk::say(client, thread, SECRET);
    let values = json!({"messages": [talk::user(SECRET)]});
    let edit = json!({"values": values, "checkpoint_id": names.checkpoint});
    ok(client.post(&path("state"), &edit), 200);
    let name = json!({"name": SECRET});
    let renamed = talk::patch(client, &path("branches/main-v2"), &name);
    ok(renamed, 200);
    ok(
        talk::put(client, &path("tags/t"), &json!({"message_id": "u1"})),
        200,
    );
    ok(
        talk::put(client, &path(&format!("tags/{SECRET}")), &json!({})),
        201,
    );
    ok(
        client.post(&path("branches/main/activate"), &json!({})),
        200,
    );
    talk::say(client, thread, SECRET);
    run_and_undo(client, names);
}

fn a_copy_and_its_original_are_apart_though_they_share_ids(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let hers = furnished(&ann, "of-both");
    let asked = waiting(&ann);
    grant(&ann, &asked, "cid", "reader");
    let path = format!("/threads/{asked}/runs/crons");
    let cron = resumed(json!({"schedule": "0 0 1 1 *"}));
    ok(ann.post(&path, &cron), 200);
    let his = Names {
        thread: copied(&ann, &hers.thread, &bob),
        ..hers.clone()
    };
    let his_asked = copied(&ann, &asked, &bob);
    let spare = copied(&ann, &hers.thread, &bob);

    // What the owner of the original does.
    let of_his = || [seen(&bob, &his.thread), seen_of_waiting(&bob, &his_asked)];
    let before = of_his();
    assert_eq!(
        before[0][1]["checkpoint"]["checkpoint_id"],
        *hers.checkpoint
    );
    change(&ann, &hers);
    ann.run(&asked, &resumed(json!({"command": {"resume": true}})));
    assert_eq!(of_his(), before);

    // What the owner of the copy does.
    let of_hers = || [seen(&ann, &hers.thread), seen_of_waiting(&ann, &asked)];
    let before = of_hers();
    bob.run(&his_asked, &resumed(json!({"command": {"resume": false}})));
    undo(&bob, &his_asked);
    let values = json!({"messages": [talk::user("x")]});
    let edit = json!({"values": values, "checkpoint_id": his.checkpoint});
    ok(
        bob.post(&format!("/threads/{}/state", his.thread), &edit),
        200,
    );
    run_and_undo(&bob, &his);
    let branches = format!("/threads/{}/branches", his.thread);
    let name = json!({"name": "renamed"});
    ok(
        talk::patch(&bob, &format!("{branches}/main-v2"), &name),
        200,
    );
    ok(bob.delete(&format!("{branches}/renamed")), 204);
    let mut routes = naming_threads();
    let is_last = |path: &str| ["/threads/prune", "/threads/{thread_id}"].contains(&path);
    routes.retain(|route| !["GET", "HEAD"].contains(&route.method));
    routes.sort_by_key(|route| (is_last(route.path), route.method == "DELETE"));
    let mut done = 0;
    for route in routes {
        let answer = send(&bob, route.method, &route.path(&his), &route.body(&his));
        assert!(
            !answer.text().contains(SECRET),
            "{route:?}: {}",
            answer.text()
        );
        done += usize::from(answer.status < 300);
    }
    println!("{done} requests were carried out");
    assert!(done > 20, "{done}");
    bob.get(&format!("/threads/{}", his.thread)).refused(404);
    ok(bob.delete(&format!("/threads/{his_asked}?scope=tree")), 204);
    assert_eq!(of_hers(), before);

    // The original goes.
    let before = seen(&bob, &spare);
    let prune = json!({"thread_ids": [hers.thread], "strategy": "keep_latest"});
    ok(ann.post("/threads/prune", &prune), 200);
    assert_eq!(seen(&bob, &spare), before);
    ok(ann.delete(&format!("/threads/{}", hers.thread)), 204);
    assert_eq!(seen(&bob, &spare), before);
    watch.held("copies that share ids", MOST);
}
