//! `Idempotency-Key`: a request that is sent again takes effect once.

mod expiry;
mod json_rpc;
mod large_answers;
mod logged_streams;
mod lost_answers;
mod lost_runs;
mod made_anew;

use std::thread;
use test_support::on_both_storages;

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::tables;
use test_support::talk::{self, ok, until};

on_both_storages!(
    a_repeated_request_gets_the_first_answer_and_has_no_further_effect,
    a_key_belongs_to_one_request,
    requests_sent_at_once_have_one_effect_and_one_answer,
    a_refusal_is_kept_too,
    what_was_too_much_is_tried_again_with_its_key,
    a_repeated_run_is_the_first_run,
    the_answer_of_a_request_that_made_its_thread_is_repeated_until_another_one_has_its_id,
    what_was_refused_for_want_of_a_thread_is_refused_again_when_there_is_one,
    a_repeated_run_is_the_first_run_though_its_thread_goes_meanwhile,
    a_repeated_stream_joins_the_run_that_was_created,
    a_repeated_wait_gives_the_end_of_the_run_that_was_created,
    a_run_whose_creator_was_killed_is_found_again,
    a_stateless_run_whose_creator_was_killed_is_found_again,
    keys_count_for_posts_and_puts_and_have_a_form,
    a_repeated_tag_or_message_is_written_once,
    the_end_of_a_stateless_run_outlives_it,
    a_repeated_stream_is_told_again_from_its_beginning,
    streams_asked_for_at_once_tell_the_same,
    a_stream_that_nobody_read_to_its_end_tells_the_end_again,
    of_reads_nothing_is_stored,
);

fn post(client: &Client, path: &str, key: &str, body: &Value) -> Answer {
    let headers = [("idempotency-key", key)];
    client.send("POST", path, &headers, body.to_string().as_bytes())
}

fn slow(ms: u64) -> Value {
    talk::slow(ms, 2)
}

fn runs(client: &Client, thread: &str) -> Vec<Value> {
    let answer = client.get(&format!("/threads/{thread}/runs"));
    answer.json().as_array().unwrap().clone()
}

fn a_repeated_request_gets_the_first_answer_and_has_no_further_effect(place: &Place) {
    let (_server, client) = serve(place);
    let body = json!({"metadata": {"a": 1}});
    let first = post(&client, "/threads", "k", &body);
    assert_eq!(
        (first.status, first.header("idempotency-replayed")),
        (200, None)
    );
    let second = post(&client, "/threads", "k", &body);
    assert_eq!(second.status, 200);
    assert_eq!(second.text(), first.text());
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(second.header("content-type"), Some("application/json"));
    let other = post(&client, "/threads", "another", &body);
    assert_ne!(other.json()["thread_id"], first.json()["thread_id"]);
}

fn a_repeated_stream_is_told_again_from_its_beginning(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    for path in [
        format!("/threads/{thread}/runs/stream"),
        "/runs/stream".into(),
    ] {
        let first = post(&client, &path, &path, &slow(1));
        assert!(first.text().contains("event: values"), "{}", first.text());
        let again = post(&client, &path, &path, &slow(1));
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.text(), first.text());
        for name in ["content-type", "location", "content-location"] {
            assert!(first.header(name).is_some(), "{name}");
            assert_eq!(again.header(name), first.header(name));
        }
    }
    assert_eq!(runs(&client, &thread).len(), 1);
    let first = post(&client, "/threads/search", "search", &json!({}));
    let again = post(&client, "/threads/search", "search", &json!({}));
    assert_eq!(first.header("x-pagination-total"), Some("1"));
    assert_eq!(again.header("x-pagination-total"), Some("1"));
}

fn streams_asked_for_at_once_tell_the_same(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    for path in [
        format!("/threads/{thread}/runs/stream"),
        "/runs/stream".into(),
    ] {
        let send = || {
            let (client, path) = (client.clone(), path.clone());
            thread::spawn(move || post(&client, &path, &path, &slow(100)).text().to_owned())
        };
        let sent: Vec<_> = (0..8).map(|_| send()).collect();
        let texts: Vec<_> = sent.into_iter().map(|sent| sent.join().unwrap()).collect();
        assert!(texts[0].contains("event: values"), "{}", texts[0]);
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    }
    assert_eq!(runs(&client, &thread).len(), 1);
}

fn a_stream_that_nobody_read_to_its_end_tells_the_end_again(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs/stream");
    let (text, headers) = (slow(100).to_string(), [("idempotency-key", "k")]);
    let mut first = client.open("POST", &path, &headers, text.as_bytes());
    let about = first.event().unwrap();
    drop(first);
    let mut again = client.open("POST", &path, &headers, text.as_bytes());
    assert_eq!(again.event().unwrap(), about);
    let end = again.event().unwrap();
    assert_eq!(
        (&*end.name, &end.data["seen"]),
        ("values", &json!(["work", "rest"]))
    );
    assert_eq!(again.event(), None);
    assert_eq!(runs(&client, &thread).len(), 1);
}

fn a_key_belongs_to_one_request(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    assert_eq!(post(&client, "/threads", "k", &json!({})).status, 200);
    for (path, body) in [
        ("/threads", json!({"metadata": {}})),
        (&format!("/threads/{thread}/runs"), json!({})),
    ] {
        let answer = post(&client, path, "k", &body);
        answer.refused(422);
        assert_eq!(answer.json()["code"], "idempotency_mismatch");
    }
    assert_eq!(runs(&client, &thread), [] as [Value; 0]);
}

fn requests_sent_at_once_have_one_effect_and_one_answer(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs");
    let send = || {
        let (client, path) = (client.clone(), path.clone());
        thread::spawn(move || post(&client, &path, "once", &slow(20)))
    };
    let sent: Vec<_> = (0..20).map(|_| send()).collect();
    let answers: Vec<_> = sent.into_iter().map(|sent| sent.join().unwrap()).collect();
    for answer in &answers {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.text(), answers[0].text());
    }
    let fresh = answers
        .iter()
        .filter(|answer| answer.header("idempotency-replayed").is_none());
    assert_eq!(fresh.count(), 1);
    assert_eq!(runs(&client, &thread).len(), 1);
}

fn what_was_too_much_is_tried_again_with_its_key(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_MAX_QUEUED", "1");
    let server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs");
    let [gate, queued] = [3_600_000, 1].map(|ms| {
        let run = ok(client.post(&path, &slow(ms)), 200);
        run["run_id"].as_str().unwrap().to_owned()
    });
    for _ in 0..2 {
        let refused = post(&client, &path, "k", &slow(1));
        assert_eq!(refused.status, 429);
        assert_eq!(refused.header("idempotency-replayed"), None);
    }
    let cancel = |run: &str| format!("{path}/{run}/cancel?wait=true");
    assert!(client.send("POST", &cancel(&queued), &[], b"").status < 300);
    let created = ok(post(&client, &path, "k", &slow(1)), 200);
    assert_eq!(runs(&client, &thread)[0]["run_id"], created["run_id"]);
    assert!(client.send("POST", &cancel(&gate), &[], b"").status < 300);
}

fn a_refusal_is_kept_too(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = json!({"thread_id": thread});
    post(&client, "/threads", "k", &body).refused(409);
    assert_eq!(client.delete(&format!("/threads/{thread}")).status, 204);
    let again = post(&client, "/threads", "k", &body);
    again.refused(409);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(post(&client, "/threads", "new", &body).status, 200);
}

fn the_answer_of_a_request_that_made_its_thread_is_repeated_until_another_one_has_its_id(
    place: &Place,
) {
    let (_server, client) = serve(place);
    let [of_run, made] = [(); 2].map(|()| uuid::Uuid::now_v7().to_string());
    let run = talk::with(slow(1), "if_not_exists", "create");
    let requests = [
        (format!("/threads/{of_run}/runs/wait"), run, of_run),
        ("/threads".to_owned(), json!({"thread_id": made}), made),
    ];
    for (path, body, thread) in &requests {
        let key = format!("of-{thread}");
        let first = post(&client, path, &key, body);
        // As an answer that comes while its thread is young.
        let second = post(&client, path, &key, body);
        assert_eq!(second.header("idempotency-replayed"), Some("true"));
        assert_eq!((first.status, first.text()), (200, second.text()));
        let answer = client.delete(&format!("/threads/{thread}"));
        assert_eq!(answer.status, 204);
        let gone = post(&client, path, &key, body);
        assert_eq!((200, gone.text()), (gone.status, first.text()));
        ok(
            post(&client, "/threads", thread, &json!({"thread_id": thread})),
            200,
        );
        let again = post(&client, path, &key, body);
        assert_eq!(talk::code(&again, 409), "thread_replaced", "{path}");
        assert_eq!(runs(&client, thread), Vec::<Value>::new());
    }
}

fn what_was_refused_for_want_of_a_thread_is_refused_again_when_there_is_one(place: &Place) {
    let (_server, client) = serve(place);
    let thread = uuid::Uuid::now_v7().to_string();
    let path = format!("/threads/{thread}/runs");
    assert_eq!(post(&client, &path, "early", &slow(1)).status, 404);
    let made = post(&client, "/threads", "made", &json!({"thread_id": thread}));
    assert_eq!(made.status, 200);
    let again = post(&client, &path, "early", &slow(1));
    assert_eq!(
        (again.status, again.header("idempotency-replayed")),
        (404, Some("true"))
    );
    assert_eq!(post(&client, &path, "late", &slow(1)).status, 200);
    assert_eq!(runs(&client, &thread).len(), 1);
}

fn a_repeated_run_is_the_first_run(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs");
    let first = post(&client, &path, "k", &slow(1));
    let run = first.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(client.end_of(&thread, &run), "success");
    let second = post(&client, &path, "k", &slow(1));
    assert_eq!(second.text(), first.text());
    let place = format!("{path}/{run}");
    assert_eq!(second.header("content-location"), Some(&*place));
    assert_eq!(runs(&client, &thread).len(), 1);
}

fn a_repeated_run_is_the_first_run_though_its_thread_goes_meanwhile(place: &Place) {
    let gate = tempfile::tempdir().unwrap();
    let closed = gate.path().join("closed");
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a")
        .env(
            "FAILPOINTS",
            format!("runs::repeat=while({})", closed.display()),
        );
    let server = place.start(setup);
    let client = Client::of(&server).with_key("key-a");
    let body = talk::slow(3_600_000, 1);
    let first = post(&client, "/runs", "k", &body).json();
    let (thread, run) = (&first["thread_id"], &first["run_id"]);
    std::fs::write(&closed, "").unwrap();
    thread::scope(|scope| {
        let again = scope.spawn(|| post(&client, "/runs", "k", &body));
        until(
            "the thread is about to be looked up, or need not be",
            || again.is_finished() || server.output().contains("a fail point was reached"),
        );
        // On Postgres its creation looks nothing up that could be withdrawn.
        assert!(place.is_postgres() || !again.is_finished());
        let cancel = json!({"thread_id": thread, "run_ids": [run]});
        let cancel = client.post("/runs/cancel", &cancel);
        assert!(cancel.status < 300, "{}", cancel.text());
        let threads = "SELECT CAST(count(*) AS text) FROM threads WHERE deleted_at IS NULL";
        until("the thread is gone", || {
            tables::rows(place, &server, threads)[0][0].as_deref() == Some("0")
        });
        std::fs::remove_file(&closed).unwrap();
        let again = again.join().unwrap();
        assert_eq!(ok(again, 200), first);
    });
}

fn a_repeated_stream_joins_the_run_that_was_created(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs/stream");
    let mut body = slow(150);
    body["stream_resumable"] = true.into();
    let text = body.to_string();
    let headers = [("idempotency-key", "k")];
    let mut first = client.open("POST", &path, &headers, text.as_bytes());
    let seen = first.event_named("custom");
    let mut second = client.open("POST", &path, &headers, text.as_bytes());
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(second.run(), first.run());
    // What the stream keeps is told from its beginning.
    assert_eq!(second.event().unwrap().name, "metadata");
    assert_eq!(second.event_named("custom"), seen);
    let rest: Vec<_> = std::iter::from_fn(|| first.event()).collect();
    let joined: Vec<_> = std::iter::from_fn(|| second.event()).collect();
    assert_eq!(joined, rest);
    assert_eq!(runs(&client, &thread).len(), 1);
}

fn a_repeated_wait_gives_the_end_of_the_run_that_was_created(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs/wait");
    let first = {
        let (client, path) = (client.clone(), path.clone());
        thread::spawn(move || post(&client, &path, "k", &slow(150)))
    };
    let second = post(&client, &path, "k", &slow(150)).json();
    assert_eq!(second["seen"], json!(["work", "rest"]));
    let first = first.join().unwrap();
    let third = post(&client, &path, "k", &slow(150));
    assert_eq!(first.json(), second);
    for name in ["location", "content-location"] {
        assert!(first.header(name).is_some(), "{name}");
        assert_eq!(first.header(name), third.header(name));
    }
    assert_eq!(third.json(), second);
    assert_eq!(runs(&client, &thread).len(), 1);
}

fn a_run_whose_creator_was_killed_is_found_again(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "1");
    let mut server = place.start(setup);
    for kind in ["wait", "stream"] {
        let client = Client::of(&server);
        let thread = client.thread();
        let path = format!("/threads/{thread}/runs/{kind}");
        let waiting = {
            let (client, path) = (client.clone(), path.clone());
            thread::spawn(move || {
                let body = slow(500).to_string();
                let headers = [("idempotency-key", kind)];
                // The connection breaks, maybe before the head of an answer.
                client
                    .open("POST", &path, &headers, body.as_bytes())
                    .breaks()
            })
        };
        while runs(&client, &thread).is_empty() {}
        server.kill();
        waiting.join().ok();
        server.restart();
        let client = Client::of(&server);
        let answer = post(&client, &path, kind, &slow(500));
        assert_eq!(answer.header("idempotency-replayed"), Some("true"));
        let text = answer.text();
        assert!(text.contains(r#""seen":["work","rest"]"#), "{text}");
        let runs = runs(&client, &thread);
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0]["status"], "success");
        assert_eq!(
            client.state(&thread)["values"]["seen"],
            json!(["work", "rest"])
        );
        // From now on the answer is kept.
        let again = post(&client, &path, kind, &slow(500));
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert!(again.text().contains(r#""seen":["work","rest"]"#));
    }
}

fn a_stateless_run_whose_creator_was_killed_is_found_again(place: &Place) {
    let setup = Setup::example("faulty_server").env("BACKSTITCH_LEASE", "1");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let [gate, trace] = ["gate", "trace"].map(|name| server.folder().join(name));
    let input = json!({"gate": gate, "trace": trace});
    let body = json!({"assistant_id": "pair", "input": input, "durability": "sync"});
    let waiting = {
        let (client, body) = (client.clone(), body.to_string());
        thread::spawn(move || {
            let headers = [("idempotency-key", "k")];
            client
                .open("POST", "/runs/wait", &headers, body.as_bytes())
                .breaks()
        })
    };
    let traces = || std::fs::read_to_string(&trace).unwrap_or_default();
    until("the run has a thread", || {
        client.get("/threads").json()[0].is_object()
    });
    let thread = talk::id_of(&client.get("/threads").json()[0]);
    until("the result of the quick node is stored", || {
        !talk::result_of(&client, &thread, "quick").is_null()
    });
    server.kill();
    waiting.join().ok();
    server.restart();
    let client = Client::of(&server);
    // The head of the answer comes when the repeated request waits for the run, which takes its thread with it when it
    // ends. On Postgres the lease of the dead process has to lapse before that.
    let (headers, text) = ([("idempotency-key", "k")], body.to_string());
    let mut again = client.open("POST", "/runs/wait", &headers, text.as_bytes());
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    std::fs::write(&gate, "").unwrap();
    let answer: Value = serde_json::from_slice(&again.rest()).unwrap();
    assert_eq!(answer["done"], json!(["quick", "stuck"]), "{answer}");
    assert_eq!(traces(), "quick\n", "one run");
}

fn keys_count_for_posts_and_puts_and_have_a_form(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    for bad in ["", "two words", &"x".repeat(256), "ключ"] {
        let answer = post(&client, "/threads", bad, &json!({}));
        assert_eq!(talk::code(answer, 422), "invalid_request");
    }
    let path = format!("/threads/{thread}");
    for n in [1, 2] {
        let body = json!({"metadata": {"n": n}}).to_string();
        let headers = [("idempotency-key", "k")];
        let answer = client.send("PATCH", &path, &headers, body.as_bytes());
        assert_eq!(answer.json()["metadata"]["n"], n);
    }
}

fn a_repeated_tag_or_message_is_written_once(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "agent", "input": {"messages": "hello"}}),
    );
    let path = format!("/threads/{thread}/tags/t");
    let headers = [("idempotency-key", "tag")];
    let first = client.send("PUT", &path, &headers, b"");
    assert_eq!(first.status, 201, "{}", first.text());
    let again = client.send("PUT", &path, &headers, b"");
    assert_eq!((again.status, again.text()), (201, first.text()));

    let path = format!("/threads/{thread}/messages");
    let message = json!({"role": "user", "content": "once"});
    let first = post(&client, &path, "message", &message);
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(
        post(&client, &path, "message", &message).text(),
        first.text()
    );
    let all = client.get(&path).json();
    let said = all["messages"].as_array().unwrap().iter();
    assert_eq!(said.filter(|one| one["content"] == "once").count(), 1);
}

fn the_end_of_a_stateless_run_outlives_it(place: &Place) {
    let (_server, client) = serve(place);
    let first = post(&client, "/runs/wait", "k", &slow(1));
    assert_eq!(first.json()["seen"], json!(["work", "rest"]));
    let again = post(&client, "/runs/wait", "k", &slow(1));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.json(), first.json());
}

fn of_reads_nothing_is_stored(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let history = format!("/threads/{thread}/history");
    let count = |path: &str, key: &str| {
        let answer = post(&client, path, key, &json!({"limit": 100}));
        assert_eq!(answer.header("idempotency-replayed"), None, "{path}");
        ok(answer, 200).as_array().map(Vec::len)
    };
    let before = [count(&history, "h"), count("/threads/search", "s")];
    client.run(&thread, &talk::turn("hi"));
    client.thread();
    assert_eq!(before, [Some(0), Some(1)]);
    // A key that was used for a read alone is free.
    assert_eq!(count(&history, "s"), Some(3));
    assert_eq!(count("/threads/search", "h"), Some(2));
    assert_eq!(post(&client, "/threads", "h", &json!({})).status, 200);
}
