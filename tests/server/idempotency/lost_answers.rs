//! Requests whose answer was lost: what they did is found again when they are repeated.

use super::*;

on_both_storages!(
    what_was_written_before_its_answer_was_lost_is_not_written_again,
    what_was_created_before_its_answer_was_lost_is_found_again,
    a_key_whose_answer_was_lost_belongs_to_its_request,
);

fn what_was_written_before_its_answer_was_lost_is_not_written_again(place: &Place) {
    let setup = Setup::example("faulty_server").env("BACKSTITCH_LEASE", "1");
    let mut server = place.start(setup);
    for (path, body, status) in [
        (
            "/threads/$/messages",
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}),
            200,
        ),
        (
            "/commands/send-message",
            json!({"thread_id": "$", "content": "a"}),
            202,
        ),
    ] {
        let client = Client::of(&server);
        let created = client.post("/threads", &json!({"metadata": {"graph_id": "talk"}}));
        let created = created.json();
        let thread = created["thread_id"].as_str().unwrap();
        let path = path.replace('$', thread);
        let body: Value = body.to_string().replace('$', thread).parse().unwrap();
        server.restart_with("FAILPOINTS", "http::before_keep=abort");
        let client = Client::of(&server);
        let lost = {
            let (path, body) = (path.clone(), body.clone());
            thread::spawn(move || post(&client, &path, &path, &body))
        };
        assert!(lost.join().is_err(), "the answer was lost");
        server.restart_with("FAILPOINTS", "");
        let client = Client::of(&server);
        let answer = post(&client, &path, &path, &body);
        assert_eq!(answer.status, status, "{}", answer.text());
        for run in runs(&client, thread) {
            client.end_of(thread, run["run_id"].as_str().unwrap());
        }
        let page = client.get(&format!("/threads/{thread}/messages")).json();
        let said: Vec<_> = page["messages"].as_array().unwrap().iter().collect();
        let users = said.iter().filter(|one| one["content"] == "a");
        assert_eq!(users.count(), 1, "{page}");
        assert_eq!(said.len(), 2, "{page}");
        assert!(runs(&client, thread).len() <= 1);
        // The answer is kept now.
        let again = post(&client, &path, &path, &body);
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.text(), answer.text());
    }
}

/// The answer to a request that did what it was to do, and failed before its answer was stored.
pub const LOST: &str = "http::before_keep=panic@1";

fn what_was_created_before_its_answer_was_lost_is_found_again(place: &Place) {
    let mut server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = client.post("/threads", &json!({"metadata": {"graph_id": "talk"}}));
    let thread = talk::id_of(&thread.json());
    for content in ["one", "two"] {
        let message = json!({"role": "user", "content": content});
        ok(
            client.post(&format!("/threads/{thread}/messages"), &message),
            201,
        );
    }
    let updates = json!([
        {"updates": [{"values": {"messages": [{"role": "user", "content": "a"}]}, "as_node": "__start__"}]},
        {"updates": [{"values": {"messages": [{"role": "ai", "content": "b"}]}, "as_node": "__start__"}]}
    ]);
    let cron = json!({"assistant_id": "talk", "schedule": "0 0 1 1 *"});
    let of_thread = |rest: &str| format!("/threads/{thread}/{rest}");
    for (list, path, body) in [
        ("/threads", "/threads".to_owned(), json!({})),
        (
            "/threads",
            "/threads".to_owned(),
            json!({"metadata": {"graph_id": "talk"}, "supersteps": updates}),
        ),
        ("/threads", "/commands/create-thread".to_owned(), json!({})),
        ("/threads", of_thread("copy"), json!({})),
        ("/threads", of_thread("fork"), json!({})),
        (
            "/threads",
            "/commands/fork-thread".to_owned(),
            json!({"source_thread_id": thread}),
        ),
        ("/runs/crons", "/runs/crons".to_owned(), cron.clone()),
        ("/runs/crons", of_thread("runs/crons"), cron),
        (
            "/assistants",
            "/assistants".to_owned(),
            json!({"graph_id": "talk"}),
        ),
    ] {
        server.restart_with("FAILPOINTS", LOST);
        let client = Client::of(&server);
        let count = || {
            let all = ok(client.post(&format!("{list}/count"), &json!({})), 200);
            all.as_u64().unwrap()
        };
        let before = count();
        let key = format!("{path}{}", body.to_string().len());
        assert_eq!(post(&client, &path, &key, &body).status, 500, "{path}");
        assert_eq!(count(), before + 1, "{path}");
        let again = post(&client, &path, &key, &body);
        assert!(again.status < 300, "{path}: {}", again.text());
        assert_eq!(again.header("idempotency-replayed"), None);
        assert_eq!(count(), before + 1, "{path}");
        let third = post(&client, &path, &key, &body);
        assert_eq!(third.header("idempotency-replayed"), Some("true"));
        assert_eq!((third.status, third.text()), (again.status, again.text()));
        if body.get("supersteps").is_some() {
            let id = talk::id_of(&again.json());
            let history = client.post(&format!("/threads/{id}/history"), &json!({}));
            assert_eq!(history.json().as_array().map(Vec::len), Some(2));
        }
        // Another request makes another one.
        assert!(post(&client, &path, &format!("{key}-other"), &body).status < 300);
        assert_eq!(count(), before + 2, "{path}");
        server.restart_with("FAILPOINTS", "");
    }
}

fn a_key_whose_answer_was_lost_belongs_to_its_request(place: &Place) {
    let server = place.start(Setup::example("faulty_server").env("FAILPOINTS", LOST));
    let client = Client::of(&server);
    assert_eq!(post(&client, "/threads", "k", &json!({})).status, 500);
    let other = post(&client, "/threads", "k", &json!({"metadata": {"a": 1}}));
    assert_eq!(talk::code(other, 422), "idempotency_mismatch");
    // Many repetitions at once find it all the same.
    let answers: Vec<_> = thread::scope(|scope| {
        let repeat = || post(&client, "/threads", "k", &json!({}));
        let sent: Vec<_> = (0..8).map(|_| scope.spawn(repeat)).collect();
        sent.into_iter().map(|sent| sent.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!((answer.status, answer.text()), (200, answers[0].text()));
    }
    assert_eq!(ok(client.post("/threads/count", &json!({})), 200), 1);
}
