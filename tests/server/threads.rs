//! Lists of threads, and runs that are cancelled, undone and deleted.
use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{self, background, until};

on_both_storages!(
    threads_are_found_by_metadata_status_ids_and_values,
    lists_are_sorted_and_paged,
    lists_begin_with_the_thread_that_was_changed_last,
    wrong_filters_are_refused,
    rolling_a_run_back_leaves_what_was_before_it,
    deleting_the_newest_run_takes_its_checkpoints_along,
    deleting_an_older_run_hides_its_checkpoints_and_keeps_what_builds_on_them,
    deleting_a_running_run_frees_its_thread,
    runs_are_cancelled_together,
    runs_that_wait_do_not_begin_when_all_are_cancelled,
    a_cancelled_thread_says_who_ended_it_until_it_runs_again,
);

fn counter(count: i64) -> Value {
    json!({"assistant_id": "counter", "input": {"count": count, "log": ["in"]}})
}

fn slow() -> Value {
    talk::slow(30, 400)
}

fn create(client: &Client, metadata: Value) -> String {
    talk::create(client, &json!({"metadata": metadata}))
}

fn ids(rows: &Value) -> Vec<String> {
    let rows = rows.as_array().unwrap();
    let id = |row: &Value| row["thread_id"].as_str().unwrap().to_owned();
    rows.iter().map(id).collect()
}

fn search(client: &Client, body: &Value) -> Vec<String> {
    let answer = client.post("/threads/search", body);
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    let found = ids(&answer.json());
    let mut filter = body.clone();
    for key in ["limit", "offset", "sort_by", "sort_order", "ids", "mode"] {
        filter.as_object_mut().unwrap().remove(key);
    }
    if filter == *body {
        let count = client.post("/threads/count", body).json();
        assert_eq!(count, json!(found.len()), "{body}");
    }
    found
}

/// Starts a run and waits for its first checkpoint.
fn start(client: &Client, thread: &str, body: &Value) -> String {
    let run = background(client, thread, body);
    until("the run works", || {
        let state = client.state(thread);
        state["metadata"]["run_id"] == json!(run) && state["next"] == json!(["work"])
    });
    run
}

fn row(client: &Client, thread: &str) -> Value {
    client.get(&format!("/threads/{thread}")).json()
}

fn shape(client: &Client, thread: &str) -> Vec<(Value, Value)> {
    let of = |state: &Value| (state["checkpoint_id"].clone(), state["values"].clone());
    client.history(thread).iter().map(of).collect()
}

fn threads_are_found_by_metadata_status_ids_and_values(place: &Place) {
    let (_server, client) = serve(place);
    let done = create(
        &client,
        json!({"tag": "x", "n": 1, "deep": {"a": [1, 2], "b": 3}}),
    );
    let asked = create(&client, json!({"tag": "x", "n": 2}));
    let failed = create(&client, json!({"tag": "x", "n": 3}));
    let busy = create(&client, json!({"tag": "x", "n": 4}));
    client.run(&done, &counter(5));
    client.run(
        &asked,
        &json!({"assistant_id": "approve", "input": {"request": "r"}}),
    );
    client.run(
        &failed,
        &json!({"assistant_id": "failing", "input": {"fail": true}}),
    );
    start(&client, &busy, &slow());

    let all = json!({"tag": "x"});
    assert_eq!(search(&client, &json!({"metadata": all})).len(), 4);
    assert_eq!(search(&client, &json!({"metadata": {"tag": "y"}})).len(), 0);
    let deep = json!({"metadata": {"deep": {"a": [2]}}});
    assert_eq!(search(&client, &deep), [&*done]);
    for (status, thread) in [
        ("idle", &done),
        ("interrupted", &asked),
        ("error", &failed),
        ("busy", &busy),
    ] {
        let found = search(&client, &json!({"metadata": all, "status": status}));
        assert_eq!(found, [&**thread], "{status}");
    }
    let two = json!({"ids": [done, failed], "sort_by": "created_at", "sort_order": "asc"});
    assert_eq!(search(&client, &two), [done.clone(), failed]);
    assert_eq!(
        search(&client, &json!({"ids": []})).len(),
        4,
        "it names none"
    );
    let values = json!({"values": {"count": 1116, "log": ["last"]}});
    assert_eq!(search(&client, &values), [&*done]);
    assert!(search(&client, &json!({"values": {"count": 7}})).is_empty());
    let listed = client.get("/threads?status=interrupted").json();
    assert_eq!(ids(&listed), [asked]);
    assert_eq!(listed[0]["values"], json!({"request": "r"}));
    let whole = client
        .post("/threads/search", &json!({"ids": [done]}))
        .json();
    assert_eq!(
        whole[0],
        row(&client, &done),
        "a list shows the whole thread"
    );
}

fn lists_are_sorted_and_paged(place: &Place) {
    let (_server, client) = serve(place);
    let threads: Vec<String> = (0..5).map(|n| create(&client, json!({"n": n}))).collect();
    let newest_first: Vec<String> = threads.iter().rev().cloned().collect();
    let by =
        |key: &str, order: &str| search(&client, &json!({"sort_by": key, "sort_order": order}));
    for key in ["created_at", "updated_at", "state_updated_at", "thread_id"] {
        assert_eq!(by(key, "asc"), threads, "{key}");
        assert_eq!(by(key, "desc"), newest_first, "{key}");
    }
    // An update moves a thread to the front of what has no order of its own.
    client.send(
        "PATCH",
        &format!("/threads/{}", threads[1]),
        &[],
        br#"{"metadata":{"a":1}}"#,
    );
    assert_eq!(search(&client, &json!({}))[0], threads[1]);
    client.run(&threads[3], &counter(1));
    assert_eq!(
        ids(&client.get("/threads").json())[..2],
        [threads[3].clone(), threads[1].clone()]
    );
    assert_eq!(by("state_updated_at", "desc")[0], threads[3]);
    client.run(
        &threads[2],
        &json!({"assistant_id": "failing", "input": {"fail": true}}),
    );
    assert_eq!(
        by("status", "asc")[0],
        threads[2],
        "error stands before idle"
    );

    let page = json!({"sort_by": "created_at", "sort_order": "asc", "limit": 2, "offset": 1});
    let answer = client.post("/threads/search", &page);
    assert_eq!(ids(&answer.json()), threads[1..3]);
    assert_eq!(answer.header("x-pagination-next"), Some("3"));
    let answer = client.get("/threads?limit=2&offset=4");
    assert_eq!(ids(&answer.json()).len(), 1);
    assert_eq!(answer.header("x-pagination-next"), None);
    let valued = json!({"values": {"log": ["in"]}, "limit": 1, "offset": 1});
    assert!(search(&client, &valued).is_empty());
}

fn lists_begin_with_the_thread_that_was_changed_last(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, json!({}));
    let run = talk::turn("hi");
    client.run(&thread, &run);
    let at = |path: &str| format!("/threads/{thread}{path}");
    for name in ["side", "spare"] {
        talk::ok(client.post(&at("/btw"), &json!({ "name": name })), 201);
    }
    let post = |path: &str, body: Value| ("POST", at(path), body);
    let message = talk::user("and");
    let edit = json!({"values": {"messages": []}, "as_node": "model"});
    let later = talk::with(run.clone(), "after_seconds", 1000);
    let side = |body: &Value| talk::with(body.clone(), "branch", "side");
    let first = client.get(&at("/messages")).json()["messages"][0]["message_id"].clone();
    // Of the newest run.
    let newest = |path: &str| at(&format!("/runs/NEWEST{path}"));
    let send = json!({"thread_id": thread, "content": "x"});
    for (method, path, body) in [
        ("PATCH", at(""), json!({"metadata": {"x": 1}})),
        post("/messages", message.clone()),
        post("/messages", talk::with(side(&message), "activate", false)),
        post("/state", edit.clone()),
        post("/state", side(&edit)),
        post("/runs/wait", run.clone()),
        post("/runs/wait", side(&run)),
        ("DELETE", newest(""), Value::Null),
        post("/runs", later.clone()),
        ("POST", newest("/cancel"), Value::Null),
        post("/runs", side(&later)),
        ("POST", newest("/cancel?action=rollback"), Value::Null),
        post("/runs", later.clone()),
        ("DELETE", newest(""), Value::Null),
        ("POST", "/commands/send-message".into(), send),
        post("/rewind", json!({"message_id": first})),
        post("/branches/main/activate", json!({})),
        ("PATCH", at("/branches/spare"), json!({"name": "other"})),
        ("DELETE", at("/branches/other"), Value::Null),
        ("PUT", at("/tags/t"), json!({})),
        ("DELETE", at("/tags/t"), Value::Null),
    ] {
        create(&client, json!({}));
        let runs = client.get(&at("/runs?limit=1")).json();
        let path = path.replace("NEWEST", runs[0]["run_id"].as_str().unwrap());
        let text = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let answer = client.send(method, &path, &[], text.as_bytes());
        assert!(answer.status < 300, "{method} {path}: {}", answer.text());
        for found in [
            ids(&client.get("/threads?limit=2").json()),
            search(&client, &json!({"limit": 2})),
            search(&client, &json!({"limit": 2, "sort_by": "updated_at"})),
        ] {
            assert_eq!(found[0], thread, "{method} {path} {text}");
        }
    }
    let new = talk::ok(client.post(&at("/fork"), &json!({})), 201);
    assert_eq!(
        ids(&client.get("/threads?limit=2").json())[0],
        new["thread_id"]
    );
    let new = talk::ok(client.post(&at("/copy"), &json!({})), 200);
    assert_eq!(
        ids(&client.get("/threads?limit=2").json())[0],
        new["thread_id"]
    );
}

fn wrong_filters_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    for (body, status) in [
        (json!({"mode": "some"}), 422),
        (json!({"status": "sleepy"}), 422),
        (json!({"metadata": []}), 422),
        (json!({"values": "x"}), 422),
        (json!({"ids": ["x"]}), 400),
        (json!({"ids": "x"}), 422),
        (json!({"limit": 0}), 422),
        (json!({"offset": -1}), 422),
        (json!({"sort_by": "luck"}), 422),
        (json!({"sort_order": "up"}), 422),
        (json!({"min_event": {"x": 1}}), 422),
        (
            json!({"min_event": {"5a65802f-74fe-4e41-9a19-5fa219b2c04e": -1}}),
            422,
        ),
    ] {
        client.post("/threads/search", &body).refused(status);
    }
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "offset=-1",
        "mode=some",
        "status=sleepy",
        "min_event=1",
        "min_event=nope:1",
    ] {
        client.get(&format!("/threads?{query}")).refused(422);
    }
}

fn rolling_a_run_back_leaves_what_was_before_it(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let short = json!({"assistant_id": "slow", "input": {"ms": 1, "ticks": 1}});
    client.run(&thread, &short);
    let before = shape(&client, &thread);
    let run = start(&client, &thread, &slow());
    let path = format!("/threads/{thread}/runs/{run}");
    let cancel = format!("{path}/cancel?action=rollback");
    let answer = client.send("POST", &format!("{cancel}&wait=1"), &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    client.get(&path).refused(404);
    assert_eq!(shape(&client, &thread), before);
    let now = row(&client, &thread);
    assert_eq!(now["status"], "idle");
    assert_eq!(now["error"]["error"], "UserRollback");
    assert_eq!(client.state(&thread)["next"], json!([]));
    client.send("POST", &cancel, &[], b"").refused(404);
    // The thread goes on from where it was.
    client.run(&thread, &counter(1));
    assert_eq!(row(&client, &thread)["error"], Value::Null);

    // On a thread of its own nothing is left, also for a run that has not begun.
    let thread = client.thread();
    let run = start(&client, &thread, &slow());
    let waiting = client
        .post(&format!("/threads/{thread}/runs"), &counter(1))
        .json();
    let waiting = waiting["run_id"].as_str().unwrap().to_owned();
    for run in [&waiting, &run] {
        let cancel = format!("/threads/{thread}/runs/{run}/cancel?action=rollback");
        assert_eq!(client.send("POST", &cancel, &[], b"").status, 202);
    }
    assert!(client.history(&thread).is_empty());
    assert_eq!(
        client.get(&format!("/threads/{thread}/runs")).json(),
        json!([])
    );
    assert_eq!(row(&client, &thread)["status"], "idle");
}

fn deleting_the_newest_run_takes_its_checkpoints_along(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "approve", "input": {"request": "r"}}),
    );
    let before = shape(&client, &thread);
    let asked = client.state(&thread)["interrupts"].clone();
    client.run(
        &thread,
        &json!({"assistant_id": "approve", "command": {"resume": true}}),
    );
    assert_eq!(row(&client, &thread)["status"], "idle");
    let runs = client.get(&format!("/threads/{thread}/runs")).json();
    let path = format!(
        "/threads/{thread}/runs/{}",
        runs[0]["run_id"].as_str().unwrap()
    );
    assert_eq!(client.delete(&path).status, 204);
    client.get(&path).refused(404);
    assert_eq!(client.delete(&path).refused(404), "Run not found");
    assert_eq!(shape(&client, &thread), before);
    assert_eq!(
        row(&client, &thread)["status"],
        "interrupted",
        "the question is open again"
    );
    assert_eq!(client.state(&thread)["interrupts"], asked);
}

fn deleting_an_older_run_hides_its_checkpoints_and_keeps_what_builds_on_them(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let text = |text: &str| {
        let input = json!({"messages": [{"role": "user", "content": text}]});
        json!({"assistant_id": "agent", "input": input, "metadata": {"turn": text}})
    };
    let of_turn = |turn: &str| {
        let page = json!({"limit": 100, "metadata": {"turn": turn}});
        let found = client.post(&format!("/threads/{thread}/history"), &page);
        found.json().as_array().unwrap().len()
    };
    client.run(&thread, &text("one"));
    let first = client.history(&thread).len();
    client.run(&thread, &text("two"));
    assert_eq!((of_turn("one"), of_turn("two")), (first, first));
    let values = client.state(&thread)["values"].clone();
    let second = shape(&client, &thread)[..first].to_vec();
    let runs = client.get(&format!("/threads/{thread}/runs")).json();
    let oldest = runs[1]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(
        client
            .delete(&format!("/threads/{thread}/runs/{oldest}"))
            .status,
        204
    );
    assert_eq!(shape(&client, &thread), second);
    assert_eq!((of_turn("one"), of_turn("two")), (0, first));
    assert_eq!(client.state(&thread)["values"], values);
    client.run(&thread, &text("three"));
    let messages = client.state(&thread)["values"]["messages"].clone();
    assert_eq!(messages[0], values["messages"][0]);
}

fn deleting_a_running_run_frees_its_thread(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let run = start(&client, &thread, &slow());
    assert_eq!(
        client
            .delete(&format!("/threads/{thread}/runs/{run}"))
            .status,
        204
    );
    assert_eq!(row(&client, &thread)["status"], "idle");
    assert!(client.history(&thread).is_empty());
    let end = client.run(&thread, &counter(1));
    assert_eq!(end["count"], 1112);
}

fn runs_are_cancelled_together(place: &Place) {
    let (_server, client) = serve(place);
    let (one, two) = (client.thread(), client.thread());
    let running = start(&client, &one, &slow());
    let waiting = client
        .post(&format!("/threads/{one}/runs"), &counter(1))
        .json();
    let waiting = waiting["run_id"].as_str().unwrap().to_owned();
    let other = start(&client, &two, &slow());
    let cancel = |query: &str, body: Value| client.post(&format!("/runs/cancel{query}"), &body);

    let nobody = cancel("", json!({"thread_id": two, "run_ids": [running]}));
    assert_eq!(nobody.refused(404), "No runs found to cancel.");
    assert_eq!(cancel("", json!({"status": "pending"})).status, 204);
    assert_eq!(client.end_of(&one, &waiting), "interrupted");
    assert_eq!(row(&client, &one)["status"], "busy");
    let both = json!({"thread_id": one, "run_ids": [running, waiting]});
    assert_eq!(cancel("?action=rollback", both.clone()).status, 204);
    client
        .get(&format!("/threads/{one}/runs/{running}"))
        .refused(404);
    assert!(client.history(&one).is_empty());
    let ended = cancel("", json!({"thread_id": one, "run_ids": [waiting]}));
    assert!(ended.refused(404).starts_with("No matching runs"));
    assert_eq!(cancel("", json!({"status": "all"})).status, 204);
    assert_eq!(client.end_of(&two, &other), "interrupted");
    cancel("", json!({"status": "all"})).refused(404);
    for body in [
        json!({}),
        json!({"status": "some"}),
        json!({"thread_id": one}),
        json!({"thread_id": "x", "run_ids": []}),
        json!({"thread_id": one, "run_ids": ["x"]}),
    ] {
        cancel("", body).refused(422);
    }
    cancel("?action=forget", both).refused(422);
}

fn runs_that_wait_do_not_begin_when_all_are_cancelled(place: &Place) {
    let (_server, client) = serve(place);
    for by_status in [false, true] {
        let thread = client.thread();
        let mut runs = vec![start(&client, &thread, &slow())];
        for _ in 0..5 {
            let waits = client.post(&format!("/threads/{thread}/runs"), &counter(1));
            runs.push(waits.json()["run_id"].as_str().unwrap().to_owned());
        }
        let which = if by_status {
            json!({"status": "all"})
        } else {
            json!({"thread_id": thread, "run_ids": runs})
        };
        assert_eq!(client.post("/runs/cancel", &which).status, 204);
        for run in &runs {
            assert_eq!(client.end_of(&thread, run), "interrupted");
        }
        let events = client.get(&format!("/threads/{thread}/events?limit=100"));
        let events = events.json()["events"].clone();
        let events = events.as_array().unwrap().iter();
        let begun = events.filter(|event| event["event_type"] == "RunStarted");
        assert_eq!(begun.count(), 1, "the one that was executed");
    }
}

fn a_cancelled_thread_says_who_ended_it_until_it_runs_again(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let run = start(&client, &thread, &slow());
    let cancel = format!("/threads/{thread}/runs/{run}/cancel?wait=1");
    assert_eq!(client.send("POST", &cancel, &[], b"").status, 200);
    let now = row(&client, &thread);
    assert_eq!(now["status"], "interrupted");
    assert_eq!(now["error"]["error"], "UserInterrupt");
    client.run(&thread, &counter(1));
    let now = row(&client, &thread);
    assert_eq!(
        (&now["status"], &now["error"]),
        (&json!("idle"), &Value::Null)
    );
}
