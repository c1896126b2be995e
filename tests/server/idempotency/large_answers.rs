//! Repeated requests whose responses were too large to be stored.

use super::*;

on_both_storages!(
    a_large_answer_is_made_again_from_its_run_or_thread_or_refused,
    an_answer_of_the_limit_is_repeated_and_one_of_a_byte_more_is_not,
);

fn a_large_answer_is_made_again_from_its_run_or_thread_or_refused(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_STORED_ANSWER", "3000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let at = |path: &str| format!("/threads/{thread}{path}");
    let large = talk::turn(&"x".repeat(5000));
    let replayed = |answer: &Answer| answer.header("idempotency-replayed") == Some("true");
    // A run's row, its end and its events.
    let row = post(&client, &at("/runs"), "row", &large);
    assert_eq!(row.status, 200, "{}", row.text());
    let id = row.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(client.end_of(&thread, &id), "success");
    let again = post(&client, &at("/runs"), "row", &large);
    assert_eq!(
        (again.status, replayed(&again)),
        (200, true),
        "{}",
        again.text()
    );
    assert_eq!(again.json()["run_id"], json!(id));
    assert_eq!(
        again.header("content-location"),
        row.header("content-location")
    );
    let end = post(&client, &at("/runs/wait"), "end", &large);
    let again = post(&client, &at("/runs/wait"), "end", &large);
    assert!(end.body.len() > 3000 && replayed(&again));
    assert_eq!(again.json(), end.json());
    let events = post(&client, &at("/runs/stream"), "events", &large);
    let again = post(&client, &at("/runs/stream"), "events", &large);
    assert!(events.body.len() > 3000 && replayed(&again));
    assert!(again.text().contains(&"x".repeat(5000)), "{}", again.text());
    assert_eq!(runs(&client, &thread).len(), 3);
    // A thread that was made.
    let copy = post(&client, &at("/copy"), "copy", &json!({}));
    assert!(
        copy.status == 200 && copy.body.len() > 3000,
        "{}",
        copy.text()
    );
    let again = post(&client, &at("/copy"), "copy", &json!({}));
    assert_eq!((again.text(), replayed(&again)), (copy.text(), true));
    let path = format!("/threads/{}", copy.json()["thread_id"].as_str().unwrap());
    assert_eq!(client.delete(&path).status, 204);
    let refused = post(&client, &at("/copy"), "copy", &json!({}));
    assert_eq!(talk::code(&refused, 409), "answer_not_stored");
    // Without the run there is nothing to make it from.
    for run in runs(&client, &thread) {
        let path = at(&format!("/runs/{}", run["run_id"].as_str().unwrap()));
        assert_eq!(client.delete(&path).status, 204);
    }
    for (path, key) in [
        ("/runs", "row"),
        ("/runs/wait", "end"),
        ("/runs/stream", "events"),
    ] {
        let refused = post(&client, &at(path), key, &large);
        assert_eq!(talk::code(&refused, 409), "answer_not_stored", "{path}");
    }
    let stateless = post(&client, "/runs/wait", "stateless", &large);
    assert!(stateless.body.len() > 3000);
    let refused = post(&client, "/runs/wait", "stateless", &large);
    assert_eq!(talk::code(&refused, 409), "answer_not_stored");
    assert_eq!(runs(&client, &thread).len(), 0);
    // Nor from something that is no run.
    let message = talk::user(&"x".repeat(5000));
    assert_eq!(
        post(&client, &at("/messages"), "message", &message).status,
        201
    );
    let refused = post(&client, &at("/messages"), "message", &message);
    assert_eq!(talk::code(&refused, 409), "answer_not_stored");
    let messages = client.get(&at("/messages")).json();
    assert_eq!(messages["messages"].as_array().unwrap().len(), 1);
    // What is small is repeated as it was.
    let small = post(&client, &at("/messages"), "small", &talk::user("x"));
    let again = post(&client, &at("/messages"), "small", &talk::user("x"));
    assert_eq!((again.text(), replayed(&again)), (small.text(), true));
}

fn an_answer_of_the_limit_is_repeated_and_one_of_a_byte_more_is_not(place: &Place) {
    const LIMIT: usize = 3000;
    let setup = Setup::example("reference_server").env("BACKSTITCH_STORED_ANSWER", "3000");
    let server = place.start(setup);
    let client = Client::of(&server);
    // Each is the first message of its thread, so that they differ in their text alone.
    let twice = |length: usize| {
        let path = format!("/threads/{}/messages", client.thread());
        let body = talk::user(&"x".repeat(length));
        let key = format!("of-{length}");
        let first = post(&client, &path, &key, &body);
        assert_eq!(first.status, 201, "{}", first.text());
        (first, post(&client, &path, &key, &body))
    };
    let around = twice(1).0.body.len() - 1;
    for bytes in [LIMIT - 1, LIMIT] {
        let (first, again) = twice(bytes - around);
        assert_eq!(first.body.len(), bytes);
        assert_eq!((again.status, again.text()), (201, first.text()));
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
    }
    let (first, again) = twice(LIMIT + 1 - around);
    assert_eq!(first.body.len(), LIMIT + 1);
    assert_eq!(talk::code(&again, 409), "answer_not_stored");
    assert!(
        again
            .refused(409)
            .contains("read what it changed, or take a new key")
    );
}
