//! Heads at which the last run ended in the process that is asked: their rows are not read, and what is shown is what another
//! process reads, whatever else has become of the threads.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables::execute;
use test_support::talk::{self, background, ok, say, slow, turn_as, with};

on_both_storages!(a_head_that_the_last_run_left_is_shown_as_it_would_be_read_and_is_not_read);

/// The process that is asked, and another one, which SQLite does not have.
struct Processes {
    here: Client,
    there: Option<Client>,
}

/// What has become of a thread, whether its head is known here without its row, and the thread.
struct Case {
    what: &'static str,
    is_known: bool,
    thread: String,
}

fn post(client: &Client, thread: &str, path: &str, body: &Value) -> Value {
    let answer = client.post(&format!("/threads/{thread}/{path}"), body);
    assert!(answer.status < 300, "{path} {body}: {}", answer.text());
    answer.json()
}

fn chat(client: &Client) -> String {
    let thread = talk::agent_thread(client);
    for (text, id) in [("hi", "u1"), ("ho", "u2")] {
        client.run(&thread, &turn_as(text, id, json!({})));
    }
    thread
}

fn ran(client: &Client, body: &Value) -> String {
    let thread = client.thread();
    client.run(&thread, body);
    thread
}

fn after(client: &Client, change: impl Fn(&str)) -> String {
    let thread = chat(client);
    change(&thread);
    thread
}

fn edit(client: &Client, thread: &str) {
    let values = json!({"values": {"messages": [talk::user("edited")]}});
    post(client, thread, "state", &values);
}

fn rewind(client: &Client, thread: &str) {
    post(client, thread, "rewind", &json!({"message_id": "u1"}));
}

fn prune(client: &Client, thread: &str) {
    let body = json!({"thread_ids": [thread], "strategy": "keep_latest"});
    ok(client.post("/threads/prune", &body), 200);
}

/// Deletes one of the runs of a thread, of which the newest is the first.
fn delete_run(client: &Client, thread: &str, at: usize) {
    let runs = talk::get(client, thread, "runs");
    let run = runs[at]["run_id"].as_str().unwrap();
    ok(client.delete(&format!("/threads/{thread}/runs/{run}")), 204);
}

fn approve() -> Value {
    json!({"assistant_id": "approve", "input": {"request": "r"}})
}

/// What ended with nothing pending, in this process.
fn ended_here(client: &Client) -> Vec<(&'static str, String)> {
    let metadata = json!({
        "z": {"nested": [1, null, "ü"]}, "a": 1.5, "large": 1e22, "small": -1e-7, "most": u64::MAX, "text": "\u{1a}\"\\", "nul": "a\u{0}b",
    });
    let config = json!({"configurable": {"user_id": "u", "who": "me"}, "tags": ["t"], "metadata": {"own": true}});
    let noted = talk::extend(
        turn_as("hi", "u1", json!({})),
        json!({"metadata": metadata, "config": config}),
    );
    let square = json!({"assistant_id": "mapreduce", "input": {"items": [1, 2, 3]}});
    let count = json!({"assistant_id": "counter", "input": {}});
    let hops = json!({"assistant_id": "router", "input": {"n": 3}});
    let inside = json!({"assistant_id": "subgraph", "input": {}});
    let inside_chat = json!({"assistant_id": "chatsub", "input": {"messages": [talk::user("hi")]}});
    let mut all = vec![
        ("a chat", chat(client)),
        ("metadata", ran(client, &noted)),
        ("one task for each item", ran(client, &square)),
        ("parallel nodes", ran(client, &count)),
        ("commands of nodes", ran(client, &hops)),
        ("graphs inside", ran(client, &inside)),
        ("a chat inside", ran(client, &inside_chat)),
    ];
    for durability in ["exit", "async", "sync"] {
        let run = |body: Value| with(body, "durability", durability);
        let twice = ran(client, &run(slow(1, 2)));
        client.run(&twice, &run(slow(1, 2)));
        all.push((durability, twice));
        all.push((durability, ran(client, &run(inside.clone()))));
        let answered = ran(client, &run(approve()));
        let answer = json!({"assistant_id": "approve", "command": {"resume": "yes"}});
        client.run(&answered, &run(answer));
        all.push((durability, answered));
        let paused = ran(
            client,
            &run(with(inside.clone(), "input", json!({"pause": true}))),
        );
        let answer = json!({"assistant_id": "subgraph", "command": {"resume": "yes"}});
        client.run(&paused, &run(answer));
        all.push((durability, paused));
    }
    let logged = client.thread();
    client.stream(&logged, &with(slow(1, 2), "stream_resumable", true));
    let alone = client.thread();
    let run = background(client, &alone, &slow(1, 2));
    assert_eq!(client.end_of(&alone, &run), "success");
    let rolled_back = after(client, |thread| {
        background(client, thread, &slow(1000, 60));
        let next = turn_as("next", "u3", json!({"multitask_strategy": "rollback"}));
        client.run(thread, &next);
    });
    let pruned_meanwhile = after(client, |thread| {
        let run = background(client, thread, &slow(300, 5));
        prune(client, thread);
        assert_eq!(client.end_of(thread, &run), "success");
    });
    all.extend([
        ("a log", logged),
        ("nobody waiting", alone),
        ("another run rolled back", rolled_back),
        ("pruned meanwhile", pruned_meanwhile),
        (
            "a branch of its own",
            after(client, |thread| {
                rewind(client, thread);
                say(client, thread, "other");
            }),
        ),
        (
            "after an edit",
            after(client, |thread| {
                edit(client, thread);
                say(client, thread, "more");
            }),
        ),
        (
            "after a message",
            after(client, |thread| {
                talk::note(client, thread, "u9");
                say(client, thread, "more");
            }),
        ),
        (
            "after it was pruned",
            after(client, |thread| {
                prune(client, thread);
                say(client, thread, "more");
            }),
        ),
        (
            "an earlier run deleted",
            after(client, |thread| delete_run(client, thread, 1)),
        ),
        (
            "a new name",
            after(client, |thread| {
                let name = json!({"metadata": {"name": "n"}});
                ok(
                    talk::patch(client, &format!("/threads/{thread}"), &name),
                    200,
                );
            }),
        ),
    ]);
    let fork = talk::id_of(&talk::fork(client, &chat(client), &json!({})));
    say(client, &fork, "more");
    all.push(("a fork", fork));
    all
}

/// What somebody has changed since, or what waits.
fn to_be_read(Processes { here, there }: &Processes) -> Vec<(&'static str, String)> {
    let failed = here.thread();
    let failing = json!({"assistant_id": "failing", "input": {"fail": true}});
    here.post(&format!("/threads/{failed}/runs/wait"), &failing);
    let cancelled = after(here, |thread| {
        let run = background(here, thread, &slow(1000, 60));
        let path = format!("/threads/{thread}/runs/{run}/cancel?wait=true");
        assert!(here.post(&path, &json!({})).status < 300);
    });
    let stopped = client_stops(here);
    let mut all = vec![
        ("a question", ran(here, &approve())),
        ("a failure", failed),
        ("a cancelled run", cancelled),
        ("a breakpoint", stopped),
        ("an edit", after(here, |thread| edit(here, thread))),
        (
            "a message",
            after(here, |thread| drop(talk::note(here, thread, "u9"))),
        ),
        ("a rewind", after(here, |thread| rewind(here, thread))),
        (
            "another branch",
            after(here, |thread| {
                rewind(here, thread);
                say(here, thread, "other");
                post(here, thread, "branches/main/activate", &json!({}));
            }),
        ),
        (
            "the last run deleted",
            after(here, |thread| delete_run(here, thread, 0)),
        ),
        ("pruned", after(here, |thread| prune(here, thread))),
        (
            "a new fork",
            talk::id_of(&talk::fork(here, &chat(here), &json!({}))),
        ),
    ];
    if let Some(there) = there {
        all.extend([
            ("pruned there", after(here, |thread| prune(there, thread))),
            (
                "a run there",
                after(here, |thread| drop(say(there, thread, "more"))),
            ),
            ("an edit there", after(here, |thread| edit(there, thread))),
            (
                "a run there rolled back",
                after(here, |thread| {
                    say(there, thread, "more");
                    delete_run(there, thread, 0);
                }),
            ),
            (
                "a branch there that is closed again",
                after(here, |thread| {
                    let from = here.history(thread)[2]["checkpoint"]["checkpoint_id"].clone();
                    let other = turn_as("other", "u7", json!({"checkpoint_id": from}));
                    there.run(thread, &other);
                    delete_run(there, thread, 0);
                }),
            ),
        ]);
    }
    all
}

/// A thread whose run has stopped before a node.
fn client_stops(client: &Client) -> String {
    ran(
        client,
        &with(slow(1, 1), "interrupt_before", json!(["rest"])),
    )
}

fn cases(processes: &Processes) -> Vec<Case> {
    let known = ended_here(&processes.here).into_iter();
    let read = to_be_read(processes).into_iter();
    let case = |is_known| {
        move |(what, thread)| Case {
            what,
            is_known,
            thread,
        }
    };
    known.map(case(true)).chain(read.map(case(false))).collect()
}

/// The state of a thread and the same with those inside it, byte for byte.
fn states(client: &Client, case: &Case) -> [String; 2] {
    ["state", "state?subgraphs=true"].map(|path| {
        let answer = client.get(&format!("/threads/{}/{path}", case.thread));
        assert_eq!(answer.status, 200, "{}: {}", case.what, answer.text());
        answer.text().to_owned()
    })
}

fn step(state: &str) -> i64 {
    let state: Value = serde_json::from_str(state).unwrap();
    state["metadata"]["step"].as_i64().unwrap()
}

/// A step that no checkpoint of these threads has.
const FAR: i64 = 100_000;

fn a_head_that_the_last_run_left_is_shown_as_it_would_be_read_and_is_not_read(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a");
    let mut server = place.start(setup);
    let replica = place.is_postgres().then(|| server.replica());
    let client = |server: &Server| Client::of(server).with_key("key-a");
    let processes = Processes {
        here: client(&server),
        there: replica.as_ref().map(client),
    };
    let here = &processes.here;
    let cases = cases(&processes);
    let shown: Vec<_> = cases.iter().map(|case| states(here, case)).collect();
    let again: Vec<_> = cases.iter().map(|case| states(here, case)).collect();
    assert_eq!(shown, again);

    let step_by = |steps: i64| {
        let change =
            format!("UPDATE checkpoints SET step = step + {steps} WHERE checkpoint_ns = ''");
        assert!(execute(place, &server, &change).unwrap() > 0);
    };
    step_by(FAR);
    for (case, shown) in cases.iter().zip(&shown) {
        let now = states(here, case);
        if case.is_known {
            assert_eq!(now, *shown, "{}: its row was read", case.what);
        } else {
            for state in &now {
                assert!(
                    step(state) >= FAR - 1,
                    "{}: its row was not read",
                    case.what
                );
            }
        }
    }
    step_by(-FAR);

    // Another process reads what was shown.
    let cold = match &processes.there {
        Some(there) => there.clone(),
        None => {
            server.restart();
            client(&server)
        }
    };
    for (case, shown) in cases.iter().zip(&shown) {
        assert_eq!(states(&cold, case), *shown, "{}", case.what);
    }
}
