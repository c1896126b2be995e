//! Rights at the time of the act: of runs that wait, of answers that are repeated, of clients that
//! leave; and what the log says of them.

use test_support::on_both_storages;
use test_support::tables::{execute, rows};

use super::*;

on_both_storages!(
    a_run_that_waits_is_refused_when_its_principal_may_not_write_any_more,
    a_run_that_waits_through_a_restart_is_refused_too,
    a_run_that_is_executed_ends_when_its_principal_may_not_write_any_more,
    a_run_whose_process_died_is_refused_when_its_principal_may_not_write_any_more,
    a_stored_answer_is_for_those_who_still_have_the_right,
    a_stored_answer_shows_nothing_of_a_thread_that_was_deleted,
    a_stored_answer_is_none_of_the_thread_that_has_the_id_of_a_deleted_one,
    a_refusal_is_not_repeated_to_those_who_have_the_right_by_then,
    who_only_reads_cancels_nothing_by_leaving,
    what_is_cancelled_is_so_before_the_right_to_it_is_withdrawn,
    grants_and_refusals_are_logged_with_principal_and_request,
);

/// What a run shows that was refused when its turn came.
fn permission_denied(client: &Client, thread: &str, run: &str) {
    assert_eq!(client.end_of(thread, run), "error");
    let joined = ok(
        client.get(&format!("/threads/{thread}/runs/{run}/join")),
        200,
    );
    assert_eq!(
        joined["__error__"]["error"], "permission_denied",
        "{joined}"
    );
}

fn a_run_that_waits_is_refused_when_its_principal_may_not_write_any_more(place: &Place) {
    let server = serve(place);
    let [ann, bob, cid] = people(&server);
    let thread = ann.thread();
    grant(&ann, &thread, "bob", "writer");
    grant(&ann, &thread, "cid", "writer");
    let mut first = ann.open_stream(&thread, &talk::slow(50, 400));
    first.event_named("custom");
    let queued = talk::background(&bob, &thread, &talk::slow(1, 1));
    let delayed = talk::with(talk::slow(1, 1), "after_seconds", 1);
    let delayed = talk::background(&bob, &thread, &delayed);
    let lowered = talk::background(&cid, &thread, &talk::slow(1, 1));
    let of_ann = talk::background(&ann, &thread, &talk::slow(1, 1));
    revoke(&ann, &thread, "bob");
    grant(&ann, &thread, "cid", "reader");
    let cancel = format!("/threads/{thread}/runs/{}/cancel?wait=true", first.run());
    ok(ann.send("POST", &cancel, &[], b""), 200);
    for run in [&queued, &delayed, &lowered] {
        permission_denied(&ann, &thread, run);
    }
    // Those behind them go on, and nothing of theirs was executed.
    assert_eq!(ann.end_of(&thread, &of_ann), "success");
    assert_eq!(
        ann.run(&thread, &talk::slow(1, 1))["seen"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

fn a_run_that_waits_through_a_restart_is_refused_too(place: &Place) {
    let mut server = serve(place);
    let [ann, bob, _] = people(&server);
    let thread = ann.thread();
    grant(&ann, &thread, "bob", "writer");
    let mut first = ann.open_stream(&thread, &talk::slow(50, 400));
    first.event_named("custom");
    let run = first.run();
    let queued = talk::background(&bob, &thread, &talk::slow(1, 1));
    revoke(&ann, &thread, "bob");
    server.restart();
    let [ann, ..] = people(&server);
    let cancel = format!("/threads/{thread}/runs/{run}/cancel?wait=true");
    ok(ann.send("POST", &cancel, &[], b""), 200);
    permission_denied(&ann, &thread, &queued);
}

fn a_run_that_is_executed_ends_when_its_principal_may_not_write_any_more(place: &Place) {
    let server = serve(place);
    let [ann, bob, _] = people(&server);
    let withdrawals: [fn(&Client, &str); 2] = [
        |ann, thread| revoke(ann, thread, "bob"),
        |ann, thread| grant(ann, thread, "bob", "reader"),
    ];
    for withdraw in withdrawals {
        let thread = ann.thread();
        grant(&ann, &thread, "bob", "writer");
        // It would take ten minutes.
        let long = talk::with(talk::slow(50, 12_000), "durability", "sync");
        let mut of_bob = bob.open_stream(&thread, &long);
        of_bob.event_named("custom");
        let run = of_bob.run();
        // A right that is changed and stays high enough ends nothing.
        grant(&ann, &thread, "bob", "manager");
        grant(&ann, &thread, "bob", "writer");
        assert_eq!(
            get(&ann, &thread, &format!("runs/{run}"))["status"],
            "running"
        );
        withdraw(&ann, &thread);
        // By the time of the response nothing of it counts any more.
        assert_eq!(
            get(&ann, &thread, &format!("runs/{run}"))["status"],
            "interrupted"
        );
        let joined = get(&ann, &thread, &format!("runs/{run}/join"));
        assert_eq!(joined["seen"], json!([]), "{joined}");
        // Whoever may still write goes on from before it.
        let state = ann.run(&thread, &talk::slow(1, 1));
        assert_eq!(state["seen"], json!(["work", "rest"]), "{state}");
    }
}

fn a_run_whose_process_died_is_refused_when_its_principal_may_not_write_any_more(place: &Place) {
    let mut server = serve(place);
    let [ann, bob, _] = people(&server);
    let executed = || {
        let thread = ann.thread();
        grant(&ann, &thread, "bob", "writer");
        // It would take ten minutes.
        let long = talk::with(talk::slow(50, 12_000), "durability", "sync");
        let mut of_bob = bob.open_stream(&thread, &long);
        of_bob.event_named("custom");
        (thread, of_bob.run())
    };
    let (lost, other) = (executed(), executed());
    let replica = place.is_postgres().then(|| server.replica());
    server.kill();
    if let Some(replica) = &replica {
        // A change of rights ends what is executed on behalf of who loses them, whoever does or did execute it.
        let [ann, ..] = people(replica);
        let (thread, run) = &other;
        revoke(&ann, thread, "bob");
        let run = get(&ann, thread, &format!("runs/{run}"));
        assert_eq!(run["status"], "interrupted");
    }
    // A change of the database itself ends nothing: whoever takes the run over finds that it may not go on.
    let withdrawn = "DELETE FROM tree_members WHERE principal = 'bob'";
    assert!(execute(place, &server, withdrawn).unwrap() > 0);
    if !place.is_postgres() {
        server.restart();
    }
    let [ann, ..] = people(replica.as_ref().unwrap_or(&server));
    let (thread, run) = &lost;
    permission_denied(&ann, thread, run);
    // Nothing of it was executed again, and the thread goes on.
    let state = ann.run(thread, &talk::slow(1, 1));
    assert_eq!(state["seen"], json!(["work", "rest"]), "{state}");
    let (thread, run) = &other;
    if place.is_postgres() {
        assert_eq!(ann.end_of(thread, run), "interrupted");
        let attempts = "SELECT CAST(sum(attempt) AS text) FROM runs WHERE status = 'interrupted'";
        let rows = rows(place, &server, attempts);
        assert_eq!(rows[0][0].as_deref(), Some("1"));
    } else {
        permission_denied(&ann, thread, run);
    }
}

fn a_stored_answer_shows_nothing_of_a_thread_that_was_deleted(place: &Place) {
    let server = serve(place);
    let [ann, bob, _] = people(&server);
    let thread = furnished(&ann, SECRET).thread;
    grant(&ann, &thread, "bob", "writer");
    let wait = format!("/threads/{thread}/runs/wait");
    let turn = talk::turn("hello").to_string();
    let ask = || {
        let headers = [("idempotency-key", "once")];
        bob.send("POST", &wait, &headers, turn.as_bytes())
    };
    let first = ask();
    assert_eq!(ask().body, first.body);
    assert_eq!(first.status, 200, "{}", first.text());
    assert!(first.text().contains(SECRET));
    revoke(&ann, &thread, "bob");
    assert_eq!(ann.delete(&format!("/threads/{thread}")).status, 204);
    // Who may see the thread is not known any more: the answer of the first request is nobody's.
    let again = ask();
    assert_eq!(again.status, 404, "{}", again.text());
    assert!(!again.text().contains(SECRET));
}

fn a_stored_answer_is_none_of_the_thread_that_has_the_id_of_a_deleted_one(place: &Place) {
    let server = serve(place);
    let [ann, bob, _] = people(&server);
    let thread = furnished(&ann, SECRET).thread;
    grant(&ann, &thread, "bob", "writer");
    let turn = talk::turn("hello");
    let requests = [
        ("POST", format!("/threads/{thread}/runs/wait"), turn.clone()),
        (
            "POST",
            format!("/threads/{thread}/runs/stream"),
            turn.clone(),
        ),
        ("POST", format!("/threads/{thread}/runs"), turn),
        ("PUT", format!("/threads/{thread}/tags/new"), json!({})),
        (
            "POST",
            "/threads".into(),
            json!({"thread_id": thread, "if_exists": "do_nothing"}),
        ),
        (
            "POST",
            "/commands/send-message".into(),
            json!({"thread_id": thread, "content": "x", "assistant_id": "agent"}),
        ),
    ];
    let ask = |n: usize| {
        let (method, path, body) = &requests[n];
        let key = format!("key-{n}");
        let headers = [("idempotency-key", &*key)];
        bob.send(method, path, &headers, body.to_string().as_bytes())
    };
    for n in 0..requests.len() {
        let first = ask(n);
        assert!(first.status < 300, "{}", first.text());
        assert_eq!(ask(n).header("idempotency-replayed"), Some("true"), "{n}");
    }
    assert_eq!(ann.delete(&format!("/threads/{thread}")).status, 204);
    // The thread is gone, and its id anybody's.
    let created = json!({"thread_id": thread, "metadata": {"graph_id": "agent"}});
    ok(bob.post("/threads", &created), 200);
    for (n, request) in requests.iter().enumerate() {
        let again = ask(n);
        assert_eq!(talk::code(&again, 409), "thread_replaced", "{request:?}");
        assert!(!again.text().contains(SECRET));
        assert_eq!(again.header("idempotency-replayed"), None);
    }
    // Nothing of them was carried out there either.
    assert_eq!(get(&bob, &thread, "runs"), json!([]));
    assert_eq!(get(&bob, &thread, "tags")["tags"], json!([]));
    assert_eq!(get(&bob, &thread, "head")["event_number"], 1);
    let (_, path, body) = &requests[0];
    let headers = [("idempotency-key", "another")];
    let fresh = bob.send("POST", path, &headers, body.to_string().as_bytes());
    assert_eq!(fresh.status, 200, "{}", fresh.text());
}

fn a_stored_answer_is_for_those_who_still_have_the_right(place: &Place) {
    let server = serve(place);
    let [ann, bob, _] = people(&server);
    let names = furnished(&ann, SECRET);
    let thread = &names.thread;
    grant(&ann, thread, "bob", "writer");
    let turn = talk::turn("hello");
    let key = |n: usize| format!("key-{n}");
    let requests = [
        ("POST", format!("/threads/{thread}/runs/wait"), turn.clone()),
        ("POST", format!("/threads/{thread}/runs/stream"), turn),
        ("PUT", format!("/threads/{thread}/tags/new"), json!({})),
        (
            "POST",
            "/commands/fork-thread".into(),
            json!({"source_thread_id": thread}),
        ),
        (
            "POST",
            "/threads".into(),
            json!({"thread_id": thread, "if_exists": "do_nothing"}),
        ),
        (
            "POST",
            "/commands/send-message".into(),
            json!({"thread_id": thread, "content": "x", "assistant_id": "agent"}),
        ),
    ];
    let ask = |n: usize| {
        let (method, path, body) = &requests[n];
        let key = key(n);
        let headers = [("idempotency-key", &*key)];
        bob.send(method, path, &headers, body.to_string().as_bytes())
    };
    for n in 0..requests.len() {
        let (first, second) = (ask(n), ask(n));
        assert!(first.status < 300, "{}", first.text());
        assert_eq!(
            (first.status, &first.body),
            (second.status, &second.body),
            "{n}"
        );
    }
    revoke(&ann, thread, "bob");
    for (n, request) in requests.iter().enumerate() {
        let answer = ask(n);
        assert_eq!(answer.status, 404, "{request:?}: {}", answer.text());
        assert!(!answer.text().contains(SECRET));
    }
    // With the right the answer comes back, not a second effect.
    grant(&ann, thread, "bob", "writer");
    let events = get(&ann, thread, "head")["event_number"].clone();
    for n in 0..requests.len() {
        let answer = ask(n);
        assert!(answer.status < 300, "{}", answer.text());
        assert!(answer.header("idempotency-replayed").is_some(), "{n}");
    }
    assert_eq!(get(&ann, thread, "head")["event_number"], events);
}

fn a_refusal_is_not_repeated_to_those_who_have_the_right_by_then(place: &Place) {
    let server = serve(place);
    let [ann, bob, _] = people(&server);
    let thread = ann.thread();
    let ask = || {
        let path = format!("/threads/{thread}/runs/wait");
        let headers = [("idempotency-key", "one")];
        bob.send(
            "POST",
            &path,
            &headers,
            talk::turn("x").to_string().as_bytes(),
        )
    };
    assert_eq!(ask().status, 404);
    grant(&ann, &thread, "bob", "reader");
    assert_eq!(ask().status, 403);
    grant(&ann, &thread, "bob", "writer");
    assert_eq!(ask().status, 200);
}

fn who_only_reads_cancels_nothing_by_leaving(place: &Place) {
    let server = serve(place);
    let [ann, bob, _] = people(&server);
    let thread = ann.thread();
    grant(&ann, &thread, "bob", "reader");
    let mut open = ann.open_stream(&thread, &talk::slow(20, 20));
    open.event_named("custom");
    let run = open.run();
    for end in ["join", "stream"] {
        let path = format!("/threads/{thread}/runs/{run}/{end}");
        let answer = bob.get(&format!("{path}?cancel_on_disconnect=true"));
        assert_eq!(talk::code(answer, 403), "forbidden");
        drop(bob.open("GET", &path, &[], b""));
    }
    assert_eq!(ann.end_of(&thread, &run), "success");
}

fn what_is_cancelled_is_so_before_the_right_to_it_is_withdrawn(place: &Place) {
    let mut server = serve(place);
    // Between the check of the level and the act.
    server.restart_with("FAILPOINTS", "runs.cancel=sleep(3000)");
    let [ann, bob, _] = people(&server);
    let thread = ann.thread();
    grant(&ann, &thread, "bob", "writer");
    let mut own = ann.open_stream(&thread, &talk::slow(50, 12_000));
    own.event_named("custom");
    let run = own.run();
    let path = format!("/threads/{thread}/runs/{run}");
    let cancel = {
        let path = format!("{path}/cancel");
        std::thread::spawn(move || bob.send("POST", &path, &[], b"").status)
    };
    talk::until("the level was checked", || {
        server.output().contains("a fail point was reached")
    });
    revoke(&ann, &thread, "bob");
    // What the run does from now on: nothing but what it was about to do.
    let mut late = ann.open("GET", &format!("{path}/stream"), &[], b"");
    let events = std::iter::from_fn(|| late.event());
    let worked = events.filter(|event| event.name == "custom").count();
    assert!(worked <= 1, "{worked} steps");
    assert_eq!(ann.end_of(&thread, &run), "interrupted");
    assert!(cancel.join().unwrap() < 300);
}

fn grants_and_refusals_are_logged_with_principal_and_request(place: &Place) {
    let server = serve(place);
    let [ann, bob, _] = people(&server);
    let thread = ann.thread();
    let logged_of = |what: &str, words: &[&str]| {
        talk::until("it is in the log", || {
            server
                .output()
                .lines()
                .any(|line| line.contains(what) && words.iter().all(|word| line.contains(word)))
        });
    };
    let logged = |what: &str, principal: &str, request: &str| {
        logged_of(what, &[principal, request, &thread]);
    };
    let as_request = |id: &'static str| [("x-request-id", id)];
    let path = format!("/threads/{thread}/members/bob");
    let body = br#"{"level":"reader"}"#;
    assert_eq!(
        ann.send("PUT", &path, &as_request("r-grant"), body).status,
        201
    );
    logged("access was changed", "ann", "r-grant");
    let own = format!("/threads/{thread}");
    bob.send("DELETE", &own, &as_request("r-refused"), b"")
        .refused(403);
    logged("access was refused", "bob", "r-refused");
    ok(ann.send("DELETE", &path, &as_request("r-revoke"), b""), 204);
    logged("access was changed", "ann", "r-revoke");
    bob.send("GET", &own, &as_request("r-foreign"), b"")
        .refused(404);
    logged("access was refused", "bob", "r-foreign");
    // A run that waited is refused to whoever created it.
    grant(&ann, &thread, "bob", "writer");
    let later = talk::with(talk::slow(1, 1), "after_seconds", 600).to_string();
    let runs = format!("{own}/runs");
    let queued = bob.send("POST", &runs, &as_request("r-queued"), later.as_bytes());
    let queued = ok(queued, 200)["run_id"].clone();
    revoke(&ann, &thread, "bob");
    let due = "UPDATE runs SET run_at = created_at";
    execute(place, &server, due).unwrap();
    permission_denied(&ann, &thread, queued.as_str().unwrap());
    logged("access was refused to a queued run", "bob", "r-queued");
    // And administration.
    let rebuild = "/admin/projections/rebuild";
    bob.send("POST", rebuild, &as_request("r-admin"), b"{}")
        .refused(403);
    logged_of("access to administration was refused", &["bob", "r-admin"]);
}
