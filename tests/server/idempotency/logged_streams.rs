//! Repeated requests for streams that can be resumed are told every event, wherever the run is or was executed.

use test_support::client::{Event, Open};

use test_support::talk::with;

use super::*;

on_both_storages!(a_repeated_stream_is_told_from_its_first_event_after_a_restart);

/// A run of which some events come before others.
fn resumable() -> String {
    with(slow(150), "stream_resumable", true).to_string()
}

fn all(mut stream: Open) -> Vec<Event> {
    assert_eq!(stream.status, 200);
    std::iter::from_fn(|| stream.event()).collect()
}

fn a_repeated_stream_is_told_from_its_first_event_after_a_restart(place: &Place) {
    let (mut server, client) = serve(place);
    let of_thread = format!("/threads/{}/runs/stream", client.thread());
    let joins = [&*of_thread, "/runs/stream"].map(|path| {
        let headers = [("idempotency-key", path)];
        let mut first = client.open("POST", path, &headers, resumable().as_bytes());
        first.event_named("custom");
        let of_run = format!("{}/stream", path.replace("stream", &first.run()));
        drop(first);
        // Whoever follows the run sees it end.
        let followed = client.open("GET", &of_run, &[("last-event-id", "-1")], b"");
        (path.to_owned(), of_run, all(followed))
    });
    server.restart();
    let client = Client::of(&server);
    for (path, of_run, followed) in joins {
        let log = client.open("GET", &of_run, &[("last-event-id", "-1")], b"");
        assert_eq!(all(log), followed, "{path}");
        let headers = [("idempotency-key", &*path)];
        let repeated = client.open("POST", &path, &headers, resumable().as_bytes());
        assert_eq!(repeated.header("idempotency-replayed"), Some("true"));
        let repeated = all(repeated);
        assert_eq!(repeated, followed, "{path}");
        assert!(repeated.iter().any(|event| event.name == "custom"));
        assert!(repeated.iter().all(|event| event.id.is_some()));
    }
}

#[test]
fn a_repeated_stream_is_told_from_its_first_event_at_another_process() {
    let place = Place::postgres();
    let (server, one) = serve(&place);
    let other = server.replica();
    let two = Client::of(&other);
    let path = format!("/threads/{}/runs/stream", one.thread());
    let headers = [("idempotency-key", "k")];
    let mut first = one.open("POST", &path, &headers, resumable().as_bytes());
    first.event_named("custom");
    let repeated = two.open("POST", &path, &headers, resumable().as_bytes());
    assert_eq!(repeated.header("idempotency-replayed"), Some("true"));
    assert_eq!(repeated.run(), first.run());
    let (repeated, rest) = (all(repeated), all(first));
    assert!(repeated.len() >= rest.len() + 2, "{repeated:?}");
    assert!(repeated.ends_with(&rest), "{repeated:?}");
}
