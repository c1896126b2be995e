//! Reports of large states: they wait for memory as runs do, and one goes on beside it after a while.

use serde_json::{Value, json};
use test_support::client::Client;
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

/// A client whose memory its own runs have, and one of whose runs is to be reported with a large state.
struct Waiting {
    _server: Server,
    ann: Client,
    bob: Client,
    receiver: Receiver,
    /// The runs that have the memory, with their threads.
    others: Vec<(String, String)>,
}

impl Waiting {
    fn at(place: &Place) -> Self {
        let server = place.start(
            setup()
                .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
                .env("BACKSTITCH_MEMORY_BUDGET", "96")
                .env("BACKSTITCH_BODY_VALUES", "500000"),
        );
        let ann = Client::of(&server).with_key("key-a");
        let bob = Client::of(&server).with_key("key-b");
        let receiver = Receiver::replying(&[OK]);
        // The memory of two such states is all that one principal may have.
        let run = |ms: u64, ticks: u64, seen: usize| {
            let seen = vec![Value::Null; seen];
            with(
                slow(ms, ticks),
                "input",
                json!({"ms": ms, "ticks": ticks, "seen": seen}),
            )
        };
        let threads: Vec<String> = (0..3).map(|_| ann.thread()).collect();
        for thread in &threads {
            ann.run(thread, &run(0, 0, 200_000));
        }
        let reported = with(run(500, 1, 0), "webhook", receiver.url("large"));
        let first = background(&ann, &threads[0], &reported);
        let path = format!("/threads/{}/runs/{first}", threads[0]);
        until("it has begun", || {
            ok(ann.get(&path), 200)["status"] == "running"
        });
        let begin =
            |thread: &String| (thread.clone(), background(&ann, thread, &run(60_000, 1, 0)));
        let others: Vec<_> = threads.iter().skip(1).map(begin).collect();
        assert_eq!(ann.end_of(&threads[0], &first), "success");
        Self {
            _server: server,
            ann,
            bob,
            receiver,
            others,
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
    let waiting = Waiting::at(place);
    let Waiting {
        ann, bob, receiver, ..
    } = &waiting;
    // The third run was first in the line. What bob has is not what ann lacks.
    bob.run(&bob.thread(), &counter(&receiver.url("small")));
    until("bob's run is reported", || !receiver.received().is_empty());
    assert_eq!(
        ends(receiver),
        [("/small".to_owned(), "success".to_owned())]
    );
    for (thread, run) in &waiting.others {
        ok(
            ann.post(&format!("/threads/{thread}/runs/{run}/cancel"), &json!({})),
            202,
        );
    }
    until("ann's run is reported", || waiting.is_reported());
    waiting.assert_is_whole();
}

fn a_report_whose_principal_has_no_memory_for_long_goes_on_beside_it(place: &Place) {
    let waiting = Waiting::at(place);
    until("ann's run is reported", || waiting.is_reported());
    waiting.assert_is_whole();
    for (thread, run) in &waiting.others {
        let path = format!("/threads/{thread}/runs/{run}");
        let row = ok(waiting.ann.get(&path), 200);
        assert!(
            row["status"] == "running" || row["status"] == "pending",
            "{row}"
        );
    }
}
