//! Runs that waited for others of their branch begin as soon as those are gone, without the poll.

use test_support::client::Client;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{background, slow, with};

fn a_cancellation_lets_the_next_run_begin(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_POLL", "3600");
    let server = place.start(setup);
    let client = Client::of(&server);
    let threads = [(); 3].map(|()| client.thread());
    let later = with(slow(1, 1), "after_seconds", 3600);
    let runs = threads.each_ref().map(|thread| {
        let [first, next] = [&later, &slow(1, 1)].map(|body| background(&client, thread, body));
        (thread, first, next)
    });
    for (number, (thread, first, next)) in runs.iter().enumerate() {
        let waiting = &runs[number..];
        for (thread, _, next) in waiting {
            let row = client.get(&format!("/threads/{thread}/runs/{next}"));
            assert_eq!(row.json()["status"], "pending");
        }
        let cancel = format!("/threads/{thread}/runs/{first}/cancel?wait=true");
        assert!(client.send("POST", &cancel, &[], b"").status < 300);
        assert_eq!(client.end_of(thread, next), "success");
    }
}

#[test]
fn a_cancellation_lets_the_next_run_begin_on_sqlite() {
    a_cancellation_lets_the_next_run_begin(&Place::sqlite());
}

#[test]
fn a_cancellation_lets_the_next_run_begin_on_postgres() {
    a_cancellation_lets_the_next_run_begin(&Place::postgres());
}
