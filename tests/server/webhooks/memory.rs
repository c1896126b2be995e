//! Reports of large states: they wait for memory as runs do, and one goes on beside it after a while.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::http2::Unread;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Server;
use test_support::talk::{background, ok, slow, until, with};

use super::{OK, counter, ends, setup};
use crate::receiver::Receiver;

on_both_storages!(
    the_report_of_a_large_state_waits_for_memory_of_its_principal,
    a_report_whose_principal_has_no_memory_for_long_goes_on_beside_it,
);

/// A client whose memory is in responses that it does not read, and one of whose runs is to be reported with a large state.
struct Waiting {
    _server: Server,
    ann: Client,
    bob: Client,
    receiver: Receiver,
    unread: Option<Unread>,
    /// Where another state is that takes as much.
    state: String,
}

impl Waiting {
    fn at(place: &Place) -> Self {
        let server = place.start(
            setup()
                .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
                .env("BACKSTITCH_MEMORY_BUDGET", "96")
                .env("BACKSTITCH_BODY_VALUES", "500000")
                .env("BACKSTITCH_STALL", "120"),
        );
        let ann = Client::of(&server).with_key("key-a");
        let bob = Client::of(&server).with_key("key-b");
        let receiver = Receiver::replying(&[OK]);
        let run = |ms: u64, ticks: u64, seen: usize| {
            let seen = vec![Value::Null; seen];
            with(
                slow(ms, ticks),
                "input",
                json!({"ms": ms, "ticks": ticks, "seen": seen}),
            )
        };
        let threads: Vec<String> = (0..2).map(|_| ann.thread()).collect();
        for thread in &threads {
            ann.run(thread, &run(0, 0, 200_000));
        }
        let reported = with(run(3_000, 1, 0), "webhook", receiver.url("large"));
        let first = background(&ann, &threads[0], &reported);
        let path = format!("/threads/{}/runs/{first}", threads[0]);
        until("it has begun", || {
            ok(ann.get(&path), 200)["status"] == "running"
        });
        let state = format!("/threads/{}/state", threads[1]);
        let unread = Unread::fill(&server, "key-a", &state);
        assert_eq!(ann.end_of(&threads[0], &first), "success");
        Self {
            _server: server,
            ann,
            bob,
            receiver,
            unread: Some(unread),
            state,
        }
    }

    fn is_reported(&self) -> bool {
        ends(&self.receiver)
            .iter()
            .any(|(path, _)| path == "/large")
    }

    fn assert_is_whole(&self) {
        let received = self.receiver.received();
        let large = received.iter().find(|one| one.path == "/large");
        let large = large.unwrap().body();
        assert!(large["values"]["seen"].as_array().unwrap().len() > 200_000);
    }
}

fn the_report_of_a_large_state_waits_for_memory_of_its_principal(place: &Place) {
    let mut waiting = Waiting::at(place);
    let Waiting { bob, receiver, .. } = &waiting;
    // What bob has is not what ann lacks.
    bob.run(&bob.thread(), &counter(&receiver.url("small")));
    until("bob's run is reported", || !receiver.received().is_empty());
    assert_eq!(
        ends(receiver),
        [("/small".to_owned(), "success".to_owned())]
    );
    drop(waiting.unread.take());
    until("ann's run is reported", || waiting.is_reported());
    waiting.assert_is_whole();
}

fn a_report_whose_principal_has_no_memory_for_long_goes_on_beside_it(place: &Place) {
    let waiting = Waiting::at(place);
    until("ann's run is reported", || waiting.is_reported());
    waiting.assert_is_whole();
    waiting.ann.get(&waiting.state).refused(503);
}
