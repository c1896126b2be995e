//! How many allocations an event of a stream takes, of a real server that counts them: numbers that do not
//! depend on the machine. What a run takes besides is in neither, since two streams are compared.

use serde_json::{Value, json};
use test_support::{client::Client, place::Place, server::Setup};

const FEW: u64 = 2_000;
const MANY: u64 = 22_000;

/// At most so many for an event of the author's own and for a piece of a message, those of the node that makes
/// it and of the run included: a sixth more than were measured (5.3 and 14.9).
const OWN: f64 = 6.2;
const MESSAGES: f64 = 17.3;

/// Has the allocator print at the end of the process, as JSON, how often it was called.
const STATISTICS: &str = "stats_print:true,stats_print_opts:Jgdablxeh";

#[test]
fn an_event_of_the_author_takes_few_allocations() {
    let each = of_an_event("tokens_custom", "custom");
    assert!(each <= OWN, "{each:.2} allocations an event");
}

#[test]
fn a_piece_of_a_message_takes_few_allocations() {
    let each = of_an_event("tokens_msg", "messages-tuple");
    assert!(each <= MESSAGES, "{each:.2} allocations an event");
}

fn of_an_event(graph: &str, mode: &str) -> f64 {
    let [few, many] = [FEW, MANY].map(|events| allocations(graph, mode, events));
    let each = (many as f64 - few as f64) / (MANY - FEW) as f64;
    println!("{graph}: {each:.2} allocations an event, {few} of a stream of {FEW}");
    each
}

/// The allocations of a server from its start to its end that streamed one run with so many events.
fn allocations(graph: &str, mode: &str, events: u64) -> u64 {
    let setup = Setup::example("bench_server").env("MALLOC_CONF", STATISTICS);
    let mut server = Place::sqlite().start(setup);
    let client = Client::of(&server);
    let input = json!({"n": events, "messages": [{"type": "human", "content": "hi"}]});
    let body = json!({"assistant_id": graph, "stream_mode": mode, "input": input});
    let found = client.stream(&client.thread(), &body).len() as u64;
    assert!(
        (events..events + 5).contains(&found),
        "{found} of {events} events"
    );
    server.signal("TERM");
    assert!(server.wait().success());
    let output = server.output();
    let (_, statistics) = output.split_once("{\"jemalloc\"").unwrap();
    let statistics: Value = serde_json::from_str(&format!("{{\"jemalloc\"{statistics}")).unwrap();
    let merged = &statistics["jemalloc"]["stats.arenas"]["merged"];
    let count = |size: &str| merged[size]["nrequests"].as_u64().unwrap();
    count("small") + count("large")
}
